"""Runs a plan: pytest in a process of its own, its events in the run's journal."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusters import processes
from harness import events
from harness.errors import HarnessError
from harness.journal import FILE_NAME
from harness.waiting import wait_until
from suites.checks import ISOLATION, SUITES, base_arguments

_STOP_SECONDS = 60.0


@dataclass(frozen=True)
class Execution:
    """How the checks are run."""

    run_dir: Path
    cluster_id: str
    """The mark of the cluster: whoever takes that down ends its checks too."""
    seed: int
    """Of the order of the checks."""
    parallel: int
    """Checks at a time; 1 runs them in one process."""
    quirks: Sequence[str] = ()
    """Seeded faults of every bundled driver, to prove that checks can fail."""


def execute(checks: Sequence[str], execution: Execution, on_event: Callable[[events.Event], None]) -> None:
    """Run checks by their ids, handing on each event as it is journalled.

    Raises:
        HarnessError: pytest could not run them.
        KeyboardInterrupt: passed on after the checks under way have cleaned up.
    """
    log = execution.run_dir / "pytest.log"
    follower = _Follower(execution.run_dir / FILE_NAME, on_event)
    with log.open("wb") as output:
        process = subprocess.Popen(
            _command(checks, execution),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **ISOLATION, **processes.mark(execution.cluster_id, "checks")},
            start_new_session=True,  # Ctrl-C at a terminal ends this process only, which passes it on once
        )
        try:
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=0.2)
                follower.drain()
        except KeyboardInterrupt:
            _signal_all(process, signal.SIGINT)
            with contextlib.suppress(AssertionError):
                wait_until(lambda: process.poll() is not None, _STOP_SECONDS, "the checks to clean up")
            raise
        finally:
            if process.poll() is None:
                _signal_all(process, signal.SIGKILL)
                process.wait()
    follower.drain()
    if process.returncode not in (0, 1) or not follower.handed_on:
        end = log.read_text(errors="replace")[-2000:]
        raise HarnessError(f"pytest ended with {process.returncode}; see {log.name}:\n{end}")


def _signal_all(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal pytest and its workers."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _command(checks: Sequence[str], execution: Execution) -> list[str]:
    command = [sys.executable, "-P", "-m", "pytest", *base_arguments()]
    command += [
        f"--run-dir={execution.run_dir}",
        f"--alluredir={execution.run_dir / 'allure-results'}",
        f"--randomly-seed={execution.seed}",
    ]
    command += [f"--quirk={quirk}" for quirk in execution.quirks]
    if execution.parallel > 1:
        command += ["-n", str(execution.parallel), "--dist", "worksteal"]
    return [*command, *(str(SUITES / check) for check in checks)]


class _Follower:
    """Reads whole new lines of a journal that another process appends to."""

    def __init__(self, path: Path, on_event: Callable[[events.Event], None]) -> None:
        self._path = path
        self._on_event = on_event
        self._offset = path.stat().st_size
        self.handed_on = 0
        """How many events there were."""

    def drain(self) -> None:
        """Hand on everything that is there."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            self.handed_on += 1
            self._on_event(events.parse(line.decode()))
