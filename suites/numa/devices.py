"""Drivers whose devices are where a sysfs says, and what they publish of that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from clusters.driver_host import HostedDriver
from harness.kube import Object
from suites.drivers import Drivers
from suites.topology import NUMA_NODE


def group(root: Path, addresses: Iterable[str], *, name: str = "gpu", numa: str = "int") -> Object:
    """Devices of an inventory at these PCI addresses of a sysfs."""
    wanted = list(addresses)
    return {
        "name": f"{name}-{{index}}",
        "count": len(wanted),
        "topology": {"numa": numa, "sysfs": str(root), "addresses": wanted},
    }


def published(drivers: Drivers, driver: HostedDriver) -> dict[str, Object]:
    """A driver's devices as its slices have them, by name."""
    return {
        device["name"]: device for slice_ in drivers.slices(driver) for device in slice_["spec"]["devices"]
    }


def numa_nodes(devices: Mapping[str, Object]) -> dict[str, Any]:
    """numaNode of each device as the API writes it; None where it is missing."""
    return {name: device["attributes"].get(NUMA_NODE) for name, device in devices.items()}


def expected_nodes(truth: Mapping[str, int], *, name: str = "gpu") -> dict[str, Any]:
    """What a group of devices has to publish, one integer each and nothing for -1, by device."""
    return {
        f"{name}-{index}": {"int": node} if node >= 0 else None for index, node in enumerate(truth.values())
    }
