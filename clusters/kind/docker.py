"""The Docker client: which daemon is asked, and how its answers become errors of ours."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from harness.errors import EnvironmentBlocked
from harness.settings import state_root

PID_FILE = "docker.pid"
_TIMEOUT = 600.0


def directory() -> Path:
    """Where the daemon that `dra-harness docker up` starts keeps everything."""
    return state_root() / "docker"


def own_socket() -> Path:
    """The socket of that daemon."""
    return directory() / "docker.sock"


def own_host() -> str:
    """That socket as DOCKER_HOST has it."""
    return f"unix://{own_socket()}"


def pid_file() -> Path:
    """Where that daemon says which process it is."""
    return directory() / PID_FILE


def own_pid() -> int | None:
    """The process of that daemon, if it runs: by its command line, since a number may be another's by now."""
    try:
        number = int(pid_file().read_text())
        words = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return number if (b"--pidfile", os.fsencode(pid_file())) in pairwise(words) else None


def environment() -> dict[str, str]:
    """The environment for docker and kind: the user's DOCKER_HOST, else our daemon if one runs."""
    chosen = dict(os.environ)
    if "DOCKER_HOST" not in chosen and own_pid() is not None:
        chosen["DOCKER_HOST"] = own_host()
    return chosen


def run(
    arguments: Sequence[str | Path],
    *,
    stdin: bytes | None = None,
    timeout: float = _TIMEOUT,
    host: str = "",
) -> str:
    """Run `docker` and return what it wrote to stdout.

    Args:
        arguments: its command line.
        stdin: what it reads.
        timeout: seconds.
        host: the daemon, as DOCKER_HOST has it; without it that of `environment`.

    Raises:
        EnvironmentBlocked: there is no client, or the command failed; the message is docker's.
    """
    command = ["docker", *arguments]
    try:
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            env=environment() | ({"DOCKER_HOST": host} if host else {}),
            check=False,
            timeout=timeout,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentBlocked(f"docker {arguments[0]}: {error}") from error
    if done.returncode:
        message, _, _ = (
            done.stderr.decode(errors="replace").strip().partition("\n\nRun 'docker")
        )  # its advice
        raise EnvironmentBlocked(f"docker {arguments[0]}: {message}")
    return done.stdout.decode(errors="replace")


def context_host() -> str:
    """Where the client's current context leads to, without a DOCKER_HOST; empty where it can't say."""
    try:
        return run(["context", "inspect", "--format", "{{.Endpoints.docker.Host}}"], timeout=20).strip()
    except EnvironmentBlocked:
        return ""


def has_image(tag: str) -> bool:
    """Whether the daemon has an image of this name."""
    return bool(run(["image", "ls", "--quiet", tag]).strip())
