from __future__ import annotations

from typing import Any

import pytest

from load import invariants
from load.claims import charge
from load.model import Orders, QuotaChange, Violation
from load.tracker import Tracker
from tests.load.scene import Scene
from tests.load.world import Object, World, kind, orders


class Watched:
    """A tracker that sees claims of nobody in particular."""

    def __init__(self, plan: Orders | None = None) -> None:
        self.tracker = Tracker(plan or orders(), started_at=0.0)
        self.world = World()
        self.clock = 0.0

    def claim(self, type_: str, obj: Object, at: float | None = None) -> Object:
        self.clock = self.clock + 1 if at is None else at
        self.tracker.claim_event(type_, obj, self.clock)
        return obj

    def violations(self) -> list[Violation]:
        return self.tracker.finish(self.clock + 1).violations


def test_a_device_in_two_claims_is_allocated_twice() -> None:
    watched = Watched()
    for number in range(2):
        watched.claim("ADDED", watched.world.allocated(watched.world.claim(number=number), "g", "h"))

    found = watched.violations()

    assert [(v.invariant, v.object, v.at) for v in found] == [
        ("double-allocation", "d/p/g", 2.0),
        ("double-allocation", "d/p/h", 2.0),
    ]
    assert "ns/claim-c0" in found[0].message
    assert "ns/claim-c1" in found[0].message


def test_a_device_twice_in_one_claim_is_too() -> None:
    watched = Watched()
    watched.claim("ADDED", watched.world.allocated(watched.world.claim(), "g", "g"))

    assert [v.invariant for v in watched.violations()] == ["double-allocation"]


@pytest.mark.parametrize("how", ["released", "deleted"])
def test_a_device_that_was_given_back_may_be_given_to_another(how: str) -> None:
    watched = Watched()
    world = watched.world
    first = watched.claim("ADDED", world.allocated(world.claim(number=0), "g"))
    if how == "released":
        watched.claim("MODIFIED", world.released(first))
    else:
        watched.claim("DELETED", world.terminating(first))
    watched.claim("ADDED", world.allocated(world.claim(number=1), "g"))

    assert not watched.violations()


@pytest.mark.parametrize(
    ("first", "second", "lawful"),
    [
        ({"shareID": "a"}, {"shareID": "b"}, True),
        ({"shareID": "a"}, {}, False),
        ({}, {"shareID": "b"}, False),
        ({"adminAccess": True}, {}, True),
        ({}, {"adminAccess": True}, True),
        ({"adminAccess": False}, {}, False),
    ],
)
def test_shares_and_admin_access_may_meet_on_a_device(
    first: dict[str, Any], second: dict[str, Any], lawful: bool
) -> None:
    watched = Watched()
    for number, result in enumerate([first, second]):
        claim = watched.world.claim(number=number)
        watched.claim("ADDED", watched.world.allocated(claim, "g", **result))

    assert (not watched.violations()) is lawful


def test_the_same_name_in_another_pool_is_another_device() -> None:
    watched = Watched()
    for number, pool in enumerate(["p", "q"]):
        claim = watched.world.claim(number=number)
        watched.claim("ADDED", watched.world.allocated(claim, "g", pool=pool))

    assert not watched.violations()


@pytest.mark.parametrize("order", ["release known late", "still there", "never heard of again"])
def test_over_two_watches_resource_versions_tell_what_was_at_the_same_time(order: str) -> None:
    watched = Watched()
    world = watched.world
    first = watched.claim("ADDED", world.allocated(world.claim(number=0), "g"))
    if order == "release known late":
        release = world.released(first)
        watched.claim("ADDED", world.allocated(world.claim(number=1, namespace="other"), "g"))
        watched.claim("MODIFIED", release)
    else:
        watched.claim("ADDED", world.allocated(world.claim(number=1, namespace="other"), "g"))
        if order == "still there":
            watched.claim("DELETED", world.terminating(first))

    found = watched.violations()

    assert bool(found) is (order != "release known late")
    assert all(v.at == 2.0 for v in found), "when the second claim was seen to have it"


def test_an_allocation_that_is_heard_of_after_a_later_one_is_judged_the_same() -> None:
    watched = Watched()
    world = watched.world
    early = world.allocated(world.claim(number=0), "g")
    gone = world.terminating(early)
    watched.claim("ADDED", world.allocated(world.claim(number=1, namespace="other"), "g"))
    watched.claim("ADDED", early)
    watched.claim("DELETED", gone)

    assert not watched.violations()


