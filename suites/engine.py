"""Runs a plan: pytest in a process of its own, its events in the run's journal."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusters import processes
from clusters.interface import Cluster
from harness import events
from harness.errors import HarnessError
from harness.journal import FILE_NAME
from harness.waiting import wait_until
from suites import target
from suites.checks import ISOLATION, SUITES, base_arguments

_STOP_SECONDS = 60.0
POLL_SECONDS = 0.2
"""How often to look for new events while checks run."""


@dataclass(frozen=True)
class Execution:
    """How checks are run."""

    run_dir: Path
    cluster: Cluster
    """As the checks are to see it. Its mark is theirs: whoever takes the cluster down ends its checks too."""
    seed: int
    """Of the order of the checks."""
    parallel: int
    """Checks at a time; 1 runs them in one process."""
    quirks: Sequence[str] = ()
    """Seeded faults of every bundled driver, to prove that checks can fail."""


class Running:
    """Checks under way."""

    def __init__(self, checks: Sequence[str], execution: Execution) -> None:
        """Start checks by their ids."""
        self._checks = checks
        self._log = execution.run_dir / f"pytest-{execution.cluster.name}.log"
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                _command(checks, execution),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **ISOLATION, **processes.mark(execution.cluster.id, "checks")},
                start_new_session=True,  # Ctrl-C at a terminal comes to us alone; it is passed on once
            )

    def ended(self, seconds: float = 0.0) -> bool:
        """Whether all checks have ended, after waiting so long for it at most."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=seconds)
        return self._process.poll() is not None

    def interrupt(self) -> None:
        """Tell the checks under way to clean up and end."""
        self._signal(signal.SIGINT)

    def stop(self) -> None:
        """Wait until interrupted checks have cleaned up; end what has not by then."""
        try:
            with contextlib.suppress(AssertionError):
                wait_until(self.ended, _STOP_SECONDS, "the checks to clean up")
        finally:
            if not self.ended():
                self._signal(signal.SIGKILL)
                self._process.wait()

    def verify(self, started: Collection[str]) -> None:
        """Require that pytest did its work.

        Args:
            started: all checks of which there are events.

        Raises:
            HarnessError: pytest could not run the checks; its last words are in the message.
        """
        if self._process.returncode not in (0, 1) or not any(
            name.startswith(tuple(self._checks)) for name in started
        ):
            end = self._log.read_text(errors="replace")[-2000:]
            raise HarnessError(f"pytest ended with {self._process.returncode}; see {self._log.name}:\n{end}")

    def _signal(self, number: signal.Signals) -> None:
        """Signal pytest and its workers."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def execute(checks: Sequence[str], execution: Execution, on_event: Callable[[events.Event], None]) -> None:
    """Run checks by their ids to their end, handing on each event as it is journalled.

    Raises:
        HarnessError: pytest could not run them.
        KeyboardInterrupt: passed on after the checks under way have cleaned up.
    """
    follower = Follower(execution.run_dir / FILE_NAME, on_event)
    running = Running(checks, execution)
    try:
        while not running.ended(POLL_SECONDS):
            follower.drain()
    except BaseException:
        running.interrupt()
        raise
    finally:
        running.stop()
    follower.drain()
    running.verify(follower.started)


def _command(checks: Sequence[str], execution: Execution) -> list[str]:
    command = [sys.executable, "-P", "-m", "pytest", *base_arguments()]
    command += [
        f"--run-dir={execution.run_dir}",
        f"--cluster-file={target.write_cluster(execution.run_dir, execution.cluster)}",
        f"--alluredir={execution.run_dir / 'allure-results'}",
        f"--randomly-seed={execution.seed}",
        f"--parent={os.getpid()}",
    ]
    command += [f"--quirk={quirk}" for quirk in execution.quirks]
    if execution.parallel > 1:
        command += ["-n", str(execution.parallel), "--dist", "worksteal"]
    return [*command, *(str(SUITES / check) for check in checks)]


class Follower:
    """Reads whole new lines of a journal that other processes append to."""

    def __init__(self, path: Path, on_event: Callable[[events.Event], None]) -> None:
        self._path = path
        self._on_event = on_event
        self._offset = path.stat().st_size if path.exists() else 0
        self.started: set[str] = set()
        """Checks that have begun."""

    def drain(self) -> None:
        """Hand on everything that is there."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            event = events.parse(line.decode())
            if isinstance(event, events.CheckStarted):
                self.started.add(event.check)
            self._on_event(event)
