"""Changing a cluster under the feet of its workloads: for checks marked `exclusive`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from clusters import providers
from clusters.interface import Cluster, ClusterProvider
from harness.errors import HarnessError


class Control:
    """Restarts components of the cluster, and puts them back as they were with the check."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._changed: set[str] = set()

    def restart(self, component: str, gates: Mapping[str, bool] | None = None) -> None:
        """Restart a component with gates on top of the cluster's own; workloads stay.

        Args:
            component: kube-apiserver, kube-scheduler, kube-controller-manager or kubelet/<node>.
            gates: what differs; None gives it the cluster's own gates again.

        Raises:
            EnvironmentBlocked: the cluster's provider can't, or the component did not come back.
        """
        if gates:
            self._changed.add(component)
        else:
            self._changed.discard(component)
        self._provider().restart(self._cluster.name, component, gates)

    def restore(self) -> None:
        """Give every component that was changed the cluster's own gates again."""
        for component in sorted(self._changed):
            self.restart(component)

    def _provider(self) -> ClusterProvider:
        return providers.of(self._cluster)


@pytest.fixture
def control(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Control]:
    """Restarts components. Only for checks marked `exclusive`: everybody else's would suffer."""
    if request.node.get_closest_marker("exclusive") is None:
        raise HarnessError(f"{request.node.nodeid}: a check that restarts components is marked `exclusive`")
    made = Control(cluster)
    yield made
    made.restore()
