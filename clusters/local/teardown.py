"""Takes a cluster away by its id alone, from whatever state a crash left it in."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from clusters import processes
from clusters.local import cgroups, machine, network
from clusters.local.state import ClusterState, tidy
from clusters.records import STATE_FILE, is_of


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
    _end(cluster.id)
    with machine.lock():
        machine.unregister(cluster.id)
        cluster.remove()
        tidy()


def _end(cluster_id: str) -> None:
    processes.kill(cluster_id)
    network.remove_all(cluster_id)
    cgroups.remove(cluster_id)


def sweep() -> None:
    """Remove what killed runs left: clusters that were not to be kept and whose maker is gone.

    One that another command is just removing is left to that.
    """
    if not ClusterState.folder().exists():
        return
    with contextlib.ExitStack() as held:
        with machine.lock():
            orphans = [cluster for cluster in ClusterState.every() if _take(cluster, held)]
            tidy()
        for orphan in orphans:
            remove(orphan)


def clear_lost() -> None:
    """Clear what is left of clusters whose files are gone, as when somebody removed their folder by hand.

    Raises:
        EnvironmentBlocked: something is stuck in the kernel.
    """
    if not machine.is_readable():
        return
    with machine.lock():
        lost = {each: path for each, path in machine.records().items() if not _is_there(each, path)}
    for cluster_id, record in lost.items():
        _end(cluster_id)
        with machine.lock():
            machine.unregister(cluster_id)
            if record.match(f"{ClusterState.FOLDER}/*/{STATE_FILE}") and not record.exists():
                # What ran until now may have written there again.
                shutil.rmtree(record.parent, ignore_errors=True)
            tidy()


def _is_there(cluster_id: str, record: Path) -> bool:
    """Whether a record is seen from here or by the cluster's processes: a service may have its own /tmp."""
    roots = ["/", *(f"/proc/{process.pid}/root/" for process in processes.find(cluster_id))]
    return any(is_of(Path(f"{root}{record}"), cluster_id) for root in roots)


def _take(cluster: ClusterState, held: contextlib.ExitStack) -> bool:
    """Whether a cluster is an orphan; if so, its maker's lock is `held`. Call with the machine lock held."""
    with contextlib.ExitStack() as own:
        orphaned = own.enter_context(cluster.orphaned())
        if orphaned:
            held.callback(own.pop_all().close)
    return orphaned
