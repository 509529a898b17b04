"""The logs of a kind cluster's components, as files of this machine."""

from __future__ import annotations

import contextlib
from pathlib import Path

from clusters import processes
from clusters.kind import nodes
from clusters.kind.state import KindState
from harness.errors import EnvironmentBlocked

_UNITS = ("kubelet", "containerd")
_POD_LINE_PARTS = 4


def tail(state: KindState, component: str) -> str:
    """The last lines of a component's log, for an error message."""
    try:
        return processes.tail(write(state, component))
    except EnvironmentBlocked as error:
        return f"(no log: {error})"


def collect(name: str) -> None:
    """Write the logs of all of a cluster's components to its folder `logs`; what can't be had is left out.

    Raises:
        EnvironmentBlocked: none could be had.
    """
    state = KindState.find(name)
    if state is None:
        return
    failed = []
    for component in components(state):
        try:
            write(state, component)
        except EnvironmentBlocked as error:
            failed.append(error)
    if len(failed) == len(components(state)):
        raise failed[0]


def components(state: KindState) -> list[str]:
    """The components that have a log, as `status` names them."""
    static = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]
    return static + [f"{unit}/{node}" for node in state.workers for unit in _UNITS]


def write(state: KindState, component: str) -> Path:
    """Write the log of a component to a file, and return that.

    Raises:
        EnvironmentBlocked: Docker failed.
    """
    program, _, node = component.partition("/")
    path = state.directory / "logs" / f"{component.replace('/', '-')}.log"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if node:
        journal = ["journalctl", "--unit", program, "--no-pager", "--output", "cat"]
        path.write_text(nodes.execute(node, journal), encoding="utf-8")
    else:
        path.write_text("".join(_pod_log(state, program)), encoding="utf-8")
    return path


def _pod_log(state: KindState, component: str) -> list[str]:
    """The lines of all containers that a static pod has had, oldest first, as the program wrote them.

    A line of a CRI log is: time, stream, tag, text.
    """
    pattern = f"kube-system_{component}-{state.control_plane}_*/{component}/*.log"
    found = []
    for path in (state.directory / "pod-logs").glob(pattern):
        with contextlib.suppress(FileNotFoundError):  # the kubelet removes those of old containers
            found.append((path.stat().st_mtime, path.read_text(encoding="utf-8", errors="replace")))
    lines: list[str] = []
    for _, text in sorted(found):
        for line in text.splitlines(keepends=True):
            parts = line.split(" ", _POD_LINE_PARTS - 1)
            lines.append(parts[-1] if len(parts) == _POD_LINE_PARTS else line)
    return lines
