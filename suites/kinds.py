"""Drivers whose devices are of several kinds, and requests for devices of one kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clusters.driver_host import HostedDriver
from clusters.interface import Node
from harness.kube import Object
from suites.claims import request
from suites.drivers import DeviceClass, Drivers


@dataclass(frozen=True)
class Kinds:
    """A driver whose devices have the attribute `kind`, and the class of them all."""

    driver: HostedDriver
    device_class: DeviceClass

    def of(self, kind: str, *, name: str = "", count: int = 1, everything: bool = False) -> Object:
        """A request for devices of a kind; it is called like the kind unless a name is given."""
        cel = f'device.attributes["{self.driver.name}"].kind == "{kind}"'
        return request(name or kind, self.device_class, count=count, everything=everything, cel=cel)


def start(drivers: Drivers, nodes: Sequence[Node], suffix: str = "gpu", **counts: int) -> Kinds:
    """Start a driver with so many devices of each kind, in this order, on each of some nodes."""
    driver = drivers.start(suffix=suffix, nodes=nodes, inventory=inventory(**counts))
    return Kinds(driver, drivers.device_class(driver, suffix=suffix, extended_resource=""))


def inventory(**counts: int) -> dict[str, Any]:
    """An inventory of so many devices of each kind: `big-0`, `big-1` and so on."""
    return {
        "devices": [
            {"name": f"{kind}-{{index}}", "count": count, "attributes": {"kind": {"string": kind}}}
            for kind, count in counts.items()
        ]
    }
