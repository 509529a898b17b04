"""Reports of another machine on this machine's clock."""

from __future__ import annotations

from load.model import Snapshot, Timeline, WorkerReport


def shift_report(report: WorkerReport, seconds: float) -> WorkerReport:
    """The same report with every moment so many seconds later; durations stay what they are.

    A worker measures each latency with one clock, its own, so only moments have to be put right before
    reports of several are merged.
    """
    return report.model_copy(
        update={
            "started_at": report.started_at + seconds,
            "last_arrival_at": report.last_arrival_at + seconds,
            "drained_at": report.drained_at + seconds,
            "violations": [each.model_copy(update={"at": each.at + seconds}) for each in report.violations],
            "gaps": [each.model_copy(update={"at": each.at + seconds}) for each in report.gaps],
            "timelines": [_shift_life(each, seconds) for each in report.timelines],
        }
    )


def shift_snapshot(snapshot: Snapshot, seconds: float) -> Snapshot:
    """The same snapshot, so many seconds later."""
    return snapshot.model_copy(update={"at": snapshot.at + seconds})


def _shift_life(life: Timeline, seconds: float) -> Timeline:
    moments = {"due": life.due, "sent": life.sent, "answered": life.answered}
    return life.model_copy(update={name: at + seconds for name, at in moments.items() if at is not None})
