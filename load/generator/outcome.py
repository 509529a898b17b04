"""What a run leaves behind: `progress.ndjson` while it goes, `generator.json` and an exit code at its end."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from harness.errors import ExitCode
from load.histogram import LatencyHistogram
from load.ledger import add
from load.merge import merge
from load.model import Lateness, Orders, Snapshot, WorkerReport

REPORT = "generator.json"
PROGRESS = "progress.ndjson"

_log = logging.getLogger(__name__)


class Outcome:
    """Gathers the workers' words by their ids, and writes what they come to together."""

    def __init__(self, orders: Orders, folder: Path) -> None:
        self._orders = orders
        self._folder = folder
        self._reports: dict[str, WorkerReport] = {}
        self._left: list[WorkerReport] = []
        """Of workers that were lost."""
        self._faults: list[str] = []
        self._latest: dict[str, Snapshot] = {}
        self._told: set[str] = set()
        self._broken = False
        self._began = time.time()
        self.stopped = False
        """Somebody ended the run early."""
        self.accounted: set[str] = set()
        """Workers of which nothing more is awaited."""

    def fault(self, reason: str) -> None:
        """A reason not to trust the numbers."""
        if reason not in self._faults:
            _log.warning("%s", reason)
            self._faults.append(reason)

    def refused(self, worker: str, reason: str, *, blocked: bool) -> None:
        """A worker can't take part; `blocked`: because of the cluster or its orders, not of itself."""
        self.fault(reason)
        self.accounted.add(worker)
        self._broken |= not blocked

    def lost(self, worker: str, reason: str, left: WorkerReport | None = None) -> None:
        """A worker will not report; `left` accounts for the pods that it had to look after."""
        self.fault(reason)
        self.accounted.add(worker)
        if left is not None:
            self._left.append(left)

    def reported(self, worker: str, report: WorkerReport) -> None:
        """A worker is done."""
        self._reports[worker] = report
        self.accounted.add(worker)

    def progress(self, worker: str, snapshot: Snapshot, *, expected: int) -> None:
        """A worker's snapshot; a line is written once as many have told as are expected to."""
        self._latest[worker] = snapshot
        self._told.add(worker)
        if len(self._told) < expected:
            return
        self._told.clear()
        line = together(list(self._latest.values())).model_dump_json()
        with (self._folder / PROGRESS).open("a") as file:
            file.write(line + "\n")

    def write(self) -> ExitCode:
        """Write the report, whole or not at all, and say how the process should end."""
        reports = [*self._reports.values(), *self._left]
        report = merge(reports) if reports else self._nothing()
        faults = [*self._faults, *report.faults]
        report = report.model_copy(update={"faults": faults, "stopped": self.stopped})
        target = self._folder / REPORT
        partial = target.with_suffix(".partial")
        partial.write_text(report.model_dump_json(indent=1))
        partial.replace(target)
        if self._broken:
            return ExitCode.HARNESS_ERROR
        return ExitCode.BLOCKED if report.faults else ExitCode.PASSED

    def _nothing(self) -> WorkerReport:
        """The report of a run that never began."""
        return WorkerReport(
            workers=0,
            intended=0,
            causes={},
            causes_by_kind={},
            causes_by_namespace={},
            samples=[],
            lateness=Lateness(histogram=LatencyHistogram().encode(), count=0),
            requests=[],
            violations=[],
            gaps=[],
            timelines=[],
            claims_seen=0,
            seconds=0.0,
            cpu_seconds=0.0,
            started_at=self._began,
            last_arrival_at=self._began,
            drained_at=time.time(),
        )


def together(snapshots: Sequence[Snapshot]) -> Snapshot:
    """Several workers' latest snapshots as one; its quantiles are the worst of theirs."""

    def worst(name: str) -> float | None:
        return max((value for each in snapshots if (value := getattr(each, name)) is not None), default=None)

    def total(name: str) -> int:
        return sum(getattr(each, name) for each in snapshots)

    newest = max(snapshots, key=lambda each: each.at)
    return Snapshot(
        at=newest.at,
        elapsed=newest.elapsed,
        phase=newest.phase,
        offered_rate=sum(each.offered_rate for each in snapshots),
        intended=total("intended"),
        accepted=total("accepted"),
        bound=total("bound"),
        completed=total("completed"),
        in_flight=total("in_flight"),
        causes=add(each.causes for each in snapshots),
        bound_p50=worst("bound_p50"),
        bound_p99=worst("bound_p99"),
        lateness_p99=worst("lateness_p99"),
    )
