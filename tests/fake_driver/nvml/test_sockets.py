"""The whole driver with the hardware's inventory: sockets, slices, CDI specs, health stream."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_driver.client import DriverClient
from fake_driver.errors import ConfigError
from fake_driver.inventory.model import Taint

from harness.waiting import wait_until
from tests.fake_driver.conftest import DRIVER, NODE, Rig, node_config
from tests.fake_driver.kubelet import StubKubelet
from tests.fake_driver.nvml.conftest import settings
from tests.fake_driver.nvml.machine import DRIVER_NOT_LOADED, LARGE, LOST, SMALL, XID, Machine
from tests.fake_driver.standin import ApiServerStandin
from tests.fake_driver.test_health import HEALTHY, UNHEALTHY, UNKNOWN, states

Claims = Callable[..., dict[str, Any]]
SMALL_NAME, LARGE_NAME = "gpu-0-mig-1g5gb-19-4", "gpu-0-mig-3g20gb-9-0"


@pytest.fixture
def rig(machine: Machine, start: Callable[..., Rig]) -> Rig:
    """A driver on a machine with an A100 in two MIG devices and an H100."""
    machine.gpu("a100", 0, LARGE, SMALL)
    machine.gpu("h100", 1)
    return start(inventory={"nvml": settings(machine)})


def published(rig: Rig) -> dict[str, dict[str, Any]]:
    return {device["name"]: device for slice_ in rig.api.slices() for device in slice_["spec"]["devices"]}


def spec_of(rig: Rig, claim: dict[str, Any]) -> Any:
    return json.loads((rig.cdi_dir() / f"{DRIVER}_claim_{claim['metadata']['uid']}.json").read_text())


def test_it_registers_and_publishes(rig: Rig) -> None:
    info = rig.kubelet().register()
    assert (info.type, info.name) == ("DRAPlugin", DRIVER)
    assert set(published(rig)) == {LARGE_NAME, SMALL_NAME, "gpu-1"}
    assert published(rig)["gpu-1"]["attributes"]["architecture"] == {"string": "Hopper"}
    assert published(rig)["gpu-1"]["capacity"] == {"memory": {"value": "81559Mi"}}
    (slice_,) = rig.api.slices()
    assert slice_["spec"]["pool"] == {"name": NODE, "generation": 1, "resourceSliceCount": 1}
    assert rig.client.status().node(NODE).inventory_problem == ""


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_prepare_hands_out_the_real_nodes(rig: Rig, claim: Claims, version: str) -> None:
    one = claim(("big", "gpu-1"), ("slice", SMALL_NAME))
    answer = rig.kubelet().prepare(one, version=version)[one["metadata"]["uid"]]
    assert answer.error == ""
    assert [device.device_name for device in answer.devices] == ["gpu-1", SMALL_NAME]
    spec = spec_of(rig, one)
    edits = {device["name"].rpartition("_")[2]: device["containerEdits"] for device in spec["devices"]}
    paths = {name: [node["path"] for node in edit["deviceNodes"]] for name, edit in edits.items()}
    assert paths["gpu-1"][1:] == ["/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"]
    assert "/dev/nvidia0" in paths[SMALL_NAME]
    assert "/dev/nvidia-caps/nvidia-cap701" in paths[SMALL_NAME]
    for edit in edits.values():
        assert "NVIDIA_VISIBLE_DEVICES=void" in edit["env"]
        assert any(entry.startswith("DRA_DEVICE_") for entry in edit["env"])
        assert "/usr/lib/x86_64-linux-gnu/libcuda.so.1" in {one["containerPath"] for one in edit["mounts"]}
    rig.kubelet().unprepare(one)
    assert list(rig.cdi_dir().iterdir()) == []


def test_a_missing_node_fails_that_claim_only(rig: Rig, claim: Claims, machine: Machine) -> None:
    (machine.root / "dev/nvidia1").unlink()
    bad, good = claim(("req", "gpu-1")), claim(("req", LARGE_NAME))
    answers = rig.kubelet().prepare(bad, good)
    assert answers[bad["metadata"]["uid"]].error.startswith("device node /dev/nvidia1 of GPU GPU-")
    assert answers[good["metadata"]["uid"]].error == ""
    assert rig.client.status().node(NODE).prepared_claims == [good["metadata"]["uid"]]


def test_a_prepared_claim_survives_the_loss_of_its_gpu(
    rig: Rig, claim: Claims, machine: Machine, start: Callable[..., Rig]
) -> None:
    one = claim(("req", "gpu-1"))
    rig.kubelet().prepare(one)
    before = spec_of(rig, one)
    rig.stop()
    for path in rig.cdi_dir().iterdir():
        path.unlink()  # as a reboot does
    machine.add(f"fail 1 * {LOST}")
    again = start(inventory={"nvml": settings(machine)})
    assert spec_of(again, one) == before
    assert again.client.status().node(NODE).inventory_problem == "GPU 1 is lost: GPU is lost"
    assert again.kubelet().unprepare(one)[one["metadata"]["uid"]].error == ""


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
def test_health_is_streamed_as_it_changes(rig: Rig, machine: Machine, version: str) -> None:
    with rig.kubelet().watch_health(version) as stream:
        assert states(next(stream)) == {LARGE_NAME: HEALTHY, SMALL_NAME: HEALTHY, "gpu-1": HEALTHY}
        machine.event(XID, 94, instance=(7, 0))
        changed = next(stream)
        assert states(changed) == {LARGE_NAME: HEALTHY, SMALL_NAME: UNHEALTHY, "gpu-1": HEALTHY}
        assert [device.message for device in changed.devices if device.message] == [
            "XID 94 (contained ECC error)"
        ]
        machine.add(f"fail 1 * {LOST}")
        assert states(next(stream))["gpu-1"] == UNHEALTHY
        machine.take(f"fail 1 * {LOST}")
        assert states(next(stream))["gpu-1"] == HEALTHY


def test_taints_follow_in_the_same_generation(rig: Rig, machine: Machine) -> None:
    machine.add(f"fail 1 * {LOST}")
    lost = [{"key": f"{DRIVER}/gpu-lost", "effect": "NoSchedule"}]
    wait_until(lambda: published(rig)["gpu-1"].get("taints") == lost, 60, "the taint", interval=0.02)
    assert {slice_["spec"]["pool"]["generation"] for slice_ in rig.api.slices()} == {1}
    machine.take(f"fail 1 * {LOST}")
    wait_until(lambda: "taints" not in published(rig)["gpu-1"], 60, "its end", interval=0.02)


def test_taints_of_the_hardware_and_of_the_control_endpoint_add_up(rig: Rig, machine: Machine) -> None:
    rig.client.set_taints("gpu-1", [Taint(key="a.dev/b", effect="NoSchedule")])
    machine.event(XID, 79, gpu=1)
    wait_until(lambda: len(published(rig)["gpu-1"]["taints"]) == 2, 60, "both taints", interval=0.02)
    assert {taint["key"] for taint in published(rig)["gpu-1"]["taints"]} == {"a.dev/b", f"{DRIVER}/xid"}


def test_health_that_was_set_wins(rig: Rig) -> None:
    rig.client.set_health("gpu-1", "Unknown", "by hand")
    with rig.kubelet().watch_health() as stream:
        assert states(next(stream))["gpu-1"] == UNKNOWN


def test_another_inventory_ends_the_watch(rig: Rig, machine: Machine) -> None:
    rig.client.set_inventory({"devices": [{"name": "other"}]})
    machine.add(f"fail 1 * {LOST}")
    with rig.kubelet().watch_health() as stream:
        assert states(next(stream)) == {"other": HEALTHY}
    assert set(published(rig)) == {"other"}


def test_without_nvml_the_driver_serves_and_says_why(machine: Machine, start: Callable[..., Rig]) -> None:
    machine.gpu("h100", 0)
    machine.add(f"fail -1 nvmlInitWithFlags {DRIVER_NOT_LOADED}")
    rig = start(inventory={"nvml": settings(machine)})
    assert rig.kubelet().register().name == DRIVER
    assert rig.api.slices() == []
    assert rig.client.status().node(NODE).inventory_problem == "NVML can't be used: Driver Not Loaded"
    with rig.kubelet().watch_health() as stream:
        assert states(next(stream)) == {}
        machine.take(f"fail -1 nvmlInitWithFlags {DRIVER_NOT_LOADED}")
        assert states(next(stream)) == {"gpu-0": HEALTHY}
    wait_until(lambda: set(published(rig)) == {"gpu-0"}, 60, "the GPU's slice", interval=0.02)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"nvml": {"rot": "/"}}, "inventory.nvml.rot: unknown key; did you mean 'root'?"),
        ({"nvml": {"checkSeconds": 0}}, "inventory.nvml.checkSeconds: input should be greater than 0, got 0"),
        ({"nvml": {"numa": "list"}}, "inventory.nvml.numa: input should be 'int', 'ints' or 'none'"),
        ({"nvml": {}, "devices": []}, "inventory.devices: unknown key; expected one of nvml"),
    ],
)
def test_wrong_settings(machine: Machine, start: Callable[..., Rig], value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        start(inventory=value)
    assert message in str(caught.value)


def test_one_machine_is_one_node(machine: Machine, start: Callable[..., Rig], tmp_path: Path) -> None:
    both = [node_config(tmp_path, NODE), node_config(tmp_path, "node-2")]
    with pytest.raises(
        ConfigError, match=r"inventory: nvml is the hardware of one machine; .* node-1, node-2"
    ):
        start(inventory={"nvml": settings(machine)}, nodes=both)


def test_beside_a_synthetic_node(
    machine: Machine, start: Callable[..., Rig], tmp_path: Path, api: ApiServerStandin
) -> None:
    api.node("node-2")
    machine.gpu("h100", 0)
    both = [
        node_config(tmp_path, NODE) | {"inventory": {"nvml": settings(machine)}},
        node_config(tmp_path, "node-2"),
    ]
    assert set(published(start(nodes=both))) == {"gpu-0", "dev-0", "dev-1"}


def test_as_a_program_that_finds_the_library_by_itself(
    machine: Machine, write_config: Callable[..., Path], tmp_path: Path, api: ApiServerStandin
) -> None:
    machine.gpu("h100", 0)
    (machine.root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1").unlink()
    config = write_config(inventory={"nvml": {"root": str(machine.root), "checkSeconds": 0.05}})
    environment = os.environ | {"LD_LIBRARY_PATH": str(machine.library.parent)}
    command = [sys.executable, "-m", "fake_driver", "serve", "--config", str(config)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert select.select([process.stdout], [], [], 30)[0], "the driver said nothing"
            assert json.loads(process.stdout.readline())["ready"] is True
            client = DriverClient(tmp_path / "control.sock")
            assert client.status().node(NODE).devices == ["gpu-0"]
            with StubKubelet(tmp_path / NODE / "kubelet", DRIVER).watch_health() as stream:
                assert states(next(stream)) == {"gpu-0": HEALTHY}
                machine.event(XID, 79)
                assert states(next(stream)) == {"gpu-0": UNHEALTHY}
            client.stop()
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert len(api.slices()) == 1
