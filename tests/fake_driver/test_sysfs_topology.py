"""Topology attributes read from a sysfs; the expected lists are worked out from KEP-6072 by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_driver.errors import ConfigError
from fake_driver.inventory.synthetic import load_inventory
from fake_driver.inventory.sysfs import topology

ADDRESS = "0000:1b:00.0"
NUMA = "resource.kubernetes.io/numaNode"


def sysfs(root: Path, numa_node: str, distances: dict[int, str], sockets: dict[int, int]) -> Path:
    """One device below root pci0000:1a; each node has one CPU of its own number."""
    device = root / "devices/pci0000:1a/0000:1a:01.0" / ADDRESS
    device.mkdir(parents=True)
    (device / "numa_node").write_text(f"{numa_node}\n")
    link = root / "bus/pci/devices" / ADDRESS
    link.parent.mkdir(parents=True)
    link.symlink_to(device)
    for node, row in distances.items():
        (root / f"devices/system/node/node{node}").mkdir(parents=True)
        (root / f"devices/system/node/node{node}/distance").write_text(f"{row}\n")
    for node, socket in sockets.items():
        folder = root / f"devices/system/cpu/cpu{node}/topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{socket}\n")
        (root / f"devices/system/node/node{node}").mkdir(parents=True, exist_ok=True)
        (root / f"devices/system/node/node{node}/cpulist").write_text(f"{node}\n")
    return root


@pytest.mark.parametrize(
    ("node", "distances", "sockets", "expected"),
    [
        pytest.param("1", {1: "12 10 12"}, {}, [1, 0, 2], id="no sockets known"),
        pytest.param("0", {0: "10 12 12 20"}, {0: 0, 1: 0, 2: 1}, [0, 1], id="another socket as near"),
        pytest.param("2", {2: "12 12 10 11"}, {0: 0, 1: 0, 2: 0, 3: 0}, [2, 3], id="nearest only"),
        pytest.param("0", {0: "10"}, {0: 0}, [0], id="one node"),
        pytest.param("1", {}, {0: 0, 1: 0}, [1], id="no SLIT"),
    ],
)
def test_list(
    tmp_path: Path, node: str, distances: dict[int, str], sockets: dict[int, int], expected: list[int]
) -> None:
    root = sysfs(tmp_path, node, distances, sockets)

    assert topology(root, ADDRESS, numa="ints", pcie=False) == {NUMA: {"ints": expected}}


@pytest.mark.parametrize(
    ("node", "expected"), [("3", {NUMA: {"int": 3}}), ("0", {NUMA: {"int": 0}}), ("-1", {})]
)
def test_single_value(tmp_path: Path, node: str, expected: dict[str, Any]) -> None:
    assert topology(sysfs(tmp_path, node, {}, {}), ADDRESS, numa="int", pcie=False) == expected


def test_pci_attributes(tmp_path: Path) -> None:
    assert topology(sysfs(tmp_path, "-1", {}, {}), ADDRESS, numa="int", pcie=True) == {
        "resource.kubernetes.io/pciBusID": {"string": ADDRESS},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:1a"},
    }


def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"0000:77:00\.0/numa_node: expected a number"):
        topology(sysfs(tmp_path, "0", {}, {}), "0000:77:00.0", numa="int", pcie=False)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"sysfs": "/sys"}, "expected sysfs and addresses together"),
        ({"sysfs": "/sys", "addresses": [ADDRESS]}, "expected one for each device, 2 in all"),
    ],
)
def test_a_group_needs_an_address_for_each_device(tmp_path: Path, wanted: Any, message: str) -> None:
    profile = {"devices": [{"count": 2, "topology": wanted}]}

    with pytest.raises(ConfigError, match=message):
        load_inventory(profile, tmp_path / "driver.yaml")
