"""Takes a cluster away by its id alone, from whatever state a crash left it in."""

from __future__ import annotations

from clusters import processes
from clusters.local import cgroups, machine, network
from clusters.local.state import ClusterState, tidy


def take_down(cluster: ClusterState, *, force: bool = False) -> None:
    """Remove a cluster that nobody is using.

    Args:
        cluster: the cluster.
        force: also if another process is bringing it up or running checks on it as its own.

    Raises:
        UsageError: another process is using it.
        EnvironmentBlocked: see `remove`.
    """
    if not cluster.directory.exists():
        return
    with cluster.taken(force=force):
        remove(cluster)


def remove(cluster: ClusterState) -> None:
    """End the cluster's processes, then remove its network, cgroups and files. Safe to repeat.

    Raises:
        EnvironmentBlocked: something is stuck in the kernel; the state file stays, so it can be tried again.
    """
    processes.kill(cluster.id)
    network.remove_all(cluster.id)
    cgroups.remove(cluster.id)
    with machine.lock():
        machine.unregister(cluster.id)
        cluster.remove()
        tidy()


def sweep() -> None:
    """Remove what killed runs left: clusters that were not to be kept and whose maker is gone."""
    if not ClusterState.folder().exists():
        return
    with machine.lock():
        orphans = [cluster for cluster in ClusterState.every() if _is_orphan(cluster)]
        tidy()
    for orphan in orphans:
        remove(orphan)


def _is_orphan(cluster: ClusterState) -> bool:
    with cluster.orphaned() as orphaned:
        return orphaned
