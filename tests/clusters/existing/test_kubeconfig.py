"""Taking one context out of a kubeconfig."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from clusters.existing.kubeconfig import single_context
from harness.errors import UsageError

TWO: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "a",
    "clusters": [
        {"name": "one", "cluster": {"server": "https://one", "certificate-authority": "pki/ca.crt"}},
        {"name": "two", "cluster": {"server": "https://two", "certificate-authority-data": "Q0E="}},
    ],
    "users": [
        {"name": "u", "user": {"client-certificate": "/abs/u.crt", "client-key": "u.key"}},
        {"name": "v", "user": {"exec": {"command": "./login", "args": ["x"]}}},
        {"name": "w", "user": {"exec": {"command": "aws"}, "token": "secret"}},
    ],
    "contexts": [
        {"name": "a", "context": {"cluster": "one", "user": "u", "namespace": "n"}},
        {"name": "b", "context": {"cluster": "two", "user": "v"}},
        {"name": "c", "context": {"cluster": "two", "user": "w"}},
        {"name": "no-user", "context": {"cluster": "two", "user": "x"}},
        {"name": "no-cluster", "context": {"user": "u"}},
    ],
}


def write(folder: Path, document: object) -> Path:
    path = folder / "config"
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return path


def test_the_current_context_alone_and_its_files_by_absolute_paths(tmp_path: Path) -> None:
    name, text = single_context(write(tmp_path, TWO), None)
    assert name == "a"
    assert yaml.safe_load(text) == {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "clusters": [
            {
                "name": "one",
                "cluster": {"server": "https://one", "certificate-authority": f"{tmp_path}/pki/ca.crt"},
            }
        ],
        "users": [
            {"name": "u", "user": {"client-certificate": "/abs/u.crt", "client-key": f"{tmp_path}/u.key"}}
        ],
        "contexts": [{"name": "a", "context": {"cluster": "one", "user": "u", "namespace": "n"}}],
    }


def test_a_named_context_and_programs_for_credentials(tmp_path: Path) -> None:
    path = write(tmp_path, TWO)
    name, text = single_context(path, "b")
    assert name == "b"
    assert "secret" not in text
    assert yaml.safe_load(text)["current-context"] == "b"
    (user,) = yaml.safe_load(text)["users"]
    assert user["user"]["exec"] == {"command": f"{tmp_path}/login", "args": ["x"]}
    (user,) = yaml.safe_load(single_context(path, "c")[1])["users"]
    assert user["user"]["exec"] == {"command": "aws"}  # found on PATH


@pytest.mark.parametrize(
    ("document", "context", "message"),
    [
        ("{", None, "expected a kubeconfig; this is no YAML"),
        ("just text", None, "contexts: expected a kubeconfig with a list of contexts"),
        ({"contexts": {}}, None, "contexts: expected a kubeconfig with a list of contexts"),
        (TWO, "d", "contexts: none is named 'd'; there are: a, b, c, no-user, no-cluster"),
        ({"contexts": []}, "d", "contexts: none is named 'd'; there are: none"),
        ({**TWO, "current-context": ""}, None, "current-context: not set; give --context, of: a, b, c,"),
        (TWO, "no-user", "users: expected the user 'x' of context 'no-user', with its settings"),
        (TWO, "no-cluster", "clusters: expected the cluster '' of context 'no-cluster', with its settings"),
        (
            {**TWO, "clusters": [{"name": "one", "cluster": {}}]},
            None,
            "clusters: expected the cluster of context 'a' to have a server",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, document: object, context: str | None, message: str) -> None:
    path = write(tmp_path, document)
    with pytest.raises(UsageError) as refused:
        single_context(path, context)
    assert str(refused.value).startswith(f"{path}: {message}")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="none: can't be read: No such file or directory"):
        single_context(tmp_path / "none", None)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="binary: expected a kubeconfig; this is no YAML"):
        single_context(tmp_path / "binary", None)
