"""Devices of nodes by their slices, whole pools, and a share of them laid over nodes."""

from __future__ import annotations

import math

import pytest

from harness.kube import Object
from load.pools import devices_of, incomplete_pools, spread


def slice_(
    node: str, devices: int, *, generation: int = 1, count: int = 1, driver: str = "d", pool: str = ""
) -> Object:
    spec: Object = {
        "driver": driver,
        "nodeName": node,
        "pool": {"name": pool or node, "generation": generation, "resourceSliceCount": count},
        "devices": [{"name": f"gpu-{index}"} for index in range(devices)],
    }
    return {"spec": spec}


def test_devices_are_those_of_the_latest_generation_of_the_driver() -> None:
    slices = [
        slice_("a", 8),
        slice_("b", 4, count=2),
        slice_("b", 3, count=2),
        slice_("c", 8, generation=1),
        slice_("c", 2, generation=2),
        slice_("c", 5, driver="other", pool="other"),
        slice_("a", 1, pool="second"),
    ]
    assert devices_of(slices, "d") == {"a": 9, "b": 7, "c": 2}


def test_slices_of_no_node_are_left_out() -> None:
    shared = slice_("a", 8)
    del shared["spec"]["nodeName"]
    assert devices_of([shared], "d") == {}


def test_a_slice_with_counters_only_has_no_devices() -> None:
    counters = slice_("a", 0)
    del counters["spec"]["devices"]
    assert devices_of([counters, slice_("a", 8)], "d") == {"a": 8}


def test_pools_that_lack_slices_are_named() -> None:
    slices = [
        slice_("whole", 8),
        slice_("half", 8, count=2),
        slice_("moving", 8, generation=1),
        slice_("moving", 8, generation=2, count=2),
        slice_("moved", 8, generation=1, count=1),
        slice_("moved", 8, generation=3, count=2),
        slice_("moved", 8, generation=3, count=2),
        slice_("foreign", 8, count=5, driver="other"),
    ]
    assert incomplete_pools(slices, "d") == ["half", "moving"]
    assert incomplete_pools(reversed(slices), "d") == ["half", "moving"]


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.6, 0.9, 0.99, 1.0])
def test_a_share_is_whole_and_even(share: float) -> None:
    devices = {f"sim-{index}": 8 for index in range(100)}
    parts = spread(devices, share)
    # in hundredths, so that 800 * share is exact
    assert sum(parts.values()) == -(-800 * round(share * 100) // 100)
    assert max(parts.values()) - min(parts.get(node, 0) for node in devices) <= 1


def test_a_node_never_gets_more_than_it_has() -> None:
    devices = {"a": 1, "b": 8, "c": 0, "d": 3}
    for percent in range(101):
        parts = spread(devices, percent / 100)
        assert all(parts[node] <= devices[node] for node in parts)
        assert sum(parts.values()) == math.ceil(12 * percent / 100)
    assert spread(devices, 0.0) == {}
    assert spread(devices, 1.0) == {"a": 1, "b": 8, "d": 3}


def test_free_devices_lie_together_where_pods_need_room() -> None:
    devices = {f"sim-{index}": 8 for index in range(10)}
    parts = spread(devices, 0.5, room=5)
    free = sorted(8 - parts.get(node, 0) for node in devices)
    assert free == [0, 0, 5, 5, 5, 5, 5, 5, 5, 5]
    assert sorted(8 - spread(devices, 0.9, room=5).get(node, 0) for node in devices) == [0] * 8 + [3, 5]
    assert sorted(8 - spread(devices, 0.95, room=5).get(node, 0) for node in devices) == [0] * 9 + [4]


@pytest.mark.parametrize("room", [1, 2, 5, 8, 9])
def test_room_never_changes_how_much_is_in_use(room: int) -> None:
    devices = {"a": 1, "b": 8, "c": 0, "d": 3, "e": 16}
    for percent in range(101):
        parts = spread(devices, percent / 100, room=room)
        assert sum(parts.values()) == math.ceil(28 * percent / 100)
        assert all(0 < parts[node] <= devices[node] for node in parts)
