"""Which devices the ResourceSlices offer, and since when one is no longer among them."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable
from typing import Any

Object = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class _Slice:
    pool: str
    """driver/pool."""
    generation: int
    devices: frozenset[str]


class SliceBook:
    """A pool offers the devices of its slices of the highest generation seen."""

    def __init__(self) -> None:
        self._slices: dict[str, _Slice] = {}
        self._pools: dict[str, dict[str, _Slice]] = collections.defaultdict(dict)
        self._removed: dict[str, float] = {}

    def event(self, type_: str, obj: Object, at: float) -> None:
        """A watch event of a ResourceSlice."""
        if type_ not in ("ADDED", "MODIFIED", "DELETED"):
            return
        name = obj["metadata"]["name"]
        self._replace(name, None if type_ == "DELETED" else _read(obj), at)

    def relisted(self, objects: Iterable[Object], at: float) -> None:
        """The full state."""
        listed = {obj["metadata"]["name"]: obj for obj in objects}
        for name in set(self._slices) - set(listed):
            self._replace(name, None, at)
        for name, obj in listed.items():
            self._replace(name, _read(obj), at)

    def removed_at(self, device: str) -> float | None:
        """When driver/pool/device was seen to leave its pool's slices; None if it is in them or never was."""
        return self._removed.get(device)

    def _replace(self, name: str, new: _Slice | None, at: float) -> None:
        old = self._slices.get(name)
        if old == new:
            return
        touched = {each.pool for each in (old, new) if each is not None}
        before = {pool: self._offered(pool) for pool in touched}
        if old is not None:
            del self._slices[name], self._pools[old.pool][name]
        if new is not None:
            self._slices[name] = self._pools[new.pool][name] = new
        for pool, devices in before.items():
            now = self._offered(pool)
            for device in devices - now:
                self._removed[f"{pool}/{device}"] = at
            for device in now:
                self._removed.pop(f"{pool}/{device}", None)

    def _offered(self, pool: str) -> frozenset[str]:
        slices = self._pools[pool].values()
        newest = max((each.generation for each in slices), default=0)
        return frozenset[str]().union(*(each.devices for each in slices if each.generation == newest))


def _read(obj: Object) -> _Slice:
    spec = obj["spec"]
    return _Slice(
        pool=f"{spec['driver']}/{spec['pool']['name']}",
        generation=int(spec["pool"].get("generation", 0)),
        devices=frozenset(device["name"] for device in spec.get("devices") or ()),
    )
