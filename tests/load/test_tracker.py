"""The stages of a pod's life, and what becomes of one that is not accepted or not finished."""

from __future__ import annotations

import pytest

from load.model import Cause, Stage
from tests.load.scene import Scene, latencies, value
from tests.load.world import kind, orders


def test_a_whole_life_is_measured_from_the_due_time_and_from_the_delete() -> None:
    scene = Scene()
    scene.completed(due=10.0, at=11.0)

    findings = scene.tracker.finish(60.0)

    assert findings.causes == {Cause.COMPLETED: 1}
    assert value(findings, Stage.ACCEPTED) == (10, False)
    assert value(findings, Stage.CLAIM_CREATED) == (800, False)
    assert value(findings, Stage.ALLOCATED) == (900, False)
    assert value(findings, Stage.CLAIM_IN_STATUS) == (1000, False)
    assert value(findings, Stage.BOUND) == (1000, False)
    assert value(findings, Stage.GONE) == (100, False)
    assert value(findings, Stage.RELEASED) == (300, False)
    assert not latencies(findings, Stage.RUNNING).count
    assert findings.claims_seen == 1
    assert not findings.violations
    assert {r.verb: r.by_code for r in findings.requests} == {"create": {"201": 1}, "delete": {"200": 1}}
    life = findings.timelines[0]
    assert (life.pod, life.node, life.devices) == ("ns/r1-w0-gpu-0", "n1", ["d/p/g0"])
    assert life.claims == ["r1-w0-gpu-0-c0"]
    assert life.stages[Stage.RELEASED] == pytest.approx(3.3)


def test_a_pod_is_due_for_deletion_once_when_it_was_held_long_enough() -> None:
    scene = Scene()
    scene.bound(at=1.0)

    assert scene.tracker.next_deletion() == 3.0
    assert scene.tracker.take_due_deletions(2.9) == []
    assert scene.tracker.take_due_deletions(3.0) == [("ns", "r1-w0-gpu-0")]
    assert scene.tracker.take_due_deletions(9.0) == []
    assert scene.tracker.next_deletion() is None


def test_a_delete_that_was_not_carried_out_is_due_again_and_counts_from_the_first() -> None:
    scene = Scene()
    pod, claim = scene.bound(at=1.0)
    name = pod["metadata"]["name"]
    scene.tracker.take_due_deletions(3.0)
    scene.tracker.delete_sent(name, 3.0)
    scene.tracker.delete_answered(name, 3.1, 429)

    assert scene.tracker.take_due_deletions(4.0) == []
    assert scene.tracker.take_due_deletions(4.2) == [("ns", name)]
    scene.deleted(pod, 4.2)
    scene.claim_gone(claim, 4.5)

    findings = scene.tracker.finish(60.0)
    assert value(findings, Stage.GONE) == (1300, False)
    assert {r.verb: r.by_code for r in findings.requests}["delete"] == {"429": 1, "200": 1}


def test_running_is_awaited_where_it_is_the_last_stage() -> None:
    scene = Scene(orders(last_stage=Stage.RUNNING))
    pod, _ = scene.bound(0, at=1.0)
    stuck, _ = scene.bound(1, at=1.0)
    assert scene.tracker.next_deletion() is None

    scene.tracker.pod_event("MODIFIED", scene.world.next(pod, phase="Running"), 4.0)
    failed = scene.world.next(stuck, phase="Failed", message="UnexpectedAdmissionError")
    scene.tracker.pod_event("MODIFIED", failed, 4.0)

    assert scene.tracker.next_deletion() == 6.0
    findings = scene.tracker.finish(20.0)
    assert findings.causes == {Cause.NOT_RELEASED: 1, Cause.NOT_RUNNING: 1}
    running = latencies(findings, Stage.RUNNING)
    assert (running.count, running.censored) == (2, 1)
    assert [t.message for t in findings.timelines if t.cause is Cause.NOT_RUNNING] == [
        "UnexpectedAdmissionError"
    ]


