"""The command lines that a cluster's components run with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clusters import processes
from clusters.interface import Cluster
from harness.kube import PODS, ApiError, KubeClient


def flags(cluster: Cluster, kube: KubeClient, component: str) -> dict[str, str] | None:
    """The flags of a component of the control plane, without dashes; None where they can't be seen.

    A local cluster's are those of its processes, another's those of the static pods that kubeadm makes.
    """
    if processes.find(cluster.id, component):
        pid = processes.main_pid(cluster.id, component, component)
        return parse(_arguments(pid)) if pid is not None else None
    try:
        pods = kube.list(PODS, "kube-system", labels=f"component={component}")
    except ApiError:
        return None
    for pod in pods:
        (container, *_) = pod["spec"]["containers"]
        return parse([*container.get("command", ()), *container.get("args", ())][1:])
    return None


def parse(arguments: Sequence[str]) -> dict[str, str]:
    """Flags and values of a Go program's arguments; of a flag given twice the last counts.

    A flag without a value, such as --leader-elect, is `true`.
    """
    found = {}
    for position, argument in enumerate(arguments):
        if not argument.startswith("-"):
            continue
        flag, equals, value = argument.lstrip("-").partition("=")
        following = arguments[position + 1] if position + 1 < len(arguments) else "-"
        if not equals and not following.startswith("-"):
            value, equals = following, "="
        found[flag] = value if equals else "true"
    return found


def _arguments(pid: int) -> list[str]:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
    return [word.decode() for word in words[1:] if word]
