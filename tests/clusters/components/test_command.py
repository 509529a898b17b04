"""Running a command, with small shell scripts as the commands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clusters.components import command


def run_script(script: str, directory: Path, lines: list[str] | None = None) -> str:
    on_line = (lambda line: None) if lines is None else lines.append
    return command.run(["sh", "-c", script], directory, os.environ, on_line)


def test_both_streams_come_line_by_line_and_as_a_whole(tmp_path: Path) -> None:
    lines: list[str] = []
    assert run_script("echo one; echo two >&2; pwd", tmp_path, lines) == f"one\ntwo\n{tmp_path}\n"
    assert lines == ["one", "two", str(tmp_path)]


def test_a_failure_carries_the_last_lines(tmp_path: Path) -> None:
    with pytest.raises(command.CommandFailed) as raised:
        run_script("seq 1000; exit 3", tmp_path)
    assert raised.value.output.splitlines() == [str(number) for number in range(976, 1001)]


def test_whoever_fails_while_reading_ends_the_command(tmp_path: Path) -> None:
    def on_line(line: str) -> None:
        raise KeyboardInterrupt

    script = f"echo $$ >{tmp_path}/pid; echo line; exec sleep 1000"
    with pytest.raises(KeyboardInterrupt):
        command.run(["sh", "-c", script], tmp_path, os.environ, on_line)
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


@pytest.mark.parametrize(
    ("output", "network", "absent"),
    [
        ("dial tcp 127.0.0.1:9: connect: connection refused", True, False),
        ("lookup example: no such host", True, False),
        ("reading x.info: 404 Not Found", False, True),
        ("reading x.info: 403 Forbidden\nserver response: not available", False, True),
        ("x@v9: unknown revision v9", False, True),
        ("404 Not Found, then dial tcp: i/o timeout", True, False),
        ("main.go:3:1: syntax error", False, False),
    ],
)
def test_failures_are_told_apart(output: str, network: bool, absent: bool) -> None:
    failure = command.CommandFailed(output)
    assert (failure.network, failure.absent) == (network, absent)
