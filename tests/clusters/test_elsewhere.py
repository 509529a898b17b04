"""Nodes that are not on this machine, and what a check's own driver made there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clusters.driver_pods import PodDriver, serving_in_pods
from harness.connection import Connection
from harness.errors import EnvironmentBlocked
from harness.kube import RESOURCE_SLICES, KubeClient
from suites.kubelet import Kubelet
from tests.support.paper import NODE, paper_cluster


def test_drivers_in_pods_serve_nodes_elsewhere_whose_folders_are_out_of_reach() -> None:
    served = serving_in_pods(paper_cluster(nodes=(), nodes_elsewhere=("a", "b")), "image:v1")

    assert [node.name for node in served.nodes] == ["a", "b"]
    assert (served.nodes_elsewhere, served.driver_image) == ((), "image:v1")
    with pytest.raises(EnvironmentBlocked, match="needs the directories of a's kubelet"):
        served.nodes[0].require_here()


def test_what_is_adopted_is_deleted_by_its_uid() -> None:
    kube = KubeClient(Connection(None))
    kube.adopt(RESOURCE_SLICES, {"metadata": {"name": "s", "uid": "u"}})

    assert kube.created == {RESOURCE_SLICES.path(name="s"): "u"}


def test_to_play_the_kubelet_takes_the_nodes_sockets() -> None:
    driver = PodDriver("d", paper_cluster(), "run")
    with pytest.raises(EnvironmentBlocked, match="needs the directories of node-1's kubelet"):
        Kubelet(driver, replace(NODE, here=False))
