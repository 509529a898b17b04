"""What a driver publishes about where its devices are: NUM-01 to NUM-04, NUM-08 and NUM-09."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clusters.driver_host import HostedDriver
from clusters.interface import Cluster
from harness.waiting import wait_until
from suites.control import Control
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal, precondition
from suites.marks import exclusive, requirement
from suites.numa.devices import expected_nodes, group, numa_nodes, published
from suites.numa.machines import (
    FLAT,
    HOST,
    LONE,
    NO_SLIT,
    NPS1,
    NPS4,
    UNEVEN,
    Machine,
    host_devices,
    set_numa_node,
)
from suites.topology import NUMA_NODE, PCI_BUS_ID, PCIE_ROOT


@requirement("NUM-01")
@pytest.mark.parametrize("preset", ["h200", "nic"])
def test_numa_node_has_the_standard_name(
    preset: str, cluster: Cluster, drivers: Drivers, evidence: Observations
) -> None:
    """A device that publishes its NUMA node does so under the standard name, which holds an integer."""
    driver = drivers.start(nodes=cluster.nodes[:1], inventory={"devices": [{"preset": preset, "count": 8}]})

    devices = published(drivers, driver)

    evidence("attributes about NUMA", {name: _about(device, "numa") for name, device in devices.items()})
    for name, device in devices.items():
        about = _about(device, "numa")
        expect(f"{name} uses {NUMA_NODE}", NUMA_NODE in about or not about, about, device)
        value = about.get(NUMA_NODE, {"int": 0})
        (form,) = value
        expect(f"{name}'s {NUMA_NODE} holds integers", form in ("int", "ints"), value, device)


@requirement("NUM-02", "NUM-03")
def test_the_node_is_that_of_sysfs(
    cluster: Cluster, drivers: Drivers, tmp_path: Path, evidence: Observations
) -> None:
    """Each device has the node that sysfs shows, on a made machine and on this one; -1 is left out."""
    groups = [group(NPS4.write(tmp_path), NPS4.devices)]
    if host_devices():
        groups.append(group(HOST, host_devices(), name="host"))

    driver = drivers.start(nodes=cluster.nodes[:1], inventory={"devices": groups})

    found = numa_nodes(published(drivers, driver))
    evidence("numa_node in sysfs", {"made machine": NPS4.devices, "this machine": host_devices()})
    evidence("published", found)
    expected = expected_nodes(NPS4.devices) | expected_nodes(host_devices(), name="host")
    expect_equal("numaNode by device", found, expected)


@requirement("NUM-02", "NUM-03")
def test_the_node_is_the_declared_one(cluster: Cluster, drivers: Drivers, evidence: Observations) -> None:
    """Of eight GPUs on two sockets four are on node 0 and four on 1; without topology, on none."""
    plain = {"name": "plain-{index}", "count": 2, "topology": {"numa": "none"}}
    inventory = {"devices": [{"preset": "h200", "count": 8}, plain]}

    driver = drivers.start(nodes=cluster.nodes[:1], inventory=inventory)

    found = numa_nodes(published(drivers, driver))
    evidence("published", found)
    expected: dict[str, Any] = {f"gpu-{index}": {"int": 0 if index < 4 else 1} for index in range(8)}
    expect_equal("numaNode by device", found, {**expected, "plain-0": None, "plain-1": None})


LISTS: dict[str, tuple[Machine, list[list[int] | None]]] = {
    "all nodes of the socket": (NPS4, [[5, 4, 6, 7], [6, 4, 5, 7], [0, 1, 2, 3], None]),
    "the nearest of the socket": (UNEVEN, [[0, 1], [2, 3], [3, 2]]),
    "none of the other socket": (FLAT, [[1, 0], [2, 3]]),
    "one node": (LONE, [[0]]),
    "no SLIT": (NO_SLIT, [[1], [0]]),
}


@requirement("NUM-04")
@pytest.mark.parametrize(("machine", "expected"), LISTS.values(), ids=LISTS)
def test_a_list_goes_on_with_the_nearest_nodes(
    machine: Machine,
    expected: list[list[int] | None],
    cluster: Cluster,
    drivers: Drivers,
    tmp_path: Path,
    evidence: Observations,
) -> None:
    """The device's own node comes first, then those of its socket at the smallest distance, and no others."""
    inventory = {"devices": [group(machine.write(tmp_path), machine.devices, numa="ints")]}

    driver = drivers.start(nodes=cluster.nodes[:1], inventory=inventory)

    found = numa_nodes(published(drivers, driver))
    evidence("distances", machine.slit)
    evidence("sockets of the nodes", machine.sockets)
    evidence("published", found)
    for (name, value), wanted in zip(found.items(), expected, strict=True):
        nodes = value["ints"] if value else None
        expect_equal(f"first node of {name}", nodes and nodes[0], wanted and wanted[0])
        expect_equal(f"further nodes of {name}", nodes and sorted(nodes[1:]), wanted and wanted[1:])


