"""A cluster that is a description only: for code that looks at one and asks nothing of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from clusters.interface import Cluster, Node, Profile

NODE = Node("node-1", Path("/s/k"), "/var/lib/kubelet", Path("/s/cdi"))

_CLUSTER = Cluster(
    name="c",
    provider="paper",
    kubernetes="v1.37.2",
    profile=Profile.GA,
    kubeconfig=Path("/s/admin.kubeconfig"),
    nodes=(),
    directory=Path("/s"),
    gates={},
    id="0a1b2c",
    driver_kubeconfig=Path("/s/driver.kubeconfig"),
)


def paper_cluster(**changes: Any) -> Cluster:
    """The cluster, with some of its fields changed."""
    return replace(_CLUSTER, **changes)
