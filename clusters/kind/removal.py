"""Removing a kind cluster: its processes on this machine, and its containers."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from clusters import processes
from clusters.kind import docker, nodes, tool
from clusters.kind.state import KindState
from harness.errors import EnvironmentBlocked
from harness.waiting import NotYet, WaitTimeout, wait_until

_MAKING_SECONDS = 20.0
_DELETE_SECONDS = 120.0
_BEING_REMOVED = "is already in progress"
"""What the daemon answers when a container is to be removed that it is just removing."""


def remove(found: KindState) -> None:
    """End what was started for the cluster, and have kind delete its nodes. Safe to repeat."""
    _end_making(found)
    processes.kill(found.id)
    if not _daemon_was_purged(found):
        try:
            wait_until(lambda: _deleted(found), _DELETE_SECONDS, "the containers to be gone")
        except WaitTimeout as error:
            raise EnvironmentBlocked(str(error)) from error
    found.remove()


def _end_making(found: KindState) -> None:
    """End kind first, and let its clients come to the end of the containers that they are making.

    The daemon makes a container also for a client that was killed, and until it has, lists none to delete.
    """
    for process in processes.find(found.id, "kind"):
        if process.program == found.kind.name:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
    with contextlib.suppress(WaitTimeout):  # it pulls an image, or the daemon hangs
        wait_until(
            lambda: not _makes_containers(found), _MAKING_SECONDS, "containers to be made", interval=0.1
        )


def _makes_containers(found: KindState) -> bool:
    for process in processes.find(found.id, "kind"):
        with contextlib.suppress(OSError):
            program, *words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
            if os.path.basename(program) == b"docker" and words[0] == b"run":  # noqa: PTH119 - bytes
                return True
    return False


def _deleted(found: KindState) -> bool:
    try:
        _delete(found)
    except EnvironmentBlocked as error:
        if _BEING_REMOVED not in str(error):
            raise
        raise NotYet(error) from error
    return not nodes.containers(found.kind_name, host=found.docker_host)


def _delete(found: KindState) -> None:
    if tool.program(found) is not None:
        tool.run(found, ["delete", "cluster", "--name", found.kind_name], _DELETE_SECONDS)
    elif left := nodes.containers(found.kind_name, host=found.docker_host):  # as kind does it
        docker.run(["rm", "--force", "--volumes", *left], host=found.docker_host)


def _daemon_was_purged(found: KindState) -> bool:
    """Whether the cluster was on the harness's own daemon, and is gone with all that this had."""
    return found.docker_host == docker.own_host() and not docker.directory().exists()