@requirement("NUM-09")
def test_pci_attributes_are_those_of_sysfs(
    cluster: Cluster, drivers: Drivers, tmp_path: Path, evidence: Observations
) -> None:
    """pciBusID and pcieRoot have the standard names and agree with sysfs, here and on a made machine."""
    roots = {address: f"pci{address[:5]}{int(address[5:7], 16) - 1:02x}" for address in NPS4.devices}
    roots |= {address: _root_in_sysfs(address) for address in host_devices()}
    groups = [group(NPS4.write(tmp_path), NPS4.devices)]
    if host_devices():
        groups.append(group(HOST, host_devices(), name="host"))

    driver = drivers.start(nodes=cluster.nodes[:1], inventory={"devices": groups})

    devices = published(drivers, driver)
    found = {name: _about(device, "pci") for name, device in devices.items()}
    evidence("published", found)
    expected = [
        {PCI_BUS_ID: {"string": address}, PCIE_ROOT: {"string": root}} for address, root in roots.items()
    ]
    expect_equal("what devices say about PCI", list(found.values()), expected)


def _root_in_sysfs(address: str) -> str:
    return next(
        folder.name for folder in (HOST / "devices").glob("pci*:*") if list(folder.glob(f"**/{address}"))
    )


def _about(device: dict[str, Any], word: str) -> dict[str, Any]:
    """The attributes of a device whose names have a word in them."""
    return {name: value for name, value in device["attributes"].items() if word in name.lower()}


@requirement("NUM-08")
def test_values_survive_the_driver(
    cluster: Cluster, drivers: Drivers, tmp_path: Path, evidence: Observations
) -> None:
    """A driver that crashes and starts again publishes the same; after other firmware settings, the new."""
    root = NPS4.write(tmp_path)
    inventory = {"devices": [group(root, NPS4.devices)]}
    driver = drivers.start(nodes=cluster.nodes[:1], inventory=inventory)
    before = published(drivers, driver)

    driver.kill()
    driver.wait_ready(driver.start())
    same = published(drivers, driver)
    driver.kill()
    for address, node in NPS1.items():
        set_numa_node(root, address, node)
    driver.wait_ready(driver.start())
    after = numa_nodes(published(drivers, driver))

    evidence("before", numa_nodes(before))
    evidence("after a restart", numa_nodes(same))
    evidence("after other firmware settings", after)
    expect_equal("devices after a restart", same, before)
    expect_equal("numaNode after other firmware settings", after, expected_nodes(NPS1))


@requirement("NUM-08")
@exclusive
def test_values_survive_the_kubelet(
    cluster: Cluster, control: Control, drivers: Drivers, tmp_path: Path, evidence: Observations
) -> None:
    """A kubelet that starts takes the slices of its node away; what the driver publishes then is the same."""
    node = cluster.nodes[0]
    inventory = {"devices": [group(NPS4.write(tmp_path), NPS4.devices)]}
    driver = drivers.start(nodes=[node], inventory=inventory)
    before = published(drivers, driver)
    first = _uids(drivers, driver)

    control.restart(f"kubelet/{node.name}")
    with precondition("a kubelet that starts takes the slices of its node away"):
        wait_until(lambda: not first & _uids(drivers, driver), 60, f"other slices of {driver.name}, or none")

    after = wait_until(lambda: published(drivers, driver), 60, f"slices of {driver.name} to be there")
    evidence("before", numa_nodes(before))
    evidence("after", numa_nodes(after))
    expect_equal("devices after the kubelet's restart", after, before)


def _uids(drivers: Drivers, driver: HostedDriver) -> set[str]:
    return {slice_["metadata"]["uid"] for slice_ in drivers.slices(driver)}