@pytest.mark.parametrize(
    ("status", "reason", "message", "apf", "cause"),
    [
        (429, "TooManyRequests", "", True, Cause.APF_REJECTED),
        (429, "TooManyRequests", "", False, Cause.REFUSED),
        (
            403,
            "Forbidden",
            'pods "x" is forbidden: exceeded quota: q, requested: 1',
            True,
            Cause.QUOTA_DENIED,
        ),
        (403, "Forbidden", 'User "u" cannot create resource "pods"', True, Cause.REFUSED),
        (409, "Conflict", "Operation cannot be fulfilled on resourcequotas", True, Cause.QUOTA_CONFLICT),
        (409, "AlreadyExists", "", True, Cause.REFUSED),
        (422, "Invalid", "", True, Cause.REFUSED),
        (500, "InternalError", "", True, Cause.SERVER_ERROR),
        (504, "Timeout", "", True, Cause.SERVER_ERROR),
        (0, "", "connection refused", False, Cause.UNREACHABLE),
    ],
)
def test_an_answer_that_is_no_success_is_the_cause(
    status: int, reason: str, message: str, apf: bool, cause: Cause
) -> None:
    scene = Scene()
    scene.tracker.answered(scene.sent(), 0.5, status, reason, message, apf)

    findings = scene.tracker.finish(60.0)

    assert findings.causes == {cause: 1}
    assert findings.timelines[0].message == message
    assert findings.timelines[0].status == status
    assert not latencies(findings, Stage.BOUND).count
    assert scene.tracker.open_pods() == 0


@pytest.mark.parametrize(("status", "reason"), [(0, ""), (504, "Timeout"), (409, "AlreadyExists")])
@pytest.mark.parametrize("seen_first", [True, False])
def test_a_pod_that_the_watch_shows_was_made_whatever_the_answer(
    status: int, reason: str, seen_first: bool
) -> None:
    scene = Scene()
    name = scene.sent()
    pod, claim = scene.world.pod(name), scene.world.claim(name)
    if seen_first:
        scene.tracker.pod_event("ADDED", pod, 0.4)
    scene.tracker.answered(name, 0.5, status, reason, "lost")
    if not seen_first:
        scene.tracker.pod_event("ADDED", pod, 0.55)
    assert scene.tracker.open_pods() == 1
    scene.tracker.claim_event("ADDED", claim, 0.6)
    claim = scene.world.allocated(claim, "g")
    scene.tracker.claim_event("MODIFIED", claim, 0.7)
    pod = scene.world.bound(pod)
    scene.tracker.pod_event("MODIFIED", pod, 1.0)
    scene.deleted(pod, 3.0)
    scene.claim_gone(claim, 3.2)

    findings = scene.tracker.finish(60.0)

    assert findings.causes == {Cause.COMPLETED: 1}
    accepted = latencies(findings, Stage.ACCEPTED)
    assert accepted.count == accepted.censored == (1 if status == 0 else 0)
    assert findings.timelines[0].message == ""


def test_what_was_not_sent_is_the_generators_own_fault() -> None:
    scene = Scene()
    scene.tracker.intended("r1-w0-gpu-0", "ns", scene.orders.kinds[0], 0.0)
    scene.tracker.dropped("r1-w0-gpu-0", 0.0)
    scene.tracker.intended("r1-w0-gpu-1", "ns", scene.orders.kinds[0], 0.1)

    findings = scene.tracker.finish(1.0)

    assert findings.causes == {Cause.DROPPED_BY_GENERATOR: 2}
    assert findings.lateness.count == 0


def test_what_was_sent_and_never_answered_is_unreachable_and_censored() -> None:
    scene = Scene()
    scene.sent(due=5.0)

    findings = scene.tracker.finish(35.0)

    assert findings.causes == {Cause.UNREACHABLE: 1}
    assert value(findings, Stage.ACCEPTED) == (30_000, True)


def test_a_retried_create_counts_every_answer_and_only_its_first_lateness() -> None:
    scene = Scene()
    name = scene.sent(due=0.0)
    scene.tracker.retried(name, 0.5, 429)
    scene.tracker.sent(name, 1.5)
    scene.tracker.answered(name, 1.7, 201)

    findings = scene.tracker.finish(60.0)

    assert findings.requests[0].by_code == {"429": 1, "201": 1}
    assert findings.lateness.count == 1
    assert value(findings, Stage.ACCEPTED) == (1700, False)


