"""Restarting components, as far as that can be told without a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from clusters.interface import ClusterProvider
from harness.errors import EnvironmentBlocked
from suites.control import Control
from tests.support.paper import NODE, paper_cluster

CLUSTER = paper_cluster(nodes=(NODE,))


def test_a_cluster_that_is_not_local_can_not_be_changed() -> None:
    with pytest.raises(EnvironmentBlocked) as raised:
        Control(CLUSTER).restart("kube-scheduler", {"DRAFoo": False})
    assert str(raised.value) == "components of a paper cluster can't be restarted from here"


class Restarts:
    """A provider that notes what it is to restart."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, Mapping[str, bool] | None]] = []

    def restart(
        self,
        name: str,
        component: str,
        gates: Mapping[str, bool] | None = None,
        flags: Mapping[str, str] | None = None,
    ) -> None:
        assert flags is None
        self.seen.append((name, component, gates))


@pytest.fixture
def restarts(monkeypatch: pytest.MonkeyPatch) -> Restarts:
    provider = Restarts()
    monkeypatch.setattr(Control, "_provider", lambda _: cast("ClusterProvider", provider))
    return provider


def test_only_components_with_other_gates_are_put_back(restarts: Restarts) -> None:
    control = Control(CLUSTER)
    control.restart("kubelet/node-1", {"DRAFoo": False})
    control.restart("kube-scheduler", {"DRAFoo": True})
    control.restart("kube-apiserver")
    control.restart("kube-controller-manager", {"DRAFoo": True})
    control.restart("kube-controller-manager")
    restarts.seen.clear()
    control.restore()
    assert restarts.seen == [("c", "kube-scheduler", None), ("c", "kubelet/node-1", None)]
    control.restore()
    assert len(restarts.seen) == 2
