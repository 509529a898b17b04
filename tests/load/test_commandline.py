"""Flags of components, from the arguments of processes and of static pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from clusters import processes
from clusters.interface import Cluster
from harness.kube import ApiError, KubeClient
from load import commandline
from tests.support.paper import paper_cluster

CLUSTER = paper_cluster(id="no-such-cluster")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {}),
        (["--kube-api-qps=20"], {"kube-api-qps": "20"}),
        (["-v=2", "--leader-elect"], {"v": "2", "leader-elect": "true"}),
        (["--kube-api-qps", "20", "--kube-api-burst", "30"], {"kube-api-qps": "20", "kube-api-burst": "30"}),
        (["--kube-api-qps=20", "--kube-api-qps=1000"], {"kube-api-qps": "1000"}),
        (["--feature-gates=A=true,B=false"], {"feature-gates": "A=true,B=false"}),
        (["--empty="], {"empty": ""}),
    ],
)
def test_arguments_are_flags(arguments: list[str], expected: dict[str, str]) -> None:
    assert commandline.parse(arguments) == expected


class Pods:
    def __init__(self, containers: list[dict[str, Any]] | None, status: int = 200) -> None:
        self._containers = containers
        self._status = status

    def list(self, resource: object, namespace: str, *, labels: str) -> list[Any]:
        if self._status != 200:
            raise ApiError("GET", "/", self._status, "{}")
        assert (namespace, labels) == ("kube-system", "component=kube-scheduler")
        return [{"spec": {"containers": self._containers}}] if self._containers else []


def of(pods: Pods) -> dict[str, str] | None:
    return commandline.flags(CLUSTER, cast("KubeClient", pods), "kube-scheduler")


def test_a_static_pods_command_and_arguments_count() -> None:
    assert of(Pods([{"command": ["kube-scheduler", "--v=2"], "args": ["--kube-api-qps=7"]}])) == {
        "v": "2",
        "kube-api-qps": "7",
    }
    assert of(Pods([{"command": ["kube-scheduler"]}])) == {}


def test_what_can_not_be_seen_is_unknown() -> None:
    assert of(Pods(None)) is None
    assert of(Pods(None, status=403)) is None


def test_a_local_processs_own_arguments_count(tmp_path: Path) -> None:
    # The kernel's name of a script's process is its interpreter's: a copy of sleep is a program of its own.
    program = tmp_path / "kube-scheduler"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o700)
    popen = processes.spawn(
        [program, "60"], cluster_id="paper-commandline", component="kube-scheduler", log=tmp_path / "log"
    )
    try:
        cluster = Cluster(**{**vars(CLUSTER), "id": "paper-commandline"})
        assert commandline.flags(cluster, cast("KubeClient", Pods(None)), "kube-scheduler") == {}
    finally:
        popen.kill()
        popen.wait()
