"""What a driver's ResourceSlices come to: devices of nodes, and whether pools are whole."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from harness.kube import Object


def devices_of(slices: Iterable[Object], driver: str) -> dict[str, int]:
    """How many devices each node has of a driver, by what its slices say; the latest generation counts."""
    latest: dict[str, int] = {}
    found: dict[tuple[str, str, int], int] = {}
    for slice_ in slices:
        spec = slice_["spec"]
        if spec["driver"] != driver or "nodeName" not in spec:
            continue
        pool = spec["pool"]
        latest[pool["name"]] = max(latest.get(pool["name"], 0), pool["generation"])
        key = (spec["nodeName"], pool["name"], pool["generation"])
        found[key] = found.get(key, 0) + len(spec.get("devices", ()))
    devices: dict[str, int] = {}
    for (node, pool_name, generation), count in found.items():
        if generation == latest[pool_name]:
            devices[node] = devices.get(node, 0) + count
    return devices


def incomplete_pools(slices: Iterable[Object], driver: str) -> list[str]:
    """The pools of a driver that lack slices of their latest generation: nothing is allocated from those."""
    latest: dict[str, tuple[int, int, int]] = {}  # generation, slices there, slices that there should be
    for slice_ in slices:
        spec = slice_["spec"]
        if spec["driver"] != driver:
            continue
        pool = spec["pool"]
        generation, there, wanted = latest.get(pool["name"], (-1, 0, 0))
        if pool["generation"] > generation:
            generation, there, wanted = pool["generation"], 0, pool["resourceSliceCount"]
        if pool["generation"] == generation:
            latest[pool["name"]] = (generation, there + 1, wanted)
    return sorted(name for name, (_, there, wanted) in latest.items() if there != wanted)


def spread(devices: Mapping[str, int], share: float, *, room: int = 1) -> dict[str, int]:
    """A share of all devices, rounded up, laid evenly over the nodes; nodes that get none are left out.

    Args:
        devices: of each node.
        share: of all of them together, 0 to 1.
        room: the devices that stay free lie so many to a node, as far as they go: what the largest pod needs.
    """
    total = sum(devices.values())
    free = total - math.ceil(round(total * share, 9))
    places = {node: count // room for node, count in devices.items()}
    all_places = sum(places.values())
    chunks = min(free // room, all_places)
    rest = free - chunks * room
    chosen = {}
    seen = given = 0
    for node, count in devices.items():
        seen += places[node]
        until = chunks * seen // all_places if all_places else 0
        left = (until - given) * room
        given = until
        extra = min(rest, count - left)
        rest -= extra
        if count - left - extra:
            chosen[node] = count - left - extra
    return chosen
