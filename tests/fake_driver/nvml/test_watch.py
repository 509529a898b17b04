"""GPUs that fail while they are watched: health, taints and what is told to whom."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from fake_driver.inventory.base import Health, NodeInventory
from fake_driver.inventory.nvml.inventory import NvmlInventory

from harness.waiting import wait_until
from tests.fake_driver.conftest import DRIVER
from tests.fake_driver.nvml.machine import (
    DOUBLE_BIT_ECC,
    DRIVER_NOT_LOADED,
    LARGE,
    LOST,
    NOT_SUPPORTED,
    SMALL,
    UNKNOWN,
    XID,
    Machine,
)

Make = Callable[..., NvmlInventory]


class Watched:
    """An inventory under watch, and how often it said that it changed."""

    def __init__(self, inventory: NvmlInventory) -> None:
        self._inventory = inventory
        self.changes = threading.Semaphore(0)
        inventory.for_node("node-1")
        inventory.start(self.changes.release)

    @property
    def now(self) -> NodeInventory:
        return self._inventory.for_node("node-1")

    def health(self, device: str) -> Health:
        return self.now.health[device]

    def taints(self, device: str) -> list[dict[str, str]]:
        found = self.now.device(device)
        assert found
        return list(found.get("taints", []))

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for news, not for time: what nobody is told of doesn't count."""
        while not condition():
            assert self.changes.acquire(timeout=60), f"expected {what}, got {self.now}"


@pytest.fixture
def watch(inventory: Make) -> Callable[..., Watched]:
    return lambda **more: Watched(inventory(**more))


Watch = Callable[..., Watched]


def test_a_lost_gpu_stays_tainted_and_comes_back(machine: Machine, watch: Watch) -> None:
    machine.gpu("h100", 0)
    machine.gpu("h100", 1)
    watched = watch()
    before = watched.now.device("gpu-0")
    assert watched.health("gpu-0") == Health("Healthy", "")
    machine.add(f"fail 0 * {LOST}")
    watched.until(lambda: bool(watched.taints("gpu-0")), "a taint")
    assert watched.taints("gpu-0") == [{"key": f"{DRIVER}/gpu-lost", "effect": "NoSchedule"}]
    assert watched.health("gpu-0") == Health("Unhealthy", "the GPU is lost: GPU is lost")
    assert (watched.health("gpu-1"), watched.taints("gpu-1")) == (Health(), [])
    machine.event(XID, 79, gpu=1)  # the others are still heard
    watched.until(lambda: watched.health("gpu-1").value == "Unhealthy", "the event of the other GPU")
    machine.take(f"fail 0 * {LOST}")
    watched.until(lambda: watched.health("gpu-0") == Health(), "its return")
    assert watched.now.device("gpu-0") == before


def test_a_gpu_that_is_not_listed_any_more_is_lost(machine: Machine, watch: Watch) -> None:
    machine.gpu("h100", 0)
    machine.gpu("h100", 1)
    watched = watch()
    machine.take("gpu h100 1")
    watched.until(lambda: watched.health("gpu-1").value == "Unhealthy", "the loss")
    assert watched.health("gpu-1").message == "the GPU is lost: NVML doesn't list it any more"
    assert [device["name"] for device in watched.now.devices] == ["gpu-0", "gpu-1"]


def test_a_gpu_that_is_lost_from_the_start_is_said(machine: Machine, watch: Watch) -> None:
    machine.gpu("h100", 0)
    machine.gpu("h100", 1)
    machine.add(f"fail 1 * {LOST}")
    watched = watch()
    assert [device["name"] for device in watched.now.devices] == ["gpu-0"]
    assert watched.now.problem == "GPU 1 is lost: GPU is lost"
    machine.take(f"fail 1 * {LOST}")
    watched.until(lambda: len(watched.now.devices) == 2, "the other GPU")
    assert watched.now.problem == ""
    machine.event(XID, 48, gpu=1)
    watched.until(lambda: watched.health("gpu-1").value == "Unhealthy", "its events")


