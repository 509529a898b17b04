"""What a container needs of a GPU: its device nodes, and the libraries of the machine's driver."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fake_driver.errors import ClaimError
from fake_driver.inventory.nvml.scan import GpuFacts, MigFacts

LIBRARY_FOLDERS = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib",
)
PROGRAMS = ("usr/bin/nvidia-smi",)
NVML = "libnvidia-ml.so.1"
_SHARED_NODES = ("dev/nvidia-uvm", "dev/nvidia-uvm-tools")
_MOUNT_OPTIONS = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
_ENVIRONMENT = ["NVIDIA_VISIBLE_DEVICES=void"]  # else NVIDIA's own runtime would add GPUs of its choice


@dataclass(frozen=True)
class Roots:
    """Where files are: the machine's below `machine`, and there NVIDIA's driver's below `driver`."""

    machine: Path
    driver: Path

    @property
    def driver_here(self) -> Path:
        """The driver's files, for this process."""
        return self.machine / self.driver.relative_to("/")

    def nvml(self) -> Path | None:
        """NVML among the driver's files, where the loader doesn't look by itself."""
        if self.driver_here == Path("/"):
            return None
        found = (self.driver_here / folder / NVML for folder in LIBRARY_FOLDERS)
        return next((path for path in found if path.exists()), None)


def container_edits(roots: Roots, gpu: GpuFacts, mig: MigFacts | None, version: str) -> dict[str, Any]:
    """CDI container edits for a device.

    Args:
        roots: where the files are.
        gpu: the GPU.
        mig: its MIG device, if that is what the container gets.
        version: the driver's, as NVML writes it; its libraries end in it.

    Raises:
        ClaimError: a device node is missing, so a container would start without its GPU.
    """
    root = roots.machine
    nodes = [f"dev/nvidia{gpu.minor}", "dev/nvidiactl"]
    if mig:
        nodes += _capability_nodes(root, gpu.minor, mig)
    for node in nodes:
        if not (root / node).exists():
            raise ClaimError(f"device node /{node} of GPU {gpu.uuid} is missing below {root}")
    nodes += [node for node in _SHARED_NODES if (root / node).exists()]
    files = dict(_libraries(roots.driver_here, version))
    files |= {program: program for program in PROGRAMS if (roots.driver_here / program).is_file()}
    return {
        "env": _ENVIRONMENT,
        "deviceNodes": [{"path": f"/{node}", "permissions": "rw"} for node in nodes],
        "mounts": [
            {"hostPath": str(roots.driver / source), "containerPath": f"/{name}", "options": _MOUNT_OPTIONS}
            for name, source in sorted(files.items())
        ],
    }


def _capability_nodes(root: Path, minor: int, mig: MigFacts) -> list[str]:
    """The nodes that open a MIG device: one for its GPU instance, one for its compute instance."""
    instance = root / f"proc/driver/nvidia/capabilities/gpu{minor}/mig/gi{mig.gpu_instance}"
    files = [instance / "access", instance / f"ci{mig.compute_instance}/access"]
    return [f"dev/nvidia-caps/nvidia-cap{_device_minor(file)}" for file in files]


def _device_minor(file: Path) -> int:
    try:
        match = re.search(r"^DeviceFileMinor:\s*(\d+)", file.read_text(), re.MULTILINE)
    except OSError as error:
        raise ClaimError(f"{file}: can't read it: {error.strerror}") from None
    if match is None:
        raise ClaimError(f"{file}: expected a line with DeviceFileMinor")
    return int(match[1])


def _libraries(root: Path, version: str) -> Iterator[tuple[str, str]]:
    """Each library under its own name and those of the links to it, since programs ask for `libcuda.so.1`."""
    for folder in LIBRARY_FOLDERS:
        if not (root / folder).is_dir() or (root / folder).is_symlink():
            continue
        for library in sorted((root / folder).glob(f"lib*.so.{version}")):
            source = f"{folder}/{library.name}"
            stem = library.name.removesuffix(f".{version}")
            yield source, source
            for link in sorted(library.parent.glob(f"{stem}*")):
                if link.is_symlink() and _target(link) == library.name:
                    yield f"{folder}/{link.name}", source


def _target(link: Path) -> str:
    """The name of the file in the same folder that a chain of links ends at."""
    path = link
    for _ in range(8):  # a loop of links ends somewhere too
        if not path.is_symlink():
            break
        path = path.parent / path.readlink().name
    return path.name
