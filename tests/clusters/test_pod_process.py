"""What pods are given in place of a process's settings, as far as no cluster is needed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusters import driver_host
from clusters.driver_host import HostedDevicePlugin, HostedDriver, HostedProcess
from clusters.driver_pods import PodDevicePlugin, PodDriver
from clusters.interface import Cluster
from clusters.pod_process import namespace_of
from harness.errors import EnvironmentBlocked, HarnessError, RequirementFailed
from harness.labels import DRIVERS
from tests.harness.api_server import status, write_config
from tests.support.api_server import serve
from tests.support.paper import NODE, paper_cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    other = replace(NODE, name="node-2")
    return paper_cluster(nodes=(NODE, other), directory=tmp_path, driver_image="example.com/image:v1")


def settings(process: HostedProcess) -> dict[str, Any]:
    written: dict[str, Any] = json.loads((process.directory / "config.json").read_text())
    return written


def test_a_device_plugin_without_driver_has_so_many_devices_on_each_node(cluster: Cluster) -> None:
    counts = {"node-1": 2, "node-2": 0}
    plugin = driver_host.prepare_device_plugin(cluster, "a.example/b", "run", counts)

    assert isinstance(plugin, PodDevicePlugin)
    assert plugin.values(settings(plugin), 9000) == {
        "control": {"enabled": True},
        "devicePlugin": {
            "enabled": True,
            "only": True,
            "resource": "a.example/b",
            "counts": counts,
            "controlPort": 9000,
        },
    }


def test_processes_of_one_run_have_objects_of_their_own(cluster: Cluster) -> None:
    made = [
        PodDriver("a", cluster, "run"),
        PodDriver("b", cluster, "run"),
        PodDevicePlugin("a", cluster, "run"),
    ]
    assert len({each.release for each in made}) == 3
    assert len({each.namespace for each in made}) == 1
    assert PodDriver("a", cluster, "another run").namespace != made[0].namespace


def test_only_of_a_driver_an_exit_can_mean_that_a_promise_was_broken(cluster: Cluster) -> None:
    for kind in (HostedDriver, PodDriver):
        assert isinstance(kind("d", cluster, "run").failure(1, "refused"), RequirementFailed)
        assert str(kind("d", cluster, "run").failure(2, "what")) == "driver d ended with 2: what"
    for plugin in (HostedDevicePlugin, PodDevicePlugin):
        failure = plugin("a/b", cluster, "run").failure(1, "no socket")
        assert isinstance(failure, HarnessError)
        assert str(failure) == "device plugin a/b ended with 1: no socket"


HELM = """#!/bin/sh
cat <<'END'
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: %s, namespace: %s, labels: {dra-harness.dev/drivers-of: run}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: role, labels: {dra-harness.dev/drivers-of: run}}
END
"""
SPACE = f"/api/v1/namespaces/{namespace_of('run')}"
TAKEN: dict[str, Any] = {"POST /api/v1/namespaces": (409, status(409, "AlreadyExists", "there is one"))}


@pytest.fixture
def answers() -> dict[str, Any]:
    return {}


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def driver(
    tmp_path: Path, answers: dict[str, Any], asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[PodDriver]:
    """A driver for which Helm renders two objects, on a cluster of canned answers."""
    with serve(answers, log=asked) as address:
        config = write_config(tmp_path / "config", address, {"token": "t"})
        where = paper_cluster(
            nodes=(NODE,), directory=tmp_path, driver_image="example.com/i:v1", kubeconfig=config
        )
        made = driver_host.prepare_driver(where, "d", "run")
        assert isinstance(made, PodDriver)
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "helm").write_text(HELM % (made.release, made.namespace))
        (tmp_path / "bin" / "helm").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
        yield made


def writes(asked: list[str]) -> list[str]:
    return [each for each in asked if not each.startswith("GET ")]


@pytest.mark.parametrize(
    "there",
    [
        {"labels": {"team": "theirs"}},
        {"labels": {DRIVERS: "another"}},
        {},
        {"labels": {DRIVERS: "run"}, "deletionTimestamp": "2026-11-30T08:00:00Z"},
        None,
    ],
)
def test_a_namespace_that_is_not_the_runs_or_goes_is_left_alone(
    driver: PodDriver, answers: dict[str, Any], asked: list[str], there: dict[str, Any] | None
) -> None:
    """Also if it has a DaemonSet of that name."""
    answers |= TAKEN
    answers |= {f"GET {SPACE}": {"metadata": there}} if there is not None else {}
    answers[f"GET /apis/apps/v1/namespaces/{driver.namespace}/daemonsets/{driver.release}"] = {"metadata": {}}

    with pytest.raises(EnvironmentBlocked, match="is in the way: it is not of run run, or just being"):
        driver.start()

    assert writes(asked) == ["POST /api/v1/namespaces"]


def test_a_namespace_of_another_driver_of_the_run_is_used(
    driver: PodDriver, answers: dict[str, Any], asked: list[str]
) -> None:
    sets = f"/apis/apps/v1/namespaces/{driver.namespace}/daemonsets"
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    secrets = f"{SPACE}/secrets"
    answers |= TAKEN | {f"GET {SPACE}": {"metadata": {"labels": {DRIVERS: "run"}}}}
    answers |= {f"POST {each}": {"metadata": {"uid": "u"}} for each in (sets, roles, secrets)}

    driver.start()

    assert sorted(writes(asked)[1:]) == sorted(f"POST {each}" for each in (sets, roles, secrets))


def test_what_stops_takes_only_its_own_away(
    driver: PodDriver, answers: dict[str, Any], asked: list[str]
) -> None:
    daemon_set = f"/apis/apps/v1/namespaces/{driver.namespace}/daemonsets/{driver.release}"
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/role"
    answers |= {
        f"GET {daemon_set}": {"metadata": {"name": driver.release, "uid": "u", "labels": {"a": "theirs"}}},
        f"GET {role}": {"metadata": {"name": "role", "uid": "u", "labels": {DRIVERS: "run"}}},
        f"DELETE {role}": {},
        f"GET {SPACE}/pods": {"items": []},
    }

    driver.stop()

    assert writes(asked) == [f"DELETE {role}"]
    assert not driver.directory.exists()
