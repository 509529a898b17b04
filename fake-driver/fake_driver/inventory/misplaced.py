"""Seeded faults about where devices are: what drivers get wrong when they publish numaNode and pciBusID."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace
from typing import Any

from fake_driver.config import Quirk
from fake_driver.inventory.base import NodeInventory
from fake_driver.inventory.presets import STANDARD

NUMA_NODE = f"{STANDARD}/numaNode"
PCI_BUS_ID = f"{STANDARD}/pciBusID"

Attributes = dict[str, dict[str, Any]]


def misplaced(inventory: NodeInventory, quirks: Set[Quirk]) -> NodeInventory:
    """The inventory as a driver with these quirks publishes it."""
    devices = inventory.devices
    for quirk, spoil in _FAULTS.items():
        if quirk in quirks:
            devices = tuple(device | {"attributes": spoil(device["attributes"])} for device in devices)
    return replace(inventory, devices=devices)


def off_by_one(attributes: Attributes) -> Attributes:
    """Every NUMA node counted from 1."""
    return _numa(attributes, lambda nodes: [node + 1 for node in nodes])


def _own_name(attributes: Attributes) -> Attributes:
    return {"numaNode" if name == NUMA_NODE else name: value for name, value in attributes.items()}


def _as_text(attributes: Attributes) -> Attributes:
    nodes = _nodes(attributes)
    return attributes | {NUMA_NODE: {"string": str(nodes[0])}} if nodes else attributes


def _zero_for_none(attributes: Attributes) -> Attributes:
    return {NUMA_NODE: {"int": 0}} | attributes


def _eight_nodes(attributes: Attributes) -> Attributes:
    """Its own node, and then all others of a machine of eight, near or far."""
    return _numa(attributes, lambda nodes: [nodes[0], *(set(range(8)) - {nodes[0]})])


def _lists(attributes: Attributes) -> Attributes:
    nodes = _nodes(attributes)
    return attributes | {NUMA_NODE: {"ints": nodes}} if nodes else attributes


def _short_address(attributes: Attributes) -> Attributes:
    """The PCI address without its domain, as lspci shows it."""
    if PCI_BUS_ID not in attributes:
        return attributes
    return attributes | {PCI_BUS_ID: {"string": attributes[PCI_BUS_ID]["string"].partition(":")[2]}}


def _numa(attributes: Attributes, change: Callable[[list[int]], list[int]]) -> Attributes:
    """Other nodes in the same form; a single value takes the first."""
    if not (nodes := _nodes(attributes)):
        return attributes
    value = {"int": change(nodes)[0]} if "int" in attributes[NUMA_NODE] else {"ints": change(nodes)}
    return attributes | {NUMA_NODE: value}


def _nodes(attributes: Attributes) -> list[int]:
    value = attributes.get(NUMA_NODE, {})
    return [value["int"]] if "int" in value else list(value.get("ints", ()))


_FAULTS: dict[Quirk, Callable[[Attributes], Attributes]] = {
    Quirk.NUMA_OFF_BY_ONE: off_by_one,
    Quirk.NUMA_ZERO_FOR_NONE: _zero_for_none,
    Quirk.NUMA_EIGHT_NODES: _eight_nodes,
    Quirk.LISTS_BY_DEFAULT: _lists,
    Quirk.NUMA_AS_TEXT: _as_text,
    Quirk.NUMA_OWN_NAME: _own_name,
    Quirk.PCI_SHORT_ADDRESS: _short_address,
}
