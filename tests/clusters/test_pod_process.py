"""What pods are given in place of a process's settings, as far as no cluster is needed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusters import driver_host
from clusters.driver_host import HostedDevicePlugin, HostedDriver, HostedProcess
from clusters.driver_pods import PodDevicePlugin, PodDriver
from clusters.interface import Cluster
from harness.errors import HarnessError, RequirementFailed
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