def test_quota_is_exceeded_when_a_claim_too_many_is_there() -> None:
    watched = Watched(orders(device_quota={"ns": 4}))
    world = watched.world
    first = watched.claim("ADDED", world.claim(number=0, count=3))
    watched.claim("ADDED", world.claim(number=1, count=1))
    watched.claim("ADDED", world.claim(number=2, count=1, namespace="free"))
    watched.claim("ADDED", world.claim(number=3, count=2))
    watched.claim("DELETED", world.terminating(first))
    watched.claim("ADDED", world.claim(number=4, count=1))

    found = watched.violations()

    assert [(v.invariant, v.object, v.at) for v in found] == [("over-quota", "ns/claim-c3", 4.0)]
    assert "6 devices, quota is 4" in found[0].message


def test_a_raised_quota_counts_from_when_it_is_raised() -> None:
    changes = [QuotaChange(at=10, namespace="ns", devices=2), QuotaChange(at=20, namespace="ns", devices=1)]
    watched = Watched(orders(device_quota={"ns": 0}, quota_changes=changes))
    world = watched.world
    for number, at in enumerate([9.9, 10.1, 19.0, 20.0]):
        claim = watched.claim("ADDED", world.claim(number=number), at)
        if number != 1:
            watched.claim("DELETED", world.terminating(claim), at)

    assert [(v.object, v.at) for v in watched.violations()] == [("ns/claim-c0", 9.9), ("ns/claim-c3", 20.0)]


@pytest.mark.parametrize(
    ("requests", "devices"),
    [
        ([{"exactly": {"deviceClassName": "a"}}], 1),
        ([{"exactly": {"allocationMode": "ExactCount", "count": 3}}, {"exactly": {"count": 2}}], 5),
        ([{"exactly": {"allocationMode": "All"}}], 32),
        ([{"firstAvailable": [{"count": 2}, {"count": 5}]}, {"exactly": {"count": 1}}], 6),
        ([], 0),
    ],
)
def test_quota_charges_what_is_asked_for(requests: list[Object], devices: int) -> None:
    assert charge({"devices": {"requests": requests}}) == devices


def test_a_claim_more_than_the_pod_should_have_is_a_duplicate() -> None:
    scene = Scene()
    pod, first = scene.bound(at=1.0)
    name = pod["metadata"]["name"]

    scene.tracker.claim_event("ADDED", scene.world.claim(name, 1), 2.0)

    found = scene.tracker.finish(3.0).violations
    assert [(v.invariant, v.object, v.at) for v in found] == [("duplicate-claim", f"ns/{name}-c1", 2.0)]
    assert first["metadata"]["name"] in found[0].message


def test_a_claim_that_takes_the_place_of_one_being_deleted_is_no_duplicate() -> None:
    scene = Scene()
    name = scene.accepted()
    stale = scene.world.claim(name, 0)
    scene.tracker.claim_event("ADDED", stale, 1.0)
    scene.tracker.claim_event("MODIFIED", scene.world.terminating(stale), 1.1)
    scene.tracker.claim_event("ADDED", scene.world.claim(name, 1), 1.2)

    assert not scene.tracker.finish(3.0).violations


def test_a_pod_that_needs_no_claim_and_has_one_has_one_too_many() -> None:
    scene = Scene(orders(kind(claims=0)))
    scene.tracker.claim_event("ADDED", scene.world.claim(scene.accepted()), 1.0)

    assert [v.invariant for v in scene.tracker.finish(3.0).violations] == ["duplicate-claim"]


@pytest.mark.parametrize("terminating", [True, False])
def test_a_claim_that_outlives_its_pod_has_leaked(terminating: bool) -> None:
    scene = Scene()
    pod, claim = scene.bound(at=1.0)
    scene.deleted(pod, 3.0)
    claim = scene.world.released(claim)
    scene.tracker.claim_event("MODIFIED", claim, 3.3)
    if terminating:
        scene.tracker.claim_event("MODIFIED", scene.world.terminating(claim), 3.4)
    assert scene.tracker.open_pods() == 0
    assert scene.tracker.lingering_claims() == 1

    found = scene.tracker.finish(60.0).violations

    assert [v.invariant for v in found] == ["leaked-finalizer" if terminating else "leaked-claim"]
    assert "resource.kubernetes.io/delete-protection" in found[0].message


def test_a_claim_made_for_a_pod_that_is_gone_has_leaked() -> None:
    scene = Scene()
    scene.completed(0)
    scene.tracker.claim_event("ADDED", scene.world.claim(scene.name(0), 7), 4.0)

    assert [v.invariant for v in scene.tracker.finish(60.0).violations] == ["leaked-claim"]


def test_garbage_collection_has_its_time_and_pods_that_live_keep_their_claims() -> None:
    scene = Scene()
    pod, _ = scene.bound(0, at=1.0)
    scene.bound(1, at=1.0)
    scene.deleted(pod, 3.0)

    assert not scene.tracker.finish(3.1 + invariants.LEAK_SECONDS).violations


