"""What a container gets of a GPU: device nodes, libraries under every name that the loader looks for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_driver.errors import ClaimError
from fake_driver.inventory.nvml.cdi import Roots
from fake_driver.inventory.nvml.inventory import NvmlInventory

from harness.waiting import wait_until
from tests.fake_driver.nvml.machine import DRIVER_VERSION, HALVES, SMALL, Machine

Make = Callable[..., NvmlInventory]
FOLDER = "/usr/lib/x86_64-linux-gnu"


def edits(inventory: NvmlInventory, device: str) -> dict[str, Any]:
    return inventory.for_node("node-1").edits(device)


def nodes(found: dict[str, Any]) -> list[str]:
    assert {node["permissions"] for node in found["deviceNodes"]} == {"rw"}
    return [node["path"] for node in found["deviceNodes"]]


def test_a_whole_gpu(machine: Machine, inventory: Make) -> None:
    machine.gpu("h100", 0)
    machine.gpu("h100", 3)
    found = edits(inventory(), "gpu-3")
    assert nodes(found) == ["/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm"]
    assert found["env"] == ["NVIDIA_VISIBLE_DEVICES=void"]
    assert {mount["containerPath"]: mount["hostPath"] for mount in found["mounts"]} == {
        f"{FOLDER}/libcuda.so": f"{FOLDER}/libcuda.so.{DRIVER_VERSION}",
        f"{FOLDER}/libcuda.so.1": f"{FOLDER}/libcuda.so.{DRIVER_VERSION}",
        f"{FOLDER}/libcuda.so.{DRIVER_VERSION}": f"{FOLDER}/libcuda.so.{DRIVER_VERSION}",
        f"{FOLDER}/libnvidia-ml.so.1": f"{FOLDER}/libnvidia-ml.so.{DRIVER_VERSION}",
        f"{FOLDER}/libnvidia-ml.so.{DRIVER_VERSION}": f"{FOLDER}/libnvidia-ml.so.{DRIVER_VERSION}",
        "/usr/bin/nvidia-smi": "/usr/bin/nvidia-smi",
    }
    assert all("ro" in mount["options"] for mount in found["mounts"])


def test_a_driver_that_comes_in_a_container(machine: Machine, inventory: Make) -> None:
    machine.gpu("h100", 0)
    (machine.root / "run/nvidia/driver").mkdir(parents=True)
    (machine.root / "usr").rename(machine.root / "run/nvidia/driver/usr")
    found = edits(inventory(driverRoot="/run/nvidia/driver"), "gpu-0")
    assert "/dev/nvidia0" in nodes(found)
    mounts = {mount["containerPath"]: mount["hostPath"] for mount in found["mounts"]}
    assert mounts[f"{FOLDER}/libcuda.so.1"] == f"/run/nvidia/driver{FOLDER}/libcuda.so.{DRIVER_VERSION}"
    assert mounts["/usr/bin/nvidia-smi"] == "/run/nvidia/driver/usr/bin/nvidia-smi"
    assert edits(inventory(), "gpu-0")["mounts"] == []


def test_a_mig_device_needs_its_capabilities(machine: Machine, inventory: Make) -> None:
    machine.gpu("a100", 1, SMALL)
    assert nodes(edits(inventory(), "gpu-1-mig-1g5gb-19-4")) == [
        "/dev/nvidia1",
        "/dev/nvidiactl",
        "/dev/nvidia-caps/nvidia-cap700",
        "/dev/nvidia-caps/nvidia-cap701",
        "/dev/nvidia-uvm",
    ]


def test_compute_instances_share_the_capability_of_their_gpu_instance(
    machine: Machine, inventory: Make
) -> None:
    machine.gpu("a100", 0, *HALVES)
    made = inventory()
    first, second = (nodes(edits(made, f"gpu-0-mig-{name}")) for name in ("1c3g20gb-9-0-0", "2c3g20gb-9-0-1"))
    assert set(first) ^ set(second) == {"/dev/nvidia-caps/nvidia-cap201", "/dev/nvidia-caps/nvidia-cap202"}


@pytest.mark.parametrize("missing", ["dev/nvidia0", "dev/nvidiactl"])
def test_no_gpu_without_its_nodes(machine: Machine, inventory: Make, missing: str) -> None:
    machine.gpu("h100", 0)
    made = inventory()
    (machine.root / missing).unlink()
    with pytest.raises(ClaimError, match=f"^device node /{missing} of GPU GPU-0.* is missing below "):
        edits(made, "gpu-0")
    (machine.root / missing).touch()
    assert f"/{missing}" in nodes(edits(made, "gpu-0"))


@pytest.mark.parametrize(
    ("content", "message"), [(None, "can't read it: No such file"), ("nothing", "expected a line with Dev")]
)
def test_capabilities_that_cant_be_read(
    machine: Machine, inventory: Make, content: str | None, message: str
) -> None:
    machine.gpu("a100", 0, SMALL)
    made = inventory()
    file = machine.root / "proc/driver/nvidia/capabilities/gpu0/mig/gi7/access"
    file.unlink()
    if content:
        file.write_text(content)
    with pytest.raises(ClaimError, match=message):
        edits(made, "gpu-0-mig-1g5gb-19-4")


def test_a_device_that_is_not_there(machine: Machine, inventory: Make) -> None:
    machine.gpu("h100", 0)
    with pytest.raises(ClaimError, match=r"^device gpu-9 doesn't exist$"):
        edits(inventory(), "gpu-9")


def test_nvml_is_the_one_among_the_drivers_files(machine: Machine, inventory: Make) -> None:
    """In a container the loader knows none; where the driver comes in one itself, it may come late."""
    machine.gpu("h100", 0)
    library = machine.root / FOLDER[1:] / "libnvidia-ml.so.1"
    made = inventory(library=None)
    found = made.for_node("node-1")
    assert (found.devices, f"can't load {library}" in found.problem) == ((), True)  # an empty file
    made.start(lambda: None)
    library.unlink()
    library.symlink_to(machine.library)
    wait_until(lambda: made.for_node("node-1").devices, 60, "the GPU", interval=0.05)


def test_where_nvml_is_looked_for(machine: Machine) -> None:
    assert Roots(Path("/"), Path("/")).nvml() is None, "the loader's own business"
    assert Roots(machine.root, Path("/")).nvml() == machine.root / FOLDER[1:] / "libnvidia-ml.so.1"
    assert Roots(machine.root, Path("/run/nvidia/driver")).nvml() is None
