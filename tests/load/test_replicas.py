"""How many API servers there are, by the Leases of their identities."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from harness.kube import KubeClient
from load.replicas import api_servers
from tests.harness.api_server import write_config
from tests.support.api_server import serve

LEASES = "GET /apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


def lease(age: float, seconds: int = 3600) -> dict[str, Any]:
    """A Lease that was renewed so many seconds ago."""
    moment = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age)
    renewed = moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"spec": {"holderIdentity": "apiserver-x", "leaseDurationSeconds": seconds, "renewTime": renewed}}


def counted(tmp_path: Path, answer: Any) -> int | None:
    """What is counted where the server answers so for the Leases."""
    with serve({"GET /version": {"gitVersion": "v1.37.2"}, LEASES: answer}) as address:
        return api_servers(KubeClient.from_kubeconfig(write_config(tmp_path / "c", address, {"token": "t"})))


@pytest.mark.parametrize(
    ("ages", "number"),
    [
        ([], 0),
        ([(5, 3600)], 1),
        ([(5, 3600), (3500, 3600), (9, 3600)], 3),
        ([(5, 3600), (3700, 3600)], 1),
        ([(5, 3600), (30, 15)], 1),
    ],
)
def test_those_count_whose_lease_is_renewed(
    tmp_path: Path, ages: list[tuple[float, int]], number: int
) -> None:
    assert counted(tmp_path, {"items": [lease(*each) for each in ages]}) == number


def test_a_lease_that_was_never_renewed_is_nobodys(tmp_path: Path) -> None:
    assert counted(tmp_path, {"items": [{"spec": {"holderIdentity": "apiserver-x"}}, lease(5)]}) == 1


def test_only_identities_of_api_servers_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Schedulers and controller managers have Leases there too."""
    asked: list[str] = []
    listed = KubeClient.list

    def spy(kube: KubeClient, *about: Any, labels: str = "") -> Any:
        asked.append(labels)
        return listed(kube, *about, labels=labels)

    monkeypatch.setattr(KubeClient, "list", spy)

    assert counted(tmp_path, {"items": [lease(5)]}) == 1
    assert asked == ["apiserver.kubernetes.io/identity=kube-apiserver"]


def test_where_leases_cannot_be_listed_nobody_knows(tmp_path: Path) -> None:
    assert counted(tmp_path, 403) is None