@pytest.mark.parametrize(("at", "leaked"), [(20.0, []), (23.2, ["leaked-claim"])])
def test_claims_that_wait_for_the_controllers_own_limits_have_time_for_all(
    at: float, leaked: list[str]
) -> None:
    """Two claims of 5 s each, besides the ten: the last may go 20 s after its pod, which went at 3.1."""
    scene = Scene(orders(seconds_per_claim=5.0))
    scene.completed(0)
    pod, _ = scene.bound(1, at=1.0)
    scene.deleted(pod, 3.0)

    assert [v.invariant for v in scene.tracker.finish(at).violations] == leaked


def test_a_pod_held_by_a_finalizer_has_leaked_it() -> None:
    scene = Scene()
    pod, _ = scene.bound(0, at=1.0)
    pod["metadata"]["finalizers"] = ["example.com/keep"]
    scene.tracker.delete_sent(pod["metadata"]["name"], 3.0)
    scene.tracker.pod_event("MODIFIED", scene.world.terminating(pod), 3.1)

    found = scene.tracker.finish(60.0).violations

    assert [(v.invariant, v.object) for v in found] == [("leaked-finalizer", "ns/r1-w0-gpu-0")]
    assert "example.com/keep" in found[0].message


def test_an_allocation_of_a_device_long_removed_is_found() -> None:
    watched = Watched(orders(removed_devices=True, settle_seconds=5))
    world, tracker = watched.world, watched.tracker
    tracker.relisted("slices", [world.slice_("s1", "g", "h"), world.slice_("s2", "i")], 0.0)
    tracker.slice_event("MODIFIED", world.slice_("s1", "h"), 10.0)
    tracker.slice_event("DELETED", world.slice_("s2", "i"), 10.0)

    watched.claim("ADDED", world.allocated(world.claim(number=0), "h"), 30.0)
    watched.claim("ADDED", world.allocated(world.claim(number=1), "g"), 14.0)
    watched.claim("ADDED", world.allocated(world.claim(number=2), "i"), 16.0)

    assert [(v.invariant, v.object) for v in watched.violations()] == [("removed-device", "d/p/i")]


def test_a_device_that_came_back_or_moved_within_its_pool_is_there() -> None:
    watched = Watched()
    world, tracker = watched.world, watched.tracker
    tracker.relisted("slices", [world.slice_("s1", "g", "h")], 0.0)
    tracker.slice_event("MODIFIED", world.slice_("s1", "h"), 1.0)
    tracker.slice_event("MODIFIED", world.slice_("s1", "g", "h"), 2.0)
    tracker.slice_event("ADDED", world.slice_("s2", "h"), 3.0)
    tracker.slice_event("MODIFIED", world.slice_("s1", "g"), 4.0)

    watched.claim("ADDED", world.allocated(world.claim(), "g", "h"), 60.0)

    assert not watched.violations()


def test_slices_of_an_older_generation_offer_nothing() -> None:
    watched = Watched()
    world, tracker = watched.world, watched.tracker
    tracker.relisted("slices", [world.slice_("s1", "g"), world.slice_("s2", "h")], 0.0)
    tracker.slice_event("MODIFIED", world.slice_("s1", "g", generation=2), 1.0)

    watched.claim("ADDED", world.allocated(world.claim(number=0), "g"), 60.0)
    watched.claim("ADDED", world.allocated(world.claim(number=1), "h"), 60.0)

    assert [(v.invariant, v.object) for v in watched.violations()] == [("removed-device", "d/p/h")]


def test_an_allocation_from_before_the_removal_is_lawful_however_long_it_lasts() -> None:
    watched = Watched()
    world, tracker = watched.world, watched.tracker
    tracker.relisted("slices", [world.slice_("s1", "g")], 0.0)
    claim = watched.claim("ADDED", world.allocated(world.claim(), "g"), 1.0)
    tracker.relisted("slices", [], 2.0)
    watched.claim("MODIFIED", world.next(claim), 60.0)
    tracker.relisted("claims", [world.next(claim)], 61.0)

    assert not watched.violations()


def test_of_very_many_violations_the_number_is_told() -> None:
    watched = Watched(orders(device_quota={"ns": 0}))
    for number in range(invariants.LIMIT + 17):
        watched.claim("ADDED", watched.world.claim(number=number))

    found = watched.violations()

    assert len(found) == invariants.LIMIT + 1
    assert (found[-1].message, found[-1].count) == ("17 more", 17)
    assert sum(each.count for each in found) == invariants.LIMIT + 17