def test_a_loss_too_short_to_see_leaves_events_heard(
    machine: Machine, watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    machine.gpu("h100", 0)
    watched = watch()
    machine.add(f"fail 0 nvmlEventSetWait_v2 {LOST}")
    wait_until(lambda: "no events: GPU is lost" in caplog.text, 60, "the failed wait", interval=0.02)
    machine.take(f"fail 0 nvmlEventSetWait_v2 {LOST}")
    machine.event(XID, 48)
    watched.until(lambda: watched.health("gpu-0").value == "Unhealthy", "the event")


def test_a_fatal_xid_taints_for_good(machine: Machine, watch: Watch) -> None:
    machine.gpu("h100", 0)
    machine.gpu("h100", 1)
    watched = watch(checkSeconds=60)  # so it's the event that is noticed
    machine.event(XID, 79)
    watched.until(lambda: bool(watched.taints("gpu-0")), "a taint")
    taint = {"key": f"{DRIVER}/xid", "value": "79", "effect": "NoSchedule"}
    assert watched.taints("gpu-0") == [taint]
    assert watched.health("gpu-0") == Health("Unhealthy", "XID 79 (GPU has fallen off the bus)")
    for code in (31, 119):
        machine.event(XID, code)
    machine.event(XID, 48, gpu=1)  # events come in order, so the others were heard before
    watched.until(lambda: watched.health("gpu-1").value == "Unhealthy", "the later events")
    assert watched.taints("gpu-0") == [taint]


def test_an_application_xid_is_only_told(machine: Machine, watch: Watch) -> None:
    machine.gpu("h100", 0)
    watched = watch(checkSeconds=60)
    machine.event(XID, 31)
    watched.until(lambda: bool(watched.taints("gpu-0")), "a taint")
    assert watched.taints("gpu-0") == [{"key": f"{DRIVER}/xid", "value": "31", "effect": "None"}]
    assert watched.health("gpu-0") == Health("Healthy", "XID 31 (GPU memory page fault), of an application")


def test_which_xids_are_harmless_can_be_set(machine: Machine, watch: Watch) -> None:
    machine.gpu("h100", 0)
    watched = watch(checkSeconds=60, harmlessXids=[79], informationalTaints=False)
    machine.event(XID, 79)
    watched.until(lambda: watched.health("gpu-0").message != "", "the harmless one")
    assert (watched.health("gpu-0").value, watched.taints("gpu-0")) == ("Healthy", [])
    machine.event(XID, 31)
    watched.until(lambda: watched.health("gpu-0").value == "Unhealthy", "the fatal one")


def test_an_event_of_a_mig_device_is_its_own(machine: Machine, watch: Watch) -> None:
    machine.gpu("a100", 0, LARGE, SMALL)
    watched = watch()
    large, small = "gpu-0-mig-3g20gb-9-0", "gpu-0-mig-1g5gb-19-4"
    machine.event(XID, 94, instance=(7, 0))
    watched.until(lambda: bool(watched.taints(small)), "a taint")
    assert (watched.health(large), watched.taints(large)) == (Health(), [])
    machine.event(XID, 79)
    watched.until(lambda: bool(watched.taints(large)), "a taint of the whole GPU")
    assert watched.taints(small)[0]["value"] == watched.taints(large)[0]["value"] == "79"


@pytest.mark.parametrize("by_event", [True, False])
def test_uncorrectable_ecc_errors(machine: Machine, watch: Watch, by_event: bool) -> None:
    machine.gpu("h100", 0)
    watched = watch(checkSeconds=60 if by_event else 0.05)
    machine.add("ecc 0 3")
    if by_event:
        machine.event(DOUBLE_BIT_ECC)
    watched.until(lambda: watched.health("gpu-0").value == "Unhealthy", "ill health")
    assert watched.health("gpu-0").message == "3 uncorrectable ECC errors since NVIDIA's driver was loaded"
    assert watched.taints("gpu-0") == []


@pytest.mark.parametrize(
    ("model", "lines", "reason"),
    [
        ("k80", [], "this GPU reports no XIDs"),
        ("h100", [f"fail -1 nvmlEventSetCreate {NOT_SUPPORTED}"], "nvmlEventSetCreate: Not Supported"),
    ],
)
def test_a_gpu_without_events_is_not_called_healthy(
    machine: Machine, watch: Watch, model: str, lines: list[str], reason: str
) -> None:
    machine.gpu(model, 0)
    machine.add(*lines)
    watched = watch()
    assert watched.health("gpu-0") == Health("Unknown", f"not monitored: {reason}")
    assert watched.taints("gpu-0") == [{"key": f"{DRIVER}/unmonitored", "effect": "None"}]
    machine.add(f"fail 0 * {LOST}")  # looks go on
    watched.until(lambda: watched.health("gpu-0").value == "Unhealthy", "the loss")


def test_a_gpu_that_cant_be_read_is_unknown(machine: Machine, watch: Watch) -> None:
    machine.gpu("h100", 0)
    watched = watch()
    machine.add(f"fail 0 nvmlDeviceGetName {UNKNOWN}")
    watched.until(lambda: watched.health("gpu-0").value == "Unknown", "not knowing")
    assert watched.health("gpu-0").message == "the GPU can't be read: nvmlDeviceGetName: Unknown Error"
    assert watched.taints("gpu-0") == []


def test_nvml_that_hangs_makes_health_unknown(machine: Machine, watch: Watch) -> None:
    machine.gpu("h100", 0)
    watched = watch(deadlineSeconds=0.6)
    machine.add("hang nvmlDeviceGetUUID")
    watched.until(lambda: watched.health("gpu-0").value == "Unknown", "not knowing")
    assert watched.health("gpu-0").message == "NVML has not answered for 0.6 s"
    machine.take("hang nvmlDeviceGetUUID")
    watched.until(lambda: watched.health("gpu-0") == Health(), "health")


def test_nvml_comes_goes_and_comes_back(machine: Machine, watch: Watch) -> None:
    machine.gpu("h100", 0)
    missing = f"fail -1 * {DRIVER_NOT_LOADED}"
    machine.add(missing)
    watched = watch()
    assert watched.now == NodeInventory(
        (), problem="NVML can't be used: Driver Not Loaded", edits=watched.now.edits
    )
    machine.take(missing)
    watched.until(lambda: bool(watched.now.devices), "the GPU")
    assert (watched.health("gpu-0"), watched.now.problem) == (Health(), "")
    machine.add(missing)
    watched.until(lambda: bool(watched.taints("gpu-0")), "the loss")
    assert watched.health("gpu-0").value == "Unhealthy"
    assert "Driver Not Loaded" in watched.now.problem
    machine.take(missing)
    watched.until(lambda: watched.health("gpu-0") == Health(), "its return")
    machine.event(XID, 48)
    watched.until(lambda: watched.health("gpu-0").value == "Unhealthy", "events of the new session")


def test_mig_devices_made_and_removed_while_it_runs(machine: Machine, watch: Watch) -> None:
    machine.gpu("a100", 0, LARGE)
    watched = watch()
    machine.add(f"mig 0 {' '.join(map(str, SMALL))}")
    watched.until(lambda: len(watched.now.devices) == 2, "another device")
    machine.take(f"mig 0 {' '.join(map(str, LARGE))}", f"mig 0 {' '.join(map(str, SMALL))}")
    watched.until(lambda: watched.now.device("gpu-0") is not None, "the whole GPU")
    assert len(watched.now.devices) == 1


def test_nothing_is_told_after_the_end(machine: Machine, inventory: Make) -> None:
    machine.gpu("h100", 0)
    made = inventory()
    watched = Watched(made)
    threads = {thread for thread in threading.enumerate() if thread.name.startswith("nvml-")}
    assert len(threads) == 2
    made.stop()
    wait_until(lambda: not any(thread.is_alive() for thread in threads), 60, "the end", interval=0.02)
    machine.add(f"fail 0 * {LOST}")
    assert not watched.changes.acquire(timeout=0.2)
