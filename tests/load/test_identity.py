"""Who a run is: manifests, credentials and refusals, as far as that can be told without a cluster."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from harness.errors import EnvironmentBlocked, UsageError
from harness.kube import FLOW_SCHEMAS, PRIORITY_LEVELS, KubeClient, Object, Resource
from load import identity
from load.model import Flow
from load.naming import Names
from load.rights import Role

NAMES = Names("run-1")


def test_a_flow_schema_is_one_users_alone_and_takes_all_of_its_requests() -> None:
    schema = identity.flow_schema(NAMES, Role.SENDER, "workload-low")
    assert schema["metadata"] == {
        "name": f"load-{NAMES.token}-sender",
        "labels": {"dra-harness.dev/run": "run-1"},
    }
    (rule,) = schema["spec"]["rules"]
    account = {"name": "sender", "namespace": f"load-{NAMES.token}-users"}
    assert rule["subjects"] == [{"kind": "ServiceAccount", "serviceAccount": account}]
    assert rule["resourceRules"][0]["clusterScope"] is True
    assert rule["nonResourceRules"] == [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
    assert schema["spec"]["priorityLevelConfiguration"] == {"name": "workload-low"}
    # The schema of all service accounts has 9000, those of the system's own 100 to 900.
    assert schema["spec"]["matchingPrecedence"] < 800


def admin_kubeconfig(path: Path, **cluster: Any) -> Path:
    config = {
        "current-context": "b",
        "contexts": [
            {"name": "a", "context": {"cluster": "x", "user": "u"}},
            {"name": "b", "context": {"cluster": "y", "user": "u"}},
        ],
        "clusters": [
            {"name": "x", "cluster": {"server": "https://127.0.0.1:1"}},
            {"name": "y", "cluster": {"server": "https://127.0.0.1:2", **cluster}},
        ],
        "users": [{"name": "u", "user": {"client-key": "secret.key"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


def test_credentials_are_a_token_for_the_current_cluster_and_the_owners_to_read(tmp_path: Path) -> None:
    admin = admin_kubeconfig(tmp_path / "admin", **{"certificate-authority": "pki/ca.crt"})
    path = tmp_path / "sender.kubeconfig"
    identity.write_kubeconfig(path, admin, user="sender", token="t0ken")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    config = yaml.safe_load(path.read_text())
    assert config["clusters"][0]["cluster"] == {
        "server": "https://127.0.0.1:2",
        "certificate-authority": str(tmp_path / "pki/ca.crt"),
    }
    assert config["users"] == [{"name": "sender", "user": {"token": "t0ken"}}]
    assert "secret.key" not in path.read_text()
    KubeClient.from_kubeconfig(identity_without_ca(tmp_path))


def identity_without_ca(tmp_path: Path) -> Path:
    path = tmp_path / "plain.kubeconfig"
    identity.write_kubeconfig(path, admin_kubeconfig(tmp_path / "a2"), user="sender", token="t0ken")
    return path


def test_an_embedded_authority_stays(tmp_path: Path) -> None:
    admin = admin_kubeconfig(tmp_path / "admin", **{"certificate-authority-data": "YWJj"})
    path = tmp_path / "x.kubeconfig"
    identity.write_kubeconfig(path, admin, user="setup", token="t")
    assert yaml.safe_load(path.read_text())["clusters"][0]["cluster"]["certificate-authority-data"] == "YWJj"


@pytest.mark.parametrize("text", ["{}", "current-context: c\ncontexts: []\nclusters: []\n", "[]"])
def test_a_kubeconfig_without_its_context_is_the_users_error(tmp_path: Path, text: str) -> None:
    admin = tmp_path / "admin"
    admin.write_text(text)
    with pytest.raises(UsageError, match="current-context"):
        identity.write_kubeconfig(tmp_path / "out", admin, user="u", token="t")
    assert not (tmp_path / "out").exists()


def test_credentials_are_forgotten_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "credentials"
    folder.mkdir()
    for role in Role:
        (folder / f"{role}.kubeconfig").touch()
    (folder / "other").touch()
    identity.forget(folder)
    assert [path.name for path in folder.iterdir()] == ["other"]
    (folder / "other").unlink()
    identity.forget(folder)
    assert not folder.exists()
    identity.forget(folder)


class Answers:
    """A client whose requests get headers."""

    def __init__(self, headers: dict[str, str]) -> None:
        self._headers = headers

    def headers(self, path: str) -> dict[str, str]:
        return self._headers


def test_a_placement_is_in_the_headers_whatever_their_case() -> None:
    headers = {"x-kubernetes-pf-flowschema-uid": "f", "X-Kubernetes-PF-PriorityLevel-UID": "p"}
    found = identity.placement(cast("KubeClient", Answers(headers)))
    assert found == Flow(flow_schema_uid="f", priority_level_uid="p")


def test_answers_without_a_placement_block() -> None:
    with pytest.raises(EnvironmentBlocked, match="says nothing of priority and fairness"):
        identity.placement(cast("KubeClient", Answers({"content-type": "x"})))


def level(name: str, kind: str = "Limited") -> Object:
    return {"metadata": {"name": name, "uid": f"level-{name}"}, "spec": {"type": kind}}


def schema(name: str, leads_to: str) -> Object:
    spec = {"priorityLevelConfiguration": {"name": leads_to}}
    return {"metadata": {"name": name, "uid": f"schema-{name}"}, "spec": spec}


class Levels:
    """A client of a cluster with some levels and schemas, on which nothing can be made."""

    def list(self, resource: Resource) -> list[Object]:
        return {
            PRIORITY_LEVELS.plural: [level("exempt", "Exempt"), level("own", "Exempt"), level("low")],
            FLOW_SCHEMAS.plural: [schema("kwok", "own"), schema("all", "low"), schema("masters", "exempt")],
        }[resource.plural]

    def find(self, resource: Resource, name: str) -> Object | None:
        return next((each for each in self.list(resource) if each["metadata"]["name"] == name), None)


def test_exempt_are_all_levels_of_that_type_and_what_leads_to_them() -> None:
    assert sorted(identity.exempt_uids(cast("KubeClient", Levels()))) == [
        "level-exempt",
        "level-own",
        "schema-kwok",
        "schema-masters",
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none", "the cluster has none of that name; there are: exempt, low, own"),
        ("own", "exempt from all limits"),
    ],
)
def test_a_level_that_is_not_there_or_exempt_is_refused_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, message: str
) -> None:
    monkeypatch.setattr(KubeClient, "from_kubeconfig", lambda path: Levels())
    with pytest.raises(UsageError, match=message):
        identity.establish(tmp_path / "admin", NAMES, tmp_path / "keys", token_seconds=60, sender_level=name)
    assert not (tmp_path / "keys").exists()
