"""How the life of a pod ends, in whatever order the news comes."""

from __future__ import annotations

import pytest

from load.model import Cause, Stage
from tests.load.scene import Scene, latencies, value
from tests.load.world import EVICTION


@pytest.mark.parametrize("evicted", [True, False])
def test_a_pod_that_someone_else_deletes_is_evicted_or_vanished(evicted: bool) -> None:
    scene = Scene()
    pod, claim = scene.bound(0, at=1.0)
    if evicted:
        pod = scene.world.next(pod, conditions=[EVICTION])
        scene.tracker.pod_event("MODIFIED", pod, 1.4)
    pod = scene.world.terminating(pod)
    scene.tracker.pod_event("MODIFIED", pod, 1.5)
    # the generator's own delete comes too late to have done it
    scene.deleted(pod, 3.0)
    scene.claim_gone(claim, 3.2)

    findings = scene.tracker.finish(60.0)

    assert findings.causes == {Cause.EVICTED if evicted else Cause.VANISHED: 1}
    assert findings.raced_evictions == 0, "its deletion was seen before ours was sent"
    assert not latencies(findings, Stage.GONE).count
    assert latencies(findings, Stage.BOUND).censored == 0


def test_a_pod_taken_away_before_it_was_bound_is_censored_at_that_moment() -> None:
    scene = Scene()
    pod = scene.world.pod(scene.accepted(due=0.0))
    scene.tracker.pod_event("ADDED", pod, 0.1)
    scene.tracker.pod_event("DELETED", scene.world.next(pod), 7.0)

    findings = scene.tracker.finish(60.0)

    assert findings.causes == {Cause.VANISHED: 1}
    assert value(findings, Stage.BOUND) == (7000, True)


def test_a_condition_that_is_not_true_evicts_nobody() -> None:
    scene = Scene()
    pod, _ = scene.bound(0, at=1.0)
    pod = scene.world.next(pod, conditions=[{**EVICTION, "status": "False"}])
    scene.tracker.pod_event("MODIFIED", pod, 1.4)
    scene.tracker.pod_event("DELETED", scene.world.next(pod), 1.5)

    assert scene.tracker.finish(60.0).causes == {Cause.VANISHED: 1}


def test_a_pod_is_gone_when_it_is_first_seen_to_be() -> None:
    scene = Scene()
    pod = scene.world.pod(scene.sent(due=0.0))
    scene.tracker.pod_event("ADDED", pod, 0.1)
    pod = scene.world.next(pod)
    scene.tracker.pod_event("DELETED", pod, 7.0)
    scene.tracker.pod_event("DELETED", pod, 9.0)
    scene.tracker.answered(scene.name(), 9.5, 201)

    assert value(scene.tracker.finish(60.0), Stage.BOUND) == (7000, True)


def test_an_eviction_during_our_own_delete_changes_nothing() -> None:
    scene = Scene()
    pod, claim = scene.bound(0, at=1.0)
    scene.tracker.delete_sent(pod["metadata"]["name"], 3.0)
    pod = scene.world.terminating(scene.world.next(pod, conditions=[EVICTION]))
    scene.tracker.pod_event("MODIFIED", pod, 3.05)
    scene.deleted(pod, 3.1)
    scene.claim_gone(claim, 3.2)

    findings = scene.tracker.finish(60.0)
    assert findings.causes == {Cause.COMPLETED: 1}


@pytest.mark.parametrize("ours", [True, False])
def test_an_eviction_is_raced_if_we_delete_the_pod_too(ours: bool) -> None:
    scene = Scene()
    pod, claim = scene.bound(0, at=1.0)
    pod = scene.world.next(pod, conditions=[EVICTION])
    scene.tracker.pod_event("MODIFIED", pod, 3.0)
    if ours:
        scene.tracker.delete_sent(pod["metadata"]["name"], 3.05)
    # without a grace period the timestamp comes with the end
    scene.tracker.pod_event("DELETED", scene.world.terminating(pod), 3.1)
    scene.claim_gone(claim, 3.2)

    findings = scene.tracker.finish(60.0)
    assert findings.causes == {Cause.EVICTED: 1}
    assert findings.raced_evictions == int(ours)


def test_the_books_wait_for_the_answer_of_a_pod_that_is_gone_already() -> None:
    scene = Scene()
    name = scene.sent(due=0.0)
    world, tracker = scene.world, scene.tracker
    claim = world.allocated(world.claim(name), "g")
    tracker.claim_event("ADDED", claim, 0.1)
    pod = world.bound(world.pod(name))
    tracker.pod_event("ADDED", pod, 0.2)
    scene.deleted(pod, 2.2)
    scene.claim_gone(claim, 2.4)
    assert tracker.open_pods() == 1

    tracker.answered(name, 2.6, 201)

    assert tracker.open_pods() == 0
    assert value(tracker.finish(60.0), Stage.ACCEPTED) == (2600, False)


def test_a_pod_that_went_without_an_answer_to_its_create_is_complete_at_the_end() -> None:
    scene = Scene()
    name = scene.sent()
    claim = scene.world.allocated(scene.world.claim(name), "g")
    scene.tracker.claim_event("ADDED", claim, 0.1)
    pod = scene.world.bound(scene.world.pod(name))
    scene.tracker.pod_event("ADDED", pod, 0.2)
    scene.deleted(pod, 2.2)
    scene.claim_gone(claim, 2.4)

    assert scene.tracker.finish(60.0).causes == {Cause.COMPLETED: 1}


def test_news_of_claims_may_come_after_the_pod_was_deleted() -> None:
    scene = Scene()
    world, tracker, name = scene.world, scene.tracker, scene.accepted()
    created = world.claim(name)
    allocated = world.allocated(created, "g")
    pod = world.bound(world.named(world.pod(name), created["metadata"]["name"]))
    released = world.released(allocated)
    tracker.pod_event("ADDED", pod, 0.5)
    scene.deleted(pod, 2.5)
    assert tracker.open_pods() == 1

    tracker.claim_event("ADDED", created, 3.0)
    assert tracker.open_pods() == 1, "a claim without reservation that never had one is not released"
    tracker.claim_event("MODIFIED", allocated, 3.1)
    tracker.claim_event("MODIFIED", released, 3.2)

    assert tracker.open_pods() == 0
    assert value(tracker.finish(60.0), Stage.RELEASED) == (700, False)


def test_a_stage_that_was_passed_unseen_is_neither_a_sample_nor_censored() -> None:
    scene = Scene()
    pod = scene.world.bound(scene.world.pod(scene.accepted()))
    scene.tracker.pod_event("ADDED", pod, 0.5)

    findings = scene.tracker.finish(60.0)

    assert findings.causes == {Cause.NOT_RELEASED: 1}
    assert not latencies(findings, Stage.ALLOCATED).count


def test_a_bound_pod_keeps_no_old_complaint_of_the_scheduler() -> None:
    scene = Scene()
    unschedulable = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    waiting = scene.world.next(scene.world.pod(scene.accepted()), conditions=[unschedulable])
    for obj in (waiting, scene.world.bound(waiting), waiting):
        scene.tracker.pod_event("MODIFIED", obj, 1.0)

    assert scene.tracker.finish(60.0).timelines[0].message == ""
