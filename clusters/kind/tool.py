"""The program kind, run for a cluster of ours."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from clusters import processes
from clusters.kind import docker
from clusters.kind.state import KindState
from harness.errors import EnvironmentBlocked


def run(of: KindState, arguments: Sequence[str | Path], seconds: float, stdin: str | None = None) -> None:
    """Run kind; its kubeconfig is one of ours, so the user's own is never touched.

    Args:
        of: the cluster.
        arguments: a group, a command, and the rest of the command line.
        seconds: how long it may take.
        stdin: what it reads.

    Raises:
        EnvironmentBlocked: it failed; the message is kind's.
    """
    own: list[str | Path] = ["--kubeconfig", of.kubeconfig("kind")] if arguments[1] == "cluster" else []
    try:
        done = subprocess.run(
            [program(of) or of.kind, *arguments, *own],
            input=stdin,
            capture_output=True,
            text=True,
            env=docker.environment()
            | {"KIND_EXPERIMENTAL_PROVIDER": "docker"}
            | _host(of)
            # Should this process be killed, kind goes on: by the mark `down` finds it and its clients.
            | processes.mark(of.id, "kind"),
            check=False,
            timeout=seconds,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentBlocked(f"kind {arguments[0]}: {error}") from error
    if done.returncode:
        raise EnvironmentBlocked(f"kind {arguments[0]} {arguments[1]}: {done.stderr.strip()[-3000:]}")


def _host(of: KindState) -> dict[str, str]:
    return {"DOCKER_HOST": of.docker_host} if of.docker_host else {}


def program(of: KindState) -> str | None:
    """The kind that made a cluster; once that is gone, the one on PATH, if there is one."""
    return str(of.kind) if of.kind.exists() else shutil.which("kind")
