"""GPUs and MIG devices as the ResourceSlice API has them: names, keys and types of NVIDIA's DRA driver."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fake_driver.errors import ConfigError
from fake_driver.inventory import sysfs
from fake_driver.inventory.nvml.scan import GpuFacts, MigFacts
from fake_driver.inventory.presets import STANDARD

log = logging.getLogger(__name__)

Values = dict[str, dict[str, Any]]
_MIB = 1024**2
_GIB = 1024**3
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_MIG_MEMORY_PARTS = 8  # a MIG profile is named after eighths of the GPU's memory


@dataclass(frozen=True)
class Versions:
    """What is the same for all GPUs of a machine, as NVML writes it."""

    driver: str
    cuda: int


@dataclass(frozen=True)
class Place:
    """Where the machine's sysfs is, and the wanted form of numaNode."""

    sysfs: Path
    numa: str


@dataclass(frozen=True)
class NamedDevice:
    """A device to publish, and what it is."""

    device: dict[str, Any]
    gpu: GpuFacts
    mig: MigFacts | None = None


def devices_of(gpu: GpuFacts, versions: Versions, place: Place) -> Iterator[NamedDevice]:
    """The devices that a GPU is: itself, or its MIG devices once it is in MIG mode."""
    attributes = _attributes(gpu, versions) | topology(gpu.pci_bus_id, place)
    if gpu.mig_enabled:
        for mig in gpu.mig:
            yield NamedDevice(_mig_device(gpu, mig, attributes), gpu, mig)
    else:
        capacity = {} if gpu.memory is None else {"memory": {"value": binary_si(gpu.memory)}}
        device = {"name": f"gpu-{gpu.minor}", "attributes": attributes, "capacity": capacity}
        yield NamedDevice(device, gpu)


def _attributes(gpu: GpuFacts, versions: Versions) -> Values:
    major, minor = gpu.compute_capability
    values: Values = {
        "type": {"string": "gpu"},
        "uuid": {"string": gpu.uuid},
        "productName": {"string": gpu.name},
        "brand": {"string": gpu.brand},
        "architecture": {"string": gpu.architecture},
        "cudaComputeCapability": {"version": f"{major}.{minor}.0"},
        "cudaDriverVersion": {"version": f"{versions.cuda // 1000}.{versions.cuda % 1000 // 10}.0"},
    }
    if driver := semver(versions.driver):
        values["driverVersion"] = {"version": driver}
    if gpu.addressing_mode is not None:
        values["addressingMode"] = {"string": gpu.addressing_mode}
    return values


def _mig_device(gpu: GpuFacts, mig: MigFacts, inherited: Values) -> dict[str, Any]:
    profile = mig_profile(mig, gpu.memory or 0)
    short = re.sub(r"[^a-z0-9]", "", profile)
    name = f"gpu-{gpu.minor}-mig-{short}-{mig.profile_id}-{mig.placement_start}"
    if mig.compute_slices != mig.gpu_slices:
        name += f"-{mig.compute_instance}"  # several compute instances share the GPU instance's placement
    counts = {
        "multiprocessors": mig.multiprocessors,
        "copyEngines": mig.copy_engines,
        "decoders": mig.decoders,
        "encoders": mig.encoders,
        "jpegEngines": mig.jpeg_engines,
        "ofaEngines": mig.ofa_engines,
    }
    slices = range(mig.placement_start, mig.placement_start + mig.placement_size)
    counts |= {f"memorySlice{number}": 1 for number in slices}
    return {
        "name": name,
        "attributes": inherited
        | {
            "type": {"string": "mig"},
            "uuid": {"string": mig.uuid},
            "parentUUID": {"string": gpu.uuid},
            "profile": {"string": profile},
        },
        "capacity": {"memory": {"value": binary_si(mig.memory * _MIB)}}
        | {key: {"value": str(count)} for key, count in counts.items()},
    }


def mig_profile(mig: MigFacts, gpu_memory: int) -> str:
    """The profile's name as nvidia-smi writes it: `1g.5gb`, or `1c.3g.20gb` for a part of a GPU instance."""
    share = math.ceil(mig.memory * _MIB * _MIG_MEMORY_PARTS / gpu_memory) if gpu_memory else 0
    gigabytes = math.floor(share * math.ceil(gpu_memory / _GIB) / _MIG_MEMORY_PARTS + 0.5)
    name = f"{mig.gpu_slices}g.{gigabytes}gb"
    return name if mig.compute_slices == mig.gpu_slices else f"{mig.compute_slices}c.{name}"


def topology(address: str, place: Place) -> Values:
    """pciBusID, and pcieRoot and numaNode as far as sysfs has them."""
    values: Values = {f"{STANDARD}/pciBusID": {"string": address}}
    for numa, pcie in (("none", True), (place.numa, False)):
        try:
            values |= sysfs.topology(place.sysfs, address, numa=numa, pcie=pcie)
        except ConfigError as error:
            log.warning("not published: %s", error)
    return values


def semver(text: str) -> str | None:
    """A driver's version as semantic version: `580.126.09` is 580.126.9; None if it is none."""
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?(?:$|[^\d.])", text)
    return ".".join(str(int(part or 0)) for part in match.groups()) if match else None


def binary_si(amount: int) -> str:
    """Bytes as a quantity in its canonical form: the largest binary suffix that divides it."""
    power = 0
    while amount and amount % 1024 == 0 and power < len(_BINARY) - 1:
        amount //= 1024
        power += 1
    return f"{amount}{_BINARY[power]}"
