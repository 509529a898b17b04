"""Takes a cluster away by its id alone, from whatever state a crash left it in."""

from __future__ import annotations

import filelock

from clusters import processes
from clusters.local import cgroups, machine, network, state
from harness.errors import UsageError


def take_down(cluster: state.ClusterState, *, force: bool = False) -> None:
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
    try:
        with state.maker_lock(cluster).acquire(blocking=False):
            remove(cluster)
    except filelock.Timeout:
        if not force:
            raise UsageError(
                f"cluster {cluster.name!r} is in use by the process that makes it; end that, or use --force"
            ) from None
        remove(cluster)


def remove(cluster: state.ClusterState) -> None:
    """End the cluster's processes, then remove its network, cgroups and files. Safe to repeat.

    Raises:
        EnvironmentBlocked: something is stuck in the kernel; the state file stays, so it can be tried again.
    """
    processes.kill(cluster.id)
    network.remove_all(cluster.id)
    cgroups.remove(cluster.id)
    with machine.lock():
        machine.unregister(cluster.id)
        state.remove(cluster)
        state.tidy()


def sweep() -> None:
    """Remove what killed runs left: clusters that were not to be kept and whose maker is gone."""
    if not state.clusters_dir().exists():
        return
    with machine.lock():
        orphans = [cluster for cluster in state.load_all() if not cluster.kept and _is_orphan(cluster)]
        state.tidy()
    for orphan in orphans:
        remove(orphan)


def _is_orphan(cluster: state.ClusterState) -> bool:
    try:
        with state.maker_lock(cluster).acquire(blocking=False):
            return True
    except filelock.Timeout:
        return False
