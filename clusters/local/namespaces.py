"""PID and mount namespaces held by an init process of ours, and how other processes get into them.

When the init process dies, the kernel ends everything inside and drops its mounts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from clusters import processes
from clusters.local.layout import Layout
from harness.errors import EnvironmentBlocked
from harness.waiting import WaitTimeout, wait_until

_START_SECONDS = 20.0
_NAMESPACES = ("--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")


def start(layout: Layout, owner: str, binds: Mapping[Path, str]) -> None:
    """Start the init process of `owner`, with each source of `binds` mounted over its target; wait for it.

    Raises:
        EnvironmentBlocked: it ended, or was not ready in time; the end of its log is in the message.
    """
    component = _component(owner)
    ready = layout.state.directory / f"init-ready-{owner}"
    popen = processes.spawn(
        [
            "unshare",
            *_NAMESPACES,
            "--",
            layout.programs["node-init"],
            "--proc",
            *("--ready", ready),
            *(f"--bind={source}={target}" for source, target in binds.items()),
        ],
        cluster_id=layout.state.id,
        component=component,
        log=layout.log(component),
    )

    def is_ready() -> bool:
        if popen.poll() is not None:
            raise EnvironmentBlocked(f"{component} ended: {processes.tail(layout.log(component))}")
        return ready.exists()

    try:
        wait_until(is_ready, _START_SECONDS, f"the namespaces of {owner}", interval=0.02)
    except WaitTimeout as error:
        raise EnvironmentBlocked(f"{error}\n{processes.tail(layout.log(component))}") from error


def enter(layout: Layout, owner: str) -> list[str]:
    """The command that runs what follows it inside.

    Raises:
        EnvironmentBlocked: the init process is gone.
    """
    init = processes.main_pid(layout.state.id, _component(owner), "node-init")
    if init is None:
        raise EnvironmentBlocked(f"the init process of {owner} is gone")
    return ["nsenter", "--target", str(init), "--mount", "--pid", "--"]


def _component(owner: str) -> str:
    return f"node-init/{owner}"
