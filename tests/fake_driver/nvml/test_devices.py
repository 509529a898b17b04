"""GPUs as devices: the expected values are NVIDIA's data sheets' and its driver's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_driver.inventory.base import NodeInventory
from fake_driver.inventory.nvml.devices import binary_si, semver
from fake_driver.inventory.nvml.inventory import NvmlInventory
from fake_driver.inventory.nvml.scan import pci_address

from tests.fake_driver.nvml.machine import HALVES, LARGE, NOT_SUPPORTED, SMALL, Machine

Make = Callable[..., NvmlInventory]


def look(inventory: Make, **more: Any) -> NodeInventory:
    return inventory(**more).for_node("node-1")


def test_a_whole_gpu(machine: Machine, inventory: Make) -> None:
    machine.gpu("h100", 2, numa=1)
    (device,) = look(inventory).devices
    assert device == {
        "name": "gpu-2",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": "GPU-00000000-0000-4000-8000-000000000002"},
            "productName": {"string": "NVIDIA H100 80GB HBM3"},
            "brand": {"string": "Nvidia"},
            "architecture": {"string": "Hopper"},
            "cudaComputeCapability": {"version": "9.0.0"},
            "driverVersion": {"version": "580.126.9"},
            "cudaDriverVersion": {"version": "13.0.0"},
            "addressingMode": {"string": "HMM"},
            "resource.kubernetes.io/pciBusID": {"string": "0000:5b:00.0"},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:5a"},
            "resource.kubernetes.io/numaNode": {"int": 1},
        },
        "capacity": {"memory": {"value": "81559Mi"}},
    }


def test_versions_of_the_driver(machine: Machine, inventory: Make) -> None:
    machine.take(machine.lines[0])
    machine.add("driver 570.86.15 12080")
    machine.gpu("h100", 0)
    attributes = look(inventory).devices[0]["attributes"]
    assert attributes["driverVersion"] == {"version": "570.86.15"}
    assert attributes["cudaDriverVersion"] == {"version": "12.8.0"}


def test_what_an_older_library_lacks_is_left_out(
    machine: Machine, inventory: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("pynvml.nvmlDeviceGetAddressingMode")
    machine.gpu("h100", 0)
    found = look(inventory)
    assert "addressingMode" not in found.devices[0]["attributes"]
    assert found.problem == ""


def test_an_old_gpu_leaves_out_what_nvml_does_not_support(machine: Machine, inventory: Make) -> None:
    machine.gpu("k80", 0)
    machine.add(f"fail 0 nvmlDeviceGetArchitecture {NOT_SUPPORTED}")
    found = look(inventory)
    attributes = found.devices[0]["attributes"]
    assert "addressingMode" not in attributes
    assert attributes["architecture"] == {"string": "Unknown"}
    assert attributes["brand"] == {"string": "Tesla"}
    assert attributes["cudaComputeCapability"] == {"version": "3.7.0"}
    assert found.devices[0]["capacity"] == {"memory": {"value": "11441Mi"}}
    assert found.problem == ""


def test_memory_without_a_figure_is_no_capacity(machine: Machine, inventory: Make) -> None:
    machine.gpu("gb10", 0)
    (device,) = look(inventory).devices
    assert device["capacity"] == {}
    assert device["attributes"]["addressingMode"] == {"string": "ATS"}
    assert device["attributes"]["cudaComputeCapability"] == {"version": "12.1.0"}


def test_mig_devices_stand_for_their_gpu(machine: Machine, inventory: Make) -> None:
    machine.gpu("a100", 0, LARGE, SMALL)
    machine.gpu("a100", 1)
    devices = look(inventory).devices
    assert [device["name"] for device in devices] == [
        "gpu-0-mig-3g20gb-9-0",
        "gpu-0-mig-1g5gb-19-4",
        "gpu-1",
    ]
    large, small, _ = devices
    assert small["attributes"] == {
        "type": {"string": "mig"},
        "uuid": {"string": "MIG-00000000-0000-4000-8000-000000070000"},
        "parentUUID": {"string": "GPU-00000000-0000-4000-8000-000000000000"},
        "profile": {"string": "1g.5gb"},
        "productName": {"string": "NVIDIA A100-SXM4-40GB"},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": "Ampere"},
        "cudaComputeCapability": {"version": "8.0.0"},
        "driverVersion": {"version": "580.126.9"},
        "cudaDriverVersion": {"version": "13.0.0"},
        "addressingMode": {"string": "None"},
        "resource.kubernetes.io/pciBusID": {"string": "0000:1b:00.0"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:1a"},
        "resource.kubernetes.io/numaNode": {"int": 0},
    }
    assert small["capacity"] == {
        "memory": {"value": "4864Mi"},
        "multiprocessors": {"value": "14"},
        "copyEngines": {"value": "1"},
        "decoders": {"value": "0"},
        "encoders": {"value": "0"},
        "jpegEngines": {"value": "0"},
        "ofaEngines": {"value": "0"},
        "memorySlice4": {"value": "1"},
    }
    assert large["attributes"]["profile"] == {"string": "3g.20gb"}
    assert {key for key in large["capacity"] if key.startswith("memorySlice")} == {
        f"memorySlice{number}" for number in range(4)
    }


def test_compute_instances_of_one_gpu_instance_have_names_of_their_own(
    machine: Machine, inventory: Make
) -> None:
    machine.gpu("a100", 0, *HALVES)
    profiles = {
        device["name"]: device["attributes"]["profile"]["string"] for device in look(inventory).devices
    }
    assert profiles == {
        "gpu-0-mig-1c3g20gb-9-0-0": "1c.3g.20gb",
        "gpu-0-mig-2c3g20gb-9-0-1": "2c.3g.20gb",
    }


def test_mig_mode_without_mig_devices_is_said(machine: Machine, inventory: Make) -> None:
    machine.gpu("a100", 0)
    machine.add("fail 0 mig-without-devices 1")
    found = look(inventory)
    assert (found.devices, found.problem) == ((), "GPU 0 is in MIG mode and has no MIG devices")


@pytest.mark.parametrize(
    ("numa", "node", "expected"),
    [("int", -1, None), ("ints", 1, {"ints": [1]}), ("none", 1, None), ("int", 3, {"int": 3})],
)
def test_numa_node(machine: Machine, inventory: Make, numa: str, node: int, expected: Any) -> None:
    machine.gpu("h100", 0, numa=node)
    (device,) = look(inventory, numa=numa).devices
    assert device["attributes"].get("resource.kubernetes.io/numaNode") == expected
    assert device["attributes"]["resource.kubernetes.io/pcieRoot"] == {"string": "pci0000:1a"}


def test_without_sysfs_only_the_address_is_known(machine: Machine, inventory: Make) -> None:
    machine.gpu("h100", 0, numa=None)
    (device,) = look(inventory).devices
    standard = {key: value for key, value in device["attributes"].items() if "/" in key}
    assert standard == {"resource.kubernetes.io/pciBusID": {"string": "0000:1b:00.0"}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("580.126.09", "580.126.9"),
        ("535.104", "535.104.0"),
        ("470.57.02-open", "470.57.2"),
        ("1.2.3.4", None),
        ("R580", None),
    ],
)
def test_driver_versions_are_semantic_versions(text: str, expected: str | None) -> None:
    assert semver(text) == expected


@pytest.mark.parametrize(
    ("amount", "expected"),
    [(85520809984, "81559Mi"), (1 << 40, "1Ti"), (3 * 512, "1536"), (5120, "5Ki"), (0, "0")],
)
def test_quantities_are_canonical(amount: int, expected: str) -> None:
    assert binary_si(amount) == expected


@pytest.mark.parametrize(
    ("bus_id", "expected"), [("00000000:1B:00.0", "0000:1b:00.0"), ("00010000:01:00.0", "10000:01:00.0")]
)
def test_pci_addresses_are_those_of_sysfs(bus_id: str, expected: str) -> None:
    assert pci_address(bus_id) == expected


def test_no_library(machine: Machine, inventory: Make, tmp_path: Path) -> None:
    found = look(inventory, library=str(tmp_path / "nowhere.so"))
    assert found.devices == ()
    assert found.problem.startswith(f"can't load {tmp_path}/nowhere.so: ")
    assert "No such file" in found.problem
