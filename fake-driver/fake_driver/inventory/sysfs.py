"""The standard topology attributes of PCI devices, as the host's sysfs has them (KEP-6072, KEP-4381)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from fake_driver.errors import ConfigError
from fake_driver.inventory.presets import STANDARD

_ROOT = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}")


def topology(root: Path, address: str, *, numa: str, pcie: bool) -> dict[str, dict[str, Any]]:
    """The attributes of the device at a PCI address.

    A device of no NUMA node (sysfs says -1) gets no numaNode: it would match every other such device.

    Args:
        root: where sysfs is, such as /sys.
        address: extended BDF, such as 0000:1b:00.0.
        numa: the form of numaNode: `int`, `ints` or `none`.
        pcie: whether pciBusID and pcieRoot are wanted.

    Raises:
        ConfigError: sysfs has no such device, or something unexpected about it.
    """
    device = root / "bus/pci/devices" / address
    values: dict[str, dict[str, Any]] = {}
    if pcie:
        values[f"{STANDARD}/pciBusID"] = {"string": address}
        values[f"{STANDARD}/pcieRoot"] = {"string": _pcie_root(device)}
    node = -1 if numa == "none" else _number(device / "numa_node")
    if node >= 0:
        value = {"int": node} if numa == "int" else {"ints": [node, *_nearest(root, node)]}
        values[f"{STANDARD}/numaNode"] = value
    return values


def _pcie_root(device: Path) -> str:
    """The root complex, which is the first PCI folder on the way to the device itself."""
    for part in device.resolve().parts:
        if _ROOT.fullmatch(part):
            return part
    raise ConfigError(f"{device}: expected a link to a device below a PCIe root")


def _nearest(root: Path, node: int) -> list[int]:
    """The other nodes at the smallest SLIT distance, less those known to be on another socket."""
    file = root / f"devices/system/node/node{node}/distance"
    if not file.exists():
        return []
    distances = [int(field) for field in file.read_text().split()]
    others = {other: distance for other, distance in enumerate(distances) if other != node}
    nearest = min(others.values(), default=0)
    socket = _socket(root, node)
    return [
        other
        for other, distance in others.items()
        if distance == nearest and _socket(root, other) in (socket, None)
    ]


def _socket(root: Path, node: int) -> int | None:
    """The socket of a node's first CPU; None if it has none, as a node of memory alone."""
    cpus = root / f"devices/system/node/node{node}/cpulist"
    first = re.match(r"\d+", cpus.read_text()) if cpus.exists() else None
    if first is None:
        return None
    return _number(root / f"devices/system/cpu/cpu{first[0]}/topology/physical_package_id")


def _number(file: Path) -> int:
    try:
        return int(file.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: expected a number: {error}") from None
