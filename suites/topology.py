"""Reads the standard topology attributes of devices, as any program that consumes them has to (KEP-6072).

A single value and a list of values are read alike. A missing numaNode is "unknown", never node 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from harness.kube import Object

NUMA_NODE = "resource.kubernetes.io/numaNode"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
PCI_BUS_ID = "resource.kubernetes.io/pciBusID"


def values(device: Object, attribute: str) -> tuple[Any, ...]:
    """All values of a device's attribute, in order; none if the device doesn't have it."""
    forms = device.get("attributes", {}).get(attribute, {})
    return tuple(each for value in forms.values() for each in (value if isinstance(value, list) else [value]))


def numa_nodes(device: Object) -> tuple[int, ...] | None:
    """The NUMA nodes of a device, its own first; None if they are unknown."""
    return values(device, NUMA_NODE) or None


@dataclass(frozen=True)
class Coverage:
    """How much is known about where devices are."""

    devices: int = 0
    without_numa_node: int = 0


def coverage(slices: Iterable[Object]) -> dict[str, Coverage]:
    """By node, how many devices its slices have and how many of them lack numaNode.

    Devices that are bound to no single node count under the empty name.
    """
    found: dict[str, Coverage] = {}
    for slice_ in slices:
        for device in slice_["spec"].get("devices", ()):
            node = device.get("nodeName") or slice_["spec"].get("nodeName", "")
            before = found.get(node, Coverage())
            missing = before.without_numa_node + (numa_nodes(device) is None)
            found[node] = Coverage(before.devices + 1, missing)
    return found
