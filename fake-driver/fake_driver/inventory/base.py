"""What an inventory gives: the devices of a node, in the form that the ResourceSlice API has for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class NodeInventory:
    """The devices and counter sets of one node; devices in API form, taints as the hardware reports them."""

    devices: tuple[dict[str, Any], ...]
    shared_counters: tuple[dict[str, Any], ...] = ()
    slice_fields: dict[str, Any] = field(default_factory=dict)  # further fields of every device slice

    def device(self, name: str) -> dict[str, Any] | None:
        """The device of that name, or None."""
        return next((device for device in self.devices if device["name"] == name), None)


class Inventory(Protocol):
    """A source of devices."""

    def for_node(self, node: str) -> NodeInventory:
        """The devices of `node`; the same answer every time."""
        ...
