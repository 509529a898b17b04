"""Machines as sysfs shows them: the ground truth about where a driver's devices are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HOST = Path("/sys")


@dataclass(frozen=True)
class Machine:
    """NUMA nodes, sockets, and PCI devices."""

    devices: Mapping[str, int]
    """PCI address -> the device's NUMA node, -1 for none."""
    sockets: Sequence[int] = (0,)
    """The socket of each NUMA node."""
    slit: Sequence[Sequence[int]] = ()
    """Distances from each node to each; empty if the firmware has no SLIT."""

    def write(self, root: Path) -> Path:
        """Write it as a sysfs and return where that is. Device `0000:1b:00.0` is below root `pci0000:1a`."""
        for node, socket in enumerate(self.sockets):
            folder = root / f"devices/system/node/node{node}"
            _write(folder / "cpulist", f"{2 * node}-{2 * node + 1}")
            if self.slit:
                _write(folder / "distance", " ".join(map(str, self.slit[node])))
            topology = root / f"devices/system/cpu/cpu{2 * node}/topology"
            _write(topology / "physical_package_id", str(socket))
        for address, node in self.devices.items():
            set_numa_node(root, address, node)
        return root


def set_numa_node(root: Path, address: str, node: int) -> None:
    """Say which NUMA node a device is on, as firmware settings do at boot."""
    domain, bus, _ = address.split(":")
    device = root / f"devices/pci{domain}:{int(bus, 16) - 1:02x}" / address
    _write(device / "numa_node", str(node))
    link = root / "bus/pci/devices" / address
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(device)


def host_devices() -> dict[str, int]:
    """The PCI devices of this machine, eight at most, and their NUMA nodes; none if it shows none."""
    folders = sorted((HOST / "bus/pci/devices").glob("*:*"))[:8]
    return {folder.name: int((folder / "numa_node").read_text()) for folder in folders}


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def _uniform(nodes: int, per_socket: int, within: int, across: int) -> list[list[int]]:
    return [
        [10 if a == b else within if a // per_socket == b // per_socket else across for b in range(nodes)]
        for a in range(nodes)
    ]


NPS4 = Machine(
    devices={"0000:1b:00.0": 5, "0000:2b:00.0": 6, "0000:3b:00.0": 0, "0000:4b:00.0": -1},
    sockets=[0, 0, 0, 0, 1, 1, 1, 1],
    slit=_uniform(8, 4, 12, 32),
)
"""Two sockets of four nodes each, as with AMD's NPS4; a device without a node."""

NPS1 = {"0000:1b:00.0": 1, "0000:2b:00.0": 1, "0000:3b:00.0": 0, "0000:4b:00.0": -1}
"""The nodes of the same devices once each socket is one node."""

UNEVEN = Machine(
    devices={"0000:1b:00.0": 0, "0000:2b:00.0": 2, "0000:3b:00.0": 3},
    sockets=[0, 0, 0, 0],
    slit=[[10, 11, 12, 12], [11, 10, 12, 12], [12, 12, 10, 11], [12, 12, 11, 10]],
)
"""One socket of four nodes that lie in pairs."""

FLAT = Machine(
    devices={"0000:1b:00.0": 1, "0000:2b:00.0": 2}, sockets=[0, 0, 1, 1], slit=_uniform(4, 4, 20, 20)
)
"""Two sockets whose nodes are all as far from each other."""

LONE = Machine(devices={"0000:1b:00.0": 0}, sockets=[0], slit=[[10]])
"""One node."""

NO_SLIT = Machine(devices={"0000:1b:00.0": 1, "0000:2b:00.0": 0}, sockets=[0, 0])
"""Two nodes, and firmware that says nothing about distances."""
