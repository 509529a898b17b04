"""Whether nodes are Ready and take pods."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from clusters.node_ready import all_take_pods, keeps_pods_away, not_ready
from harness.kube import KubeClient, Object
from harness.waiting import NotYet
from tests.harness.api_server import write_config
from tests.support.api_server import serve

READY = {"type": "Ready", "status": "True", "message": "kubelet is posting ready status"}
ILL = {"type": "Ready", "status": "False", "message": "no CNI config"}
PRESSURE = {"type": "MemoryPressure", "status": "True"}


def node(name: str = "node-1", *conditions: Object, **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": list(conditions)}}


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (node("a", PRESSURE, READY), ""),
        (node("a", ILL), "no CNI config"),
        (node("a", {"type": "Ready", "status": "Unknown"}), "its kubelet has not said that it is Ready"),
        (node("a", PRESSURE), "its kubelet has not said that it is Ready"),
        ({"metadata": {"name": "new"}}, "its kubelet has not said that it is Ready"),
    ],
)
def test_why_a_node_is_not_ready(found: Object, reason: str) -> None:
    assert not_ready(found) == reason


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({}, ""),
        ({"taints": [{"key": "soft", "effect": "PreferNoSchedule"}]}, ""),
        (
            {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}]},
            "tainted ['a', 'b']",
        ),
        ({"unschedulable": True}, "cordoned"),
    ],
)
def test_what_keeps_pods_away(spec: Object, reason: str) -> None:
    assert keeps_pods_away({"spec": spec}) == reason


def test_all_of_the_nodes_that_are_asked_for_have_to_take_pods(tmp_path: Path) -> None:
    nodes = [
        node("good", READY),
        node("also-good", READY),
        node("ill", ILL),
        node("plane", READY, taints=[{"key": "control-plane", "effect": "NoSchedule"}]),
    ]
    with serve({"GET /api/v1/nodes": {"items": nodes}}) as server:
        kube = KubeClient.from_kubeconfig(write_config(tmp_path / "config", server, {"token": "t"}))
        assert all_take_pods(kube, ["good", "also-good"])
        for name, reason in {
            "ill": "ill: no CNI config",
            "plane": "plane: tainted ['control-plane']",
            "none": "none is not registered",
        }.items():
            with pytest.raises(NotYet, match=re.escape(reason)):
                all_take_pods(kube, ["good", name])
