"""What the tracker leaves out, and what it hands over."""

from __future__ import annotations

import pytest

from harness.errors import HarnessError
from load.model import Cause, Gap, Segment, Stage
from tests.load.scene import Scene, latencies, value
from tests.load.world import kind, orders


def test_news_that_comes_twice_is_news_once() -> None:
    scene = Scene()
    pod, claim = scene.bound(0, at=1.0)
    old_claim = claim
    scene.tracker.pod_event("ADDED", pod, 5.0)
    scene.tracker.claim_event("ADDED", claim, 5.0)
    scene.deleted(pod, 6.0)
    scene.claim_gone(claim, 6.2)
    scene.tracker.pod_event("ADDED", pod, 7.0)
    scene.tracker.claim_event("ADDED", old_claim, 7.0)

    assert scene.tracker.open_pods() == 0
    assert scene.tracker.lingering_claims() == 0
    findings = scene.tracker.finish(60.0)
    assert findings.causes == {Cause.COMPLETED: 1}
    assert findings.claims_seen == 1
    assert value(findings, Stage.BOUND) == (1000, False)
    assert not findings.violations


def test_other_peoples_pods_and_other_events_are_left_alone() -> None:
    scene = Scene()
    name = scene.accepted()
    strange = scene.world.bound(scene.world.pod("someone-else"))
    namesake = scene.world.bound(scene.world.pod(name, namespace="other"))
    scene.tracker.pod_event("ADDED", strange, 1.0)
    scene.tracker.pod_event("ADDED", namesake, 1.0)
    scene.tracker.pod_event("BOOKMARK", {"metadata": {"resourceVersion": "999"}}, 1.0)
    scene.tracker.claim_event("BOOKMARK", {"metadata": {"resourceVersion": "999"}}, 1.0)
    scene.tracker.claim_event("ADDED", scene.world.claim(), 1.0)

    findings = scene.tracker.finish(60.0)

    assert findings.causes == {Cause.NO_CLAIM: 1}
    assert findings.claims_seen == 0


def test_windows_and_phases() -> None:
    plan = orders(
        segments=[
            Segment(seconds=10, start=1, end=1, measured=False),
            Segment(seconds=10, start=1, end=1),
            Segment(seconds=10, start=1, end=1, phase="raised"),
        ]
    )
    scene = Scene(plan)
    scene.completed(0, due=9.0, at=12.0)
    scene.completed(1, due=10.0, at=12.0)
    scene.completed(2, due=25.0, at=26.0)

    findings = scene.tracker.finish(60.0)

    counts = {
        window: latencies(findings, Stage.BOUND, window).count for window in ("warm-up", "measured", "raised")
    }
    assert counts == {"warm-up": 1, "measured": 2, "raised": 1}


def test_kinds_and_namespaces_have_books_of_their_own() -> None:
    scene = Scene(orders(kind("a"), kind("b")))
    scene.tracker.intended("r1-w0-b-0", "other", scene.orders.kinds[1], 0.0)
    scene.tracker.dropped("r1-w0-b-0", 0.0)
    scene.completed(0)

    findings = scene.tracker.finish(60.0)

    assert findings.causes_by_kind == {
        "a": {Cause.COMPLETED: 1},
        "b": {Cause.DROPPED_BY_GENERATOR: 1},
    }
    assert findings.causes_by_namespace == {
        "ns": {Cause.COMPLETED: 1},
        "other": {Cause.DROPPED_BY_GENERATOR: 1},
    }


def test_a_snapshot_counts_those_who_wait_among_the_latencies() -> None:
    scene = Scene()
    scene.completed(0, due=0.0, at=1.0)
    scene.bound(1, due=20.0, at=21.0)
    scene.accepted(2, due=20.0)
    scene.tracker.intended("r1-w0-gpu-9", "ns", scene.orders.kinds[0], 29.0)
    scene.tracker.dropped("r1-w0-gpu-9", 29.0)

    snapshot = scene.tracker.snapshot(30.0, "steady", 12.5)

    assert (snapshot.elapsed, snapshot.phase, snapshot.offered_rate) == (30.0, "steady", 12.5)
    assert (snapshot.intended, snapshot.accepted, snapshot.bound, snapshot.completed) == (4, 3, 2, 1)
    assert snapshot.in_flight == 2
    assert snapshot.causes == {Cause.COMPLETED: 1, Cause.DROPPED_BY_GENERATOR: 1}
    assert snapshot.bound_p50 == pytest.approx(1.0)
    assert snapshot.bound_p99 == pytest.approx(10.0)
    assert snapshot.lateness_p99 == pytest.approx(0.001)


def test_the_tracker_keeps_nothing_of_pods_that_ended_but_the_slowest_and_the_failed() -> None:
    scene = Scene()
    for number in range(60):
        scene.completed(number, due=10.0 * number, at=10.0 * number + 0.5 + (number * 7 % 60) / 10)
    for number in range(60, 360):
        scene.tracker.answered(scene.sent(number, due=700.0), 700.1, 429, "TooManyRequests", "", True)
    scene.tracker.answered(scene.sent(360, due=700.0), 700.2, 403, "Forbidden", "exceeded quota: q")

    assert not vars(scene.tracker)["_pods"]
    findings = scene.tracker.finish(800.0)

    completed = [t for t in findings.timelines if t.cause is Cause.COMPLETED]
    waits = sorted((0.5 + n / 10 for n in range(60)), reverse=True)[:20]
    assert [t.stages[Stage.BOUND] for t in completed] == pytest.approx(waits)
    others = [t.cause for t in findings.timelines if t.cause is not Cause.COMPLETED]
    assert len(others) == 200
    assert others.count(Cause.QUOTA_DENIED) == 1


def test_gaps_are_reported() -> None:
    scene = Scene()
    gap = Gap(kind="pods", at=3.0, seconds=1.5, relisted=True, reason="410 Gone")
    scene.tracker.gap(gap)

    assert scene.tracker.finish(60.0).gaps == [gap]


def test_findings_become_a_workers_report() -> None:
    scene = Scene()
    scene.completed(0)

    report = scene.tracker.finish(60.0).report(
        seconds=10, cpu_seconds=1.5, started_at=0, last_arrival_at=10, drained_at=60
    )

    assert report.intended == 1
    assert report.causes == {Cause.COMPLETED: 1}


def test_calls_that_contradict_the_books_are_refused() -> None:
    scene = Scene()
    name = scene.accepted()
    with pytest.raises(HarnessError, match="known"):
        scene.tracker.intended(name, "ns", scene.orders.kinds[0], 1.0)
    with pytest.raises(HarnessError, match="never intended"):
        scene.tracker.sent("r1-w0-gpu-99", 1.0)
    with pytest.raises(HarnessError, match="no list"):
        scene.tracker.relisted("nodes", [], 1.0)
    scene.tracker.finish(2.0)
    with pytest.raises(HarnessError, match="closed"):
        scene.tracker.intended("r1-w0-gpu-1", "ns", scene.orders.kinds[0], 3.0)
    scene.tracker.answered(name, 3.0, 201)  # a late answer is no fault
