"""What an inventory gives: the devices of a node, in the form that the ResourceSlice API has for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

HealthValue = Literal["Healthy", "Unhealthy", "Unknown"]


@dataclass(frozen=True)
class Health:
    """How a device is, and why."""

    value: HealthValue = "Healthy"
    message: str = ""


def no_edits(device: str) -> dict[str, Any]:
    """The CDI edits of devices that exist only in the API."""
    return {}


@dataclass(frozen=True)
class NodeInventory:
    """The devices and counter sets of one node; devices in API form, taints as the hardware reports them."""

    devices: tuple[dict[str, Any], ...]
    shared_counters: tuple[dict[str, Any], ...] = ()
    slice_fields: dict[str, Any] = field(default_factory=dict)  # further fields of every device slice
    health: Mapping[str, Health] = field(default_factory=dict)  # devices that aren't named are healthy
    edits: Callable[[str], dict[str, Any]] = no_edits
    """CDI container edits by device name, asked for when a claim is prepared; raises ClaimError."""

    problem: str = ""
    """Why there are no devices, or fewer than there should be."""

    def device(self, name: str) -> dict[str, Any] | None:
        """The device of that name, or None."""
        return next((device for device in self.devices if device["name"] == name), None)


class Inventory(Protocol):
    """A source of devices."""

    def for_node(self, node: str) -> NodeInventory:
        """The devices of `node`; the same answer every time."""
        ...


@runtime_checkable
class LiveInventory(Inventory, Protocol):
    """A source whose devices, taints and health change by themselves: `for_node` says how they are now."""

    def start(self, changed: Callable[[], None]) -> None:
        """Watch, and call `changed` in another thread after every change."""
        ...

    def stop(self) -> None:
        """End the watch; `changed` is not called any more afterwards."""
        ...
