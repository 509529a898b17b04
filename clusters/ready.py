"""The event of a cluster that is there."""

from __future__ import annotations

from collections.abc import Mapping

from clusters.existing.reach import explained
from clusters.interface import Cluster
from harness import events
from harness.kube import KubeClient


def cluster_ready(cluster: Cluster, driver: str) -> events.ClusterReady:
    """Say that a cluster is there.

    Args:
        cluster: which.
        driver: the driver under test, in words.

    Raises:
        EnvironmentBlocked: it doesn't say what version it is.
    """
    kube = KubeClient.from_kubeconfig(cluster.kubeconfig)
    with explained(kube.server):
        kubernetes = kube.version()
    return events.ClusterReady(
        at=events.now(),
        name=cluster.name,
        provider=cluster.provider,
        kubernetes=kubernetes,
        profile=cluster.profile,
        nodes=[*(node.name for node in cluster.nodes), *cluster.nodes_elsewhere],
        driver=driver,
        programs=cluster.origin,
        seconds=cluster.seconds,
        phases=_durations(cluster.phases),
    )


def _durations(reached: Mapping[str, float]) -> dict[str, float]:
    """Seconds that each phase took, of the seconds after which each was reached."""
    before = 0.0
    durations = {}
    for phase, seconds in reached.items():
        durations[phase] = round(seconds - before, 2)
        before = seconds
    return durations
