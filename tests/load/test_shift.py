from __future__ import annotations

from load.lost import lost_report
from load.model import Cause, Gap, Timeline, Violation
from load.shift import shift_report
from tests.load.world import orders


def test_moments_move_and_durations_stay() -> None:
    life = Timeline(pod="ns/p", kind="gpu", due=5.0, sent=5.5, cause=Cause.COMPLETED, stages={})
    empty = lost_report(orders(), index=0, count=1, started_at=1.0, until=0.0, reason="")
    report = empty.model_copy(
        update={
            "seconds": 30.0,
            "last_arrival_at": 31.0,
            "drained_at": 40.0,
            "gaps": [Gap(kind="pods", at=7.0, seconds=0.5, relisted=False, reason="cut")],
            "violations": [Violation(invariant="over-quota", at=8.0, object="ns", message="")],
            "timelines": [life],
        }
    )

    moved = shift_report(report, -100.0)

    assert (moved.started_at, moved.last_arrival_at, moved.drained_at) == (-99.0, -69.0, -60.0)
    assert (moved.seconds, moved.gaps[0].at, moved.gaps[0].seconds) == (30.0, -93.0, 0.5)
    assert moved.violations[0].at == -92.0
    assert (moved.timelines[0].due, moved.timelines[0].sent, moved.timelines[0].answered) == (
        -95.0,
        -94.5,
        None,
    )
