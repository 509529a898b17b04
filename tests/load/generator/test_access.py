from __future__ import annotations

import base64
import ssl
import tempfile
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from load.generator.access import read_kubeconfig
from tests.load.generator.certificates import Authority
from tests.load.generator.running import kubeconfig


def test_a_token_becomes_a_header(tmp_path: Path) -> None:
    access = read_kubeconfig(kubeconfig(tmp_path, "http://127.0.0.1:80", user={"token": "secret"}))

    assert (access.host, access.port, access.tls) == ("127.0.0.1", 80, None)
    assert access.authorization == "Bearer secret"


def test_a_token_may_be_in_a_file_beside_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")

    access = read_kubeconfig(kubeconfig(tmp_path, "http://127.0.0.1:80", user={"tokenFile": "token"}))

    assert access.authorization == "Bearer secret"


def test_the_port_and_path_of_the_url_are_kept(tmp_path: Path) -> None:
    access = read_kubeconfig(kubeconfig(tmp_path, "https://[::1]/clusters/one/"))

    assert (access.host, access.port, access.base_path) == ("::1", 443, "/clusters/one")


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "files"])
def test_certificates_are_loaded_and_no_key_stays_behind(
    tmp_path: Path, inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority()
    pair = authority.issue("sender")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    def given(key: str, content: bytes) -> dict[str, str]:
        if inline:
            return {f"{key}-data": base64.b64encode(content).decode()}
        (tmp_path / key).write_bytes(content)
        return {key: key}

    path = kubeconfig(
        tmp_path,
        "https://127.0.0.1:6443",
        cluster=given("certificate-authority", authority.certificate),
        user=given("client-certificate", pair.certificate) | given("client-key", pair.key),
    )
    access = read_kubeconfig(path)

    assert access.tls is not None
    assert access.tls.verify_mode is ssl.CERT_REQUIRED
    assert [dict(each["subject"][0])["commonName"] for each in access.tls.get_ca_certs()] == ["authority"]  # type: ignore[arg-type]
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("cluster", "user", "message"),
    [
        ({}, {"exec": {"command": "login"}}, "user.exec: expected a client certificate or a token"),
        ({"certificate-authority": "missing"}, {}, "missing"),
        ({"certificate-authority-data": "?"}, {}, "its certificates or token can't be used"),
    ],
)
def test_what_can_not_be_used_is_named(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], message: str
) -> None:
    path = kubeconfig(tmp_path, "https://127.0.0.1:1", cluster=cluster, user=user)

    with pytest.raises(UsageError, match=message) as raised:
        read_kubeconfig(path)
    assert str(raised.value).startswith(str(path))


@pytest.mark.parametrize("text", ["", "[]", "current-context: nowhere\ncontexts: []\n", "a: [b"])
def test_what_is_no_kubeconfig_is_one_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)

    with pytest.raises(UsageError, match="not a usable kubeconfig"):
        read_kubeconfig(path)


def test_only_http_and_https_are_spoken(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected an http or https URL"):
        read_kubeconfig(kubeconfig(tmp_path, "unix:///run/socket"))