def test_unfinished_pods_are_told_apart_and_censored_at_the_end_of_the_drain() -> None:
    scene = Scene()
    world, tracker = scene.world, scene.tracker
    scene.accepted(0, due=0.0)
    name = scene.accepted(1, due=1.0)
    tracker.claim_event("ADDED", world.claim(name), 1.5)
    name = scene.accepted(2, due=2.0)
    tracker.claim_event("ADDED", world.allocated(world.claim(name), "g2"), 2.5)
    unschedulable = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    tracker.pod_event("ADDED", world.next(world.pod(name), conditions=[unschedulable]), 2.6)
    pod, _ = scene.bound(3, due=3.0, at=4.0)
    scene.deleted(pod, 6.0)

    findings = tracker.finish(40.0)

    assert findings.causes == {
        Cause.NO_CLAIM: 1,
        Cause.NOT_ALLOCATED: 1,
        Cause.NOT_BOUND: 1,
        Cause.NOT_RELEASED: 1,
    }
    bound, allocated = latencies(findings, Stage.BOUND), latencies(findings, Stage.ALLOCATED)
    assert (bound.count, bound.censored) == (4, 3)
    assert (allocated.count, allocated.censored) == (4, 2)
    assert latencies(findings, Stage.CLAIM_CREATED).censored == 1
    longest = bound.maximum()
    assert longest is not None
    assert longest.at_least
    assert longest.seconds == pytest.approx(40, rel=1e-3)
    assert value(findings, Stage.GONE) == (100, False)
    assert value(findings, Stage.RELEASED) == (34_000, True)
    messages = {life.cause: life.message for life in findings.timelines}
    assert messages[Cause.NOT_BOUND] == "0/3 nodes are available"


def test_a_pod_without_claims_is_done_when_it_is_gone() -> None:
    scene = Scene(orders(kind(claims=0)))
    name = scene.accepted()
    pod = scene.world.bound(scene.world.pod(name))
    scene.tracker.pod_event("ADDED", pod, 0.5)
    scene.deleted(pod, 2.5)

    findings = scene.tracker.finish(60.0)

    assert findings.causes == {Cause.COMPLETED: 1}
    assert {samples.stage for samples in findings.samples} == {Stage.ACCEPTED, Stage.BOUND, Stage.GONE}


def test_two_claims_count_when_both_are_there() -> None:
    scene = Scene(orders(kind(claims=2)))
    world, tracker, name = scene.world, scene.tracker, scene.accepted()
    first, second = world.claim(name, 0), world.claim(name, 1)
    pod = world.pod(name)
    tracker.claim_event("ADDED", first, 0.1)
    tracker.pod_event("ADDED", world.named(pod, "c0"), 0.15)
    first = world.allocated(first, "g0")
    tracker.claim_event("MODIFIED", first, 0.2)
    tracker.claim_event("ADDED", second, 0.3)
    second = world.allocated(second, "g1")
    tracker.claim_event("MODIFIED", second, 0.4)
    pod = world.bound(world.named(pod, "c0", "c1"))
    tracker.pod_event("MODIFIED", pod, 0.5)
    scene.deleted(pod, 2.5)
    scene.claim_gone(first, 2.7)
    assert tracker.open_pods() == 1
    scene.claim_gone(second, 2.9)
    assert tracker.open_pods() == 0

    findings = tracker.finish(60.0)

    assert value(findings, Stage.CLAIM_CREATED) == (100, False)
    assert value(findings, Stage.ALLOCATED) == (400, False)
    assert value(findings, Stage.CLAIM_IN_STATUS) == (500, False)
    assert value(findings, Stage.RELEASED) == (400, False)


def test_an_extended_resource_is_in_status_by_its_own_field() -> None:
    scene = Scene()
    world, tracker, name = scene.world, scene.tracker, scene.accepted()
    tracker.claim_event("ADDED", world.allocated(world.claim(name), "g"), 0.2)
    status = {"resourceClaimName": "c", "requestMappings": []}
    tracker.pod_event("ADDED", world.next(world.pod(name), extendedResourceClaimStatus=status), 0.3)

    findings = tracker.finish(1.0)

    assert value(findings, Stage.CLAIM_IN_STATUS) == (300, False)


def test_where_the_status_decides_a_pod_of_a_device_plugin_needs_no_claim() -> None:
    scene = Scene(orders(kind(claims=1, claims_by_status=True)))
    pod = scene.world.bound(scene.world.pod(scene.accepted(0)))
    scene.tracker.pod_event("ADDED", pod, 0.5)
    scene.deleted(pod, 2.5)
    scene.completed(1)
    scene.accepted(2)

    findings = scene.tracker.finish(60.0)

    assert findings.causes == {Cause.COMPLETED: 2, Cause.NOT_BOUND: 1}
    assert latencies(findings, Stage.BOUND).count == 3
    assert latencies(findings, Stage.ALLOCATED).count == 1
    assert latencies(findings, Stage.RELEASED).count == 1
