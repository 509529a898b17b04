from __future__ import annotations

from typing import Any

import pytest

from harness.errors import HarnessError
from load.histogram import LatencyHistogram
from load.merge import merge
from load.model import Cause, Flow, Gap, Lateness, Stage, Violation, WorkerReport
from tests.load.scene import Scene
from tests.load.world import orders


def _report(completed: int, refused: int, *, start: float = 100.0, **more: Any) -> WorkerReport:
    """What a worker makes of so many pods, each bound a tenth of a second later than the one before."""
    scene = Scene(orders())
    for number in range(completed):
        scene.completed(number, due=10.0 * number, at=10.0 * number + 0.1 * (number + 1) + 0.3)
    for number in range(completed, completed + refused):
        scene.tracker.answered(scene.sent(number), 0.2, 429, "TooManyRequests", "", True)
    findings = scene.tracker.finish(10_000.0)
    rest: dict[str, Any] = {
        "seconds": 30.0,
        "cpu_seconds": 1.5,
        "started_at": start,
        "last_arrival_at": start + 30,
        "drained_at": start + 40,
        "flow": Flow(flow_schema_uid="f", priority_level_uid="l"),
    }
    return findings.report(**{**rest, **more})


def test_counts_add_up() -> None:
    merged = merge(
        [
            _report(3, 2, retry_after={"1": 2}, raced_evictions=1),
            _report(4, 0, start=99.0, retry_after={"1": 1}, raced_evictions=2),
        ]
    )

    assert merged.raced_evictions == 3
    assert merged.workers == 2
    assert merged.intended == 9
    assert merged.causes == {Cause.COMPLETED: 7, Cause.APF_REJECTED: 2}
    assert merged.causes_by_kind == {"gpu": merged.causes}
    assert merged.causes_by_namespace == {"ns": merged.causes}
    assert {r.verb: r.by_code for r in merged.requests} == {
        "create": {"201": 7, "429": 2},
        "delete": {"200": 7},
    }
    assert merged.retry_after == {"1": 3}
    assert merged.claims_seen == 7
    assert merged.cpu_seconds == 3.0
    assert (merged.started_at, merged.last_arrival_at, merged.drained_at) == (99.0, 130.0, 140.0)
    assert merged.seconds == 31.0
    assert merged.flow == Flow(flow_schema_uid="f", priority_level_uid="l")
    assert merged.faults == []
    assert merged.lateness.count == 9


def test_the_latencies_of_all_are_one_distribution() -> None:
    merged = merge([_report(3, 0), _report(5, 0)])

    bound = [s for s in merged.samples if s.stage is Stage.BOUND]
    assert len(bound) == 1
    assert bound[0].count == 8
    # 0.4, 0.5, 0.6 of the one, 0.4 to 0.8 of the other
    histogram = LatencyHistogram.of(bound)
    seen = [histogram.quantile(share / 8) for share in range(1, 9)]
    assert [round(q.seconds, 2) for q in seen if q] == [0.4, 0.4, 0.5, 0.5, 0.6, 0.6, 0.7, 0.8]


def test_the_slowest_of_all_and_some_of_every_cause_are_kept() -> None:
    merged = merge([_report(25, 150), _report(15, 150)])

    completed = [t for t in merged.timelines if t.cause is Cause.COMPLETED]
    waits = sorted([0.4 + 0.1 * n for n in range(25)] + [0.4 + 0.1 * n for n in range(15)], reverse=True)
    assert [t.stages[Stage.BOUND] for t in completed] == pytest.approx(waits[:20])
    assert len(merged.timelines) == 220


def test_what_two_workers_saw_of_one_namespace_is_told_once() -> None:
    seen = Violation(invariant="over-quota", at=5.0, object="ns/c", message="6 of 4")
    also = seen.model_copy(update={"at": 4.0})
    other = Violation(invariant="duplicate-claim", at=1.0, object="ns/d", message="2 of 1")

    late = seen.model_copy(update={"at": 6.0})
    merged = merge([_report(1, 0, violations=found) for found in ([seen, other], [also], [late])])

    assert merged.violations == [other, also]


def test_gaps_come_in_order_and_faults_once() -> None:
    late, early = (Gap(kind="pods", at=at, seconds=1, relisted=False, reason="closed") for at in (9.0, 3.0))

    merged = merge([_report(1, 0, gaps=[late], faults=["a"]), _report(1, 0, gaps=[early], faults=["a", "b"])])

    assert merged.gaps == [early, late]
    assert merged.faults == ["a", "b"]


def test_workers_in_different_flows_are_not_one_measurement() -> None:
    other = Flow(flow_schema_uid="g", priority_level_uid="l")

    merged = merge([_report(1, 0), _report(1, 0, flow=other)])

    assert len(merged.faults) == 1
    assert "2 different flows" in merged.faults[0]


def test_a_report_merged_alone_or_again_stays_the_same() -> None:
    one, two, three = _report(3, 1), _report(2, 2), _report(1, 0)

    at_once = merge([one, two, three])
    in_steps = merge([merge([one, two]), three])

    assert at_once == in_steps
    assert merge([at_once]) == at_once


def test_books_that_are_not_closed_are_not_merged() -> None:
    bad = _report(3, 1).model_copy(update={"intended": 5})

    with pytest.raises(HarnessError, match="5 pods were intended, 4 have a cause"):
        merge([_report(1, 0), bad])


def test_without_reports_there_is_nothing_to_merge() -> None:
    with pytest.raises(HarnessError, match="no generator process"):
        merge([])


def test_a_broken_histogram_is_an_error_not_a_number() -> None:
    bad = _report(1, 0, lateness=Lateness(histogram="broken", count=1))

    with pytest.raises(HarnessError, match="HDR"):
        merge([bad])
