"""What the tracker makes of lists that come after a gap in a watch."""

from __future__ import annotations

from load.model import Cause, Stage
from tests.load.scene import Scene, latencies, value
from tests.load.world import kind, orders


def test_what_happened_in_the_gap_counts_when_the_list_shows_it() -> None:
    scene = Scene()
    world, tracker, name = scene.world, scene.tracker, scene.accepted()
    claim = world.allocated(world.claim(name), "g")
    pod = world.bound(world.named(world.pod(name), claim["metadata"]["name"]))

    tracker.relisted("claims", [claim], 4.0)
    tracker.relisted("pods", [pod], 5.0)

    assert tracker.next_deletion() == 7.0
    findings = tracker.finish(60.0)
    assert value(findings, Stage.ALLOCATED) == (4000, False)
    assert value(findings, Stage.BOUND) == (5000, False)


def test_a_pod_that_is_missing_went_by_our_delete_or_vanished() -> None:
    scene = Scene()
    deleted, claim = scene.bound(0, at=1.0)
    scene.bound(1, at=1.0)
    scene.tracker.delete_sent(deleted["metadata"]["name"], 3.0)
    scene.claim_gone(claim, 3.5)

    scene.tracker.relisted("pods", [], 4.0)

    findings = scene.tracker.finish(5.0)
    assert findings.causes == {Cause.COMPLETED: 1, Cause.VANISHED: 1}
    assert value(findings, Stage.GONE) == (1000, False)


def test_a_pod_made_after_the_list_was_asked_for_is_not_missed() -> None:
    scene = Scene()
    scene.accepted(0, due=0.0)
    scene.accepted(1, due=3.0)

    scene.tracker.relisted("pods", [], 4.0, began=2.0)
    assert scene.tracker.open_pods() == 1

    assert scene.tracker.finish(60.0).causes == {Cause.VANISHED: 1, Cause.NO_CLAIM: 1}


def test_a_list_without_its_beginning_says_nothing_of_pods_never_seen() -> None:
    scene = Scene()
    scene.accepted(0, due=0.0)

    scene.tracker.relisted("pods", [], 4.0)

    assert scene.tracker.open_pods() == 1


def test_a_list_of_one_namespace_says_nothing_of_the_others() -> None:
    scene = Scene(orders(kind(namespaces=["ns", "other"])))
    pod, claim = scene.bound(0, at=1.0)

    scene.tracker.relisted("pods", [], 4.0, namespaces=["other"])
    scene.tracker.relisted("claims", [], 4.0, namespaces=["other"])

    assert scene.tracker.open_pods() == 1
    scene.deleted(pod, 5.0)
    assert scene.tracker.open_pods() == 1, "its claim is still there"
    scene.claim_gone(claim, 5.2)
    assert scene.tracker.open_pods() == 0


def test_a_claim_that_is_missing_is_released() -> None:
    scene = Scene()
    pod, _ = scene.bound(0, at=1.0)
    scene.deleted(pod, 3.0)

    scene.tracker.relisted("claims", [], 5.0)

    findings = scene.tracker.finish(60.0)
    assert findings.causes == {Cause.COMPLETED: 1}
    assert value(findings, Stage.RELEASED) == (2000, False)


def test_a_claim_that_came_and_went_in_the_gap_holds_nothing_up() -> None:
    scene = Scene()
    name = scene.accepted()
    pod = scene.world.bound(scene.world.pod(name))
    scene.tracker.pod_event("ADDED", pod, 0.5)
    scene.deleted(pod, 2.5)
    assert scene.tracker.open_pods() == 1

    scene.tracker.relisted("claims", [], 4.0, began=3.9)

    assert scene.tracker.open_pods() == 0
    findings = scene.tracker.finish(60.0)
    assert findings.causes == {Cause.COMPLETED: 1}
    assert not latencies(findings, Stage.ALLOCATED).count, "nobody saw it: no sample, and none censored"


def test_a_claim_made_after_the_list_was_asked_for_is_waited_for() -> None:
    scene = Scene(orders(hold_seconds=0.5))
    pod = scene.world.bound(scene.world.pod(scene.accepted(due=2.1)))
    scene.tracker.pod_event("ADDED", pod, 2.5)
    scene.deleted(pod, 3.0)

    scene.tracker.relisted("claims", [], 4.0, began=2.0)

    assert scene.tracker.open_pods() == 1


def test_a_claim_listed_without_reservation_after_the_delete_is_released() -> None:
    scene = Scene()
    name = scene.accepted()
    created = scene.world.claim(name)
    scene.tracker.claim_event("ADDED", created, 0.3)
    pod = scene.world.bound(scene.world.pod(name))
    scene.tracker.pod_event("ADDED", pod, 0.5)
    scene.deleted(pod, 2.5)

    scene.tracker.relisted("claims", [scene.world.terminating(created)], 4.0, began=3.9)

    assert scene.tracker.open_pods() == 0
    assert scene.tracker.lingering_claims() == 1


def test_old_news_after_a_list_is_dropped() -> None:
    scene = Scene()
    pod, claim = scene.bound(0, at=1.0)
    scene.deleted(pod, 3.0)
    other = scene.world.claim()

    scene.tracker.relisted("claims", [other], 4.0)
    scene.tracker.claim_event("ADDED", claim, 4.1)

    assert scene.tracker.lingering_claims() == 0
    assert scene.tracker.finish(60.0).causes == {Cause.COMPLETED: 1}


def test_a_device_that_changed_hands_in_the_gap_is_no_double_allocation() -> None:
    scene = Scene()
    world, tracker = scene.world, scene.tracker
    first = world.allocated(world.claim(number=1), "g")
    second = world.claim(number=0)
    tracker.claim_event("ADDED", first, 1.0)
    tracker.claim_event("ADDED", second, 1.1)
    first = world.released(first)
    second = world.allocated(second, "g")

    tracker.relisted("claims", [second, first], 4.0)

    assert not tracker.finish(60.0).violations


def test_what_was_certain_before_the_gap_is_certain_after_it() -> None:
    scene = Scene()
    for number in range(2):
        scene.tracker.claim_event("ADDED", scene.world.allocated(scene.world.claim(number=number), "g"), 1.0)

    scene.tracker.relisted("claims", [], 4.0)

    assert [v.invariant for v in scene.tracker.finish(60.0).violations] == ["double-allocation"]


def test_a_device_that_a_list_shows_twice_is_one() -> None:
    scene = Scene()
    world = scene.world
    claims = [world.allocated(world.claim(number=number), "g") for number in range(2)]

    scene.tracker.relisted("claims", claims, 4.0)

    assert [v.invariant for v in scene.tracker.finish(60.0).violations] == ["double-allocation"]
