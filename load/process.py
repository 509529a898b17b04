"""The generator's process: started with its orders, followed by its progress, ended by a signal."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pydantic

from clusters import processes
from harness.errors import HarnessError
from load.crew.reception import Bind
from load.model import Orders, Snapshot, WorkerReport

ORDERS = "orders.json"
_REPORT = "generator.json"
_PROGRESS = "progress.ndjson"
_LOG = "generator.log"
_NICENESS = -10
_STOP_SECONDS = 40.0
"""It drains briefly after a signal, and workers have 20 s to report."""


class GeneratorProcess:
    """One generator, for one trial.

    Args:
        orders: what it is told.
        folder: the trial's; made here.
        cluster_id: the mark of the cluster, by which `down` finds the process should this one be killed.
        workers: processes that send.
        web: port of Locust's web UI on loopback.
        master: where to wait for so many workers that others start, instead of sending.
    """

    def __init__(
        self,
        orders: Orders,
        folder: Path,
        cluster_id: str,
        *,
        workers: int = 1,
        web: int | None = None,
        master: Bind | None = None,
    ) -> None:
        self._folder = folder
        self._offset = 0
        self.snapshots: list[Snapshot] = []
        folder.mkdir(parents=True)
        path = folder / ORDERS
        path.write_text(orders.model_dump_json(indent=1) + "\n", encoding="utf-8")
        argv: list[str | Path] = [sys.executable, "-P", "-m", "load.generator", path]
        argv += ["--end-with-parent"]
        if master is not None:
            argv += ["--master", "--expect-workers", str(workers)]
            argv += ["--master-bind-host", master.address, "--master-bind-port", str(master.port)]
        elif workers > 1:
            argv += ["--processes", str(workers)]
        if web is not None:
            argv += ["--web", str(web)]
        self._popen: subprocess.Popen[bytes] = processes.spawn(
            argv, cluster_id=cluster_id, component=f"generator/{folder.name}", log=folder / _LOG
        )
        # A busy control plane must not make the generator late. Without the right to it, it may.
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, self._popen.pid, _NICENESS)

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self._popen.poll() is not None

    def progress(self) -> Sequence[Snapshot]:
        """The snapshots since the last call."""
        try:
            with (self._folder / _PROGRESS).open("rb") as file:
                file.seek(self._offset)
                content = file.read()
        except FileNotFoundError:
            return ()
        whole = content.rfind(b"\n") + 1
        self._offset += whole
        new = [Snapshot.model_validate_json(line) for line in content[:whole].splitlines()]
        self.snapshots += new
        return new

    def interrupt(self) -> None:
        """No more arrivals: it drains briefly and writes its report. Returns once it has ended."""
        if not self.ended:
            self._popen.send_signal(signal.SIGINT)
        try:
            self._popen.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it at once."""
        if not self.ended:
            self._popen.kill()
            self._popen.wait()

    def report(self) -> WorkerReport:
        """What it measured, once it has ended.

        Raises:
            HarnessError: it left no report; the end of its log is in the message.
        """
        self.progress()
        try:
            return WorkerReport.model_validate_json((self._folder / _REPORT).read_bytes())
        except (OSError, pydantic.ValidationError) as error:
            log = processes.tail(self._folder / _LOG)
            raise HarnessError(f"the generator left no report ({error}); its log ends in:\n{log}") from error


class TrialClock:
    """A trial's time, taken from the generator's snapshots."""

    def __init__(self) -> None:
        self._started_at: float | None = None
        self._over = False

    def started(self, at: float) -> None:
        """The generator's own start, on the clock of time.time()."""
        self._started_at = at

    def stop(self) -> None:
        """The trial is over."""
        self._over = True

    @property
    def over(self) -> bool:
        """Whether the generator has ended, or is to."""
        return self._over

    def elapsed(self) -> float:
        """Seconds since the generator's start; negative before."""
        return time.time() - self._started_at if self._started_at is not None else -1.0

    def until(self, elapsed: float) -> bool:
        """Wait for that moment; False if the trial is over before."""
        while not self._over:
            left = elapsed - self.elapsed()
            if self._started_at is not None and left <= 0:
                return True
            time.sleep(min(0.05, left) if self._started_at is not None and left > 0 else 0.05)
        return False

    def pause(self, seconds: float) -> bool:
        """Wait for so long; False if the trial is over before."""
        end = time.monotonic() + seconds
        while not self._over:
            left = end - time.monotonic()
            if left <= 0:
                return True
            time.sleep(min(0.05, left))
        return False
