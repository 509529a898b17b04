"""Takes a cluster away by its id alone, from whatever state a crash left it in."""

from __future__ import annotations

import contextlib

import filelock

from clusters import processes
from clusters.local import cgroups, network, state, sysctls
from harness.settings import state_root


def remove(cluster: state.ClusterState) -> None:
    """End the cluster's processes, then remove its network, cgroups and files. Safe to repeat.

    Raises:
        EnvironmentBlocked: something is stuck in the kernel; the state file stays, so it can be tried again.
    """
    processes.kill(cluster.id)
    network.remove_all(cluster.id)
    cgroups.remove(cluster.id)
    with state.machine_lock():
        state.remove(cluster)
        _finish()


def sweep() -> None:
    """Remove what killed runs left: clusters that were not to be kept and whose maker is gone."""
    if not state_root().exists():
        return
    with state.machine_lock():
        orphans = [cluster for cluster in state.load_all() if not cluster.kept and _is_orphan(cluster)]
        _finish()
    for orphan in orphans:
        remove(orphan)


def _is_orphan(cluster: state.ClusterState) -> bool:
    try:
        with state.maker_lock(cluster).acquire(blocking=False):
            return True
    except filelock.Timeout:
        return False


def _finish() -> None:
    if state.tidy():
        sysctls.restore()
        with contextlib.suppress(OSError):  # not empty: something of the user's own is in it
            state_root().rmdir()
