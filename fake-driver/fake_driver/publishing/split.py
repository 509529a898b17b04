"""Cuts an inventory into ResourceSlices that keep the API's limits, and compares their contents."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from fake_driver.inventory.base import NodeInventory
from fake_driver.quantity import parse_quantity

# Limits of resource.k8s.io/v1; a slice whose devices use one of the richer features holds fewer.
MAX_DEVICES = 128
MAX_DEVICES_RICH = 64
MAX_COUNTER_SETS = 8
_LISTS = ("ints", "bools", "strings", "versions")
_CONTENT_KEYS = ("devices", "sharedCounters", "skipNodeOperations", "partitionTypeAttribute")

Content = dict[str, Any]


def split(
    inventory: NodeInventory, taints: Mapping[str, Sequence[Content]], *, rich: int = MAX_DEVICES_RICH
) -> list[Content]:
    """The contents of the slices of one pool, in order.

    Args:
        inventory: the node's devices and counter sets.
        taints: extra taints by device name, on top of what the inventory has.
        rich: how many devices a slice may hold if one of them uses a richer feature.
    """
    counters = inventory.shared_counters
    contents: list[Content] = [
        {"sharedCounters": list(counters[start : start + MAX_COUNTER_SETS])}
        for start in range(0, len(counters), MAX_COUNTER_SETS)
    ]
    chunk: list[Content] = []
    limit = MAX_DEVICES
    for device in inventory.devices:
        tainted = _with_taints(device, taints.get(device["name"], ()))
        limit = min(limit, rich if _is_rich(tainted) else MAX_DEVICES)
        if len(chunk) >= limit:
            contents.append(inventory.slice_fields | {"devices": chunk})
            chunk = []
            limit = rich if _is_rich(tainted) else MAX_DEVICES
        chunk.append(tainted)
    if chunk:
        contents.append(inventory.slice_fields | {"devices": chunk})
    return contents


def content_of(spec: Content) -> Content:
    """The part of a stored slice's spec that `split` decides."""
    return {key: spec[key] for key in _CONTENT_KEYS if spec.get(key)}


def same_content(one: Content, other: Content, *, ignore_taints: bool = False) -> bool:
    """Whether two contents mean the same: quantities by value, `timeAdded` only where both set it."""
    if ignore_taints:
        one, other = _without_taints(one), _without_taints(other)
    return bool(_normalised(one, other) == _normalised(other, one))


def keep_time_added(content: Content, stored: Content) -> Content:
    """`content` with the `timeAdded` of the taints that `stored` has already, so they don't look new."""
    result = copy.deepcopy(content)
    known = {device["name"]: device.get("taints", []) for device in stored.get("devices", [])}
    for device in result.get("devices", []):
        for taint in device.get("taints", []):
            for old in known.get(device["name"], []):
                if "timeAdded" not in taint and _taint_key(old) == _taint_key(taint) and "timeAdded" in old:
                    taint["timeAdded"] = old["timeAdded"]
    return result


def missing_paths(wanted: Any, stored: Any, path: str = "") -> list[str]:
    """Where `stored` lacks something of `wanted`: fields that the API server dropped (a gate is off)."""
    if isinstance(wanted, dict):
        if not isinstance(stored, dict):
            return [path]
        return [
            found
            for key, value in wanted.items()
            for found in missing_paths(value, stored.get(key), f"{path}.{key}".lstrip("."))
        ]
    if isinstance(wanted, list):
        if not isinstance(stored, list) or len(stored) != len(wanted):
            return [path]
        return [
            found
            for index, value in enumerate(wanted)
            for found in missing_paths(value, stored[index], f"{path}[{index}]")
        ]
    return [path] if stored is None and wanted is not None else []


def _with_taints(device: Content, extra: Sequence[Content]) -> Content:
    if not extra:
        return device
    replaced = {_taint_key(taint) for taint in extra}
    own = [taint for taint in device.get("taints", []) if _taint_key(taint) not in replaced]
    return device | {"taints": [*own, *extra]}


def _taint_key(taint: Content) -> tuple[Any, ...]:
    return taint["key"], taint.get("value") or "", taint["effect"]


def _is_rich(device: Content) -> bool:
    lists = any(key in value for value in device["attributes"].values() for key in _LISTS)
    return bool(lists or device.get("taints") or device.get("consumesCounters"))


def _without_taints(content: Content) -> Content:
    devices = [
        {key: value for key, value in device.items() if key != "taints"}
        for device in content.get("devices", [])
    ]
    return content | {"devices": devices} if devices else content


def _normalised(value: Any, other: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        counterpart = other if isinstance(other, dict) else {}
        return {
            name: _normalised(entry, counterpart.get(name), name)
            for name, entry in value.items()
            if entry not in ({}, [], None, False) and not (name == "timeAdded" and name not in counterpart)
        }
    if isinstance(value, list):
        counterparts = other if isinstance(other, list) else []
        return [
            _normalised(entry, counterparts[index] if index < len(counterparts) else None, key)
            for index, entry in enumerate(value)
        ]
    return _number(value) if key in ("value", "default", "validValues", "min", "max", "step") else value


def _number(value: Any) -> str | Decimal:
    try:
        return parse_quantity(str(value))
    except ValueError:
        return str(value)
