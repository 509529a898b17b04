"""Runs `go` with its output read line by line."""

from __future__ import annotations

import collections
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_KEPT_LINES = 25
_NETWORK_SIGNS = (
    "dial tcp",
    "no such host",
    "i/o timeout",
    "connection refused",
    "connection reset",
    "TLS handshake",
    "proxyconnect",
    "context deadline exceeded",
)
_ABSENT_SIGNS = ("404 Not Found", "410 Gone", "403 Forbidden", "unknown revision", "invalid version")


class CommandFailed(Exception):
    """The command ended in an error; carries the last lines that it wrote."""

    def __init__(self, output: str) -> None:
        super().__init__(output)
        self.output = output

    @property
    def network(self) -> bool:
        """Whether it failed because a server couldn't be reached."""
        return any(sign in self.output for sign in _NETWORK_SIGNS)

    @property
    def absent(self) -> bool:
        """Whether a server answered that it has no such module version."""
        return not self.network and any(sign in self.output for sign in _ABSENT_SIGNS)


def run(
    command: Sequence[str | Path],
    directory: Path,
    environment: Mapping[str, str],
    on_line: Callable[[str], None] = lambda line: None,
) -> str:
    """Run a command and return what it wrote to stdout and stderr together.

    Args:
        command: the program and its arguments.
        directory: where it runs.
        environment: all of its environment.
        on_line: called with each line as it comes.

    Raises:
        CommandFailed: if it exits with anything but 0.
    """
    lines = []
    with subprocess.Popen(
        command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line)
                on_line(line.rstrip("\n"))
        except BaseException:
            process.send_signal(signal.SIGINT)
            raise
    if process.returncode != 0:
        raise CommandFailed("".join(collections.deque(lines, _KEPT_LINES)).strip())
    return "".join(lines)
