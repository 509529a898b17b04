"""A cluster's processes: started with its mark in their environment, found and ended by that mark.

There are no pid files: a pid can be reused, and a harness killed between `fork` and writing one would
lose the process. The mark is inherited, is there from `exec` on, and names exactly one cluster.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import EnvironmentBlocked
from harness.waiting import wait_until

CLUSTER = "DRA_HARNESS_CLUSTER"
COMPONENT = "DRA_HARNESS_COMPONENT"

_WRAPPERS = frozenset({"nsenter", "unshare"})

_children: set[subprocess.Popen[bytes]] = set()


@dataclass(frozen=True)
class Process:
    """One process that carries a cluster's mark."""

    pid: int
    component: str
    program: str
    """The name of its executable."""


def mark(cluster_id: str, component: str) -> dict[str, str]:
    """The mark, as environment variables."""
    return {CLUSTER: cluster_id, COMPONENT: component}


def spawn(
    argv: Sequence[str | Path],
    *,
    cluster_id: str,
    component: str,
    log: Path,
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, with the mark, appending its output to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.environ.get("HOME", "/"),
        **mark(cluster_id, component),
    }
    with log.open("ab") as output:
        popen = subprocess.Popen(
            [str(arg) for arg in argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd="/",  # a cluster that stays must not hold the folder where it was made
            start_new_session=True,
        )
    _children.add(popen)
    return popen


def find(cluster_id: str, component: str | None = None) -> list[Process]:
    """All live processes with the cluster's mark, or those of one component."""
    wanted = f"{CLUSTER}={cluster_id}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        process = _read(entry, wanted)
        if process and (component is None or process.component == component):
            found.append(process)
    return found


def _read(entry: Path, wanted: bytes) -> Process | None:
    try:
        if entry.stat().st_uid != os.geteuid():
            return None  # anybody can put a mark into their own environment
        variables = (entry / "environ").read_bytes().split(b"\0")
        if wanted not in variables:
            return None
        program = os.path.basename(os.readlink(entry / "exe"))  # noqa: PTH115, PTH119 - "(deleted)" stays text
    except (OSError, ValueError):
        return None  # it ended, or is a kernel thread
    prefix = f"{COMPONENT}=".encode()
    component = next((v[len(prefix) :].decode() for v in variables if v.startswith(prefix)), "")
    return Process(int(entry.name), component, program)


def main_pid(cluster_id: str, component: str, program: str) -> int | None:
    """The pid of a component's program itself, not of a wrapper around it or a shim below it."""
    pids = [p.pid for p in find(cluster_id, component) if p.program == program]
    return min(pids) if pids else None


def kill(cluster_id: str, component: str | None = None, *, grace: float = 0.0) -> None:
    """End the cluster's processes (or one component's), and wait until they are gone, with their sockets.

    Args:
        cluster_id: the mark.
        component: only processes of this component.
        grace: seconds between SIGTERM and SIGKILL; 0 kills at once.

    Raises:
        EnvironmentBlocked: a process outlives SIGKILL by 20 s (stuck in the kernel).
    """
    with contextlib.ExitStack() as stack:
        ending = _Ending(cluster_id, component, stack)
        if grace:
            ending.signal(signal.SIGTERM)
            try:
                wait_until(ending.gone, grace, "processes to stop", interval=0.02)
            except AssertionError:
                pass
            else:
                return

        def killed() -> bool:
            ending.signal(signal.SIGKILL)
            return ending.gone()

        try:
            wait_until(killed, 20, f"processes of {component or 'the cluster'} to be gone", interval=0.02)
        except AssertionError as error:
            raise EnvironmentBlocked(str(error)) from error


class _Ending:
    """Marked processes on their way out, held by pidfd.

    The mark goes before the process does: the kernel drops its memory, the environment with it, and only then
    closes its files, so that a port is still taken when the mark can no longer be found (do_exit in the
    kernel's exit.c). A pidfd is readable once all threads are gone: pidfd_open(2).
    """

    def __init__(self, cluster_id: str, component: str | None, stack: contextlib.ExitStack) -> None:
        self._cluster_id = cluster_id
        self._component = component
        self._stack = stack
        self._held: dict[int, Process] = {}
        self._hold()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all of them, and to those that have come since."""
        self._hold()
        for pidfd, process in self._held.items():
            # A wrapper dies with its child; --kill-child of unshare takes the whole node down at once.
            if number is signal.SIGTERM and process.program in _WRAPPERS:
                continue
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, number)

    def gone(self) -> bool:
        """Whether all have ended, and none has come since."""
        self._hold()
        poll = select.poll()
        for pidfd in self._held:
            poll.register(pidfd, select.POLLIN)
        ended = len(poll.poll(0)) == len(self._held)
        _reap_children()
        return ended

    def _hold(self) -> None:
        known = {process.pid for process in self._held.values()}
        for process in find(self._cluster_id, self._component):
            if process.pid in known:
                continue
            with contextlib.suppress(ProcessLookupError):
                pidfd = os.pidfd_open(process.pid)
                self._stack.callback(os.close, pidfd)
                self._held[pidfd] = process


def _reap_children() -> None:
    """Collect ended children of this process, so that they don't stay as zombies while it lives."""
    for popen in list(_children):
        if popen.poll() is not None:
            _children.discard(popen)


def tail(log: Path, lines: int = 12) -> str:
    """The last lines of a log, for an error message."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return "(no log)"
