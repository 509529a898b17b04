"""What is done inside kind's nodes: commands, files and processes of a container."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from clusters.kind import docker

_SECONDS = 60.0


@dataclass(frozen=True)
class Process:
    """A process of a node's container."""

    pid: int
    """On the machine that Docker runs on."""
    arguments: tuple[str, ...]


def execute(node: str, command: Sequence[str], *, stdin: bytes | None = None) -> str:
    """Run a command in a node and return what it wrote to stdout.

    Raises:
        EnvironmentBlocked: Docker or the command failed.
    """
    interactive = ["--interactive"] if stdin is not None else []
    return docker.run(["exec", *interactive, node, *command], stdin=stdin, timeout=_SECONDS)


def read(node: str, path: str) -> str:
    """A file of a node, as text."""
    return execute(node, ["cat", path])


def write(node: str, path: str, content: str) -> None:
    """Replace a file of a node in one step, readable by root only.

    The new one is made in a folder beside: the kubelet takes every file in that of the static pods.
    """
    partial = f"{path.rpartition('/')[0]}/../.dra-harness.partial"
    execute(node, ["install", "--mode=0600", "/dev/stdin", partial], stdin=content.encode())
    execute(node, ["mv", partial, path])


def running(node: str, program: str) -> list[Process]:
    """The processes of a node whose program has this name, oldest first."""
    # -ww: the daemon's ps cuts lines at the COLUMNS that the daemon was started with.
    listed = docker.run(["top", node, "-eo", "pid,args", "-ww"], timeout=_SECONDS)
    found = []
    for line in listed.splitlines()[1:]:
        pid, *arguments = line.split()
        if arguments and arguments[0].rpartition("/")[2] == program:
            found.append(Process(int(pid), tuple(arguments)))
    return sorted(found, key=lambda process: process.pid)


def containers(kind_name: str, *, host: str = "") -> list[str]:
    """The ids of a cluster's containers; also of those that have stopped.

    Args:
        kind_name: what kind calls it.
        host: the daemon, as DOCKER_HOST has it; without it that of `docker.environment`.
    """
    label = f"label=io.x-k8s.kind.cluster={kind_name}"
    return docker.run(["ps", "--all", "--quiet", "--filter", label], host=host).split()


def published(node: str) -> dict[str, int]:
    """The ports of a node that are open on this machine: `10259/tcp` -> the port here."""
    (inspected,) = json.loads(docker.run(["inspect", node]))
    ports: dict[str, list[dict[str, str]] | None] = inspected["NetworkSettings"]["Ports"]
    return {port: int(bound[0]["HostPort"]) for port, bound in ports.items() if bound}
