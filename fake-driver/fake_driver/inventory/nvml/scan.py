"""One look at the machine: what NVML says of each GPU, as plain facts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fake_driver.inventory.nvml.library import GpuLost, Nvml, NvmlError

BRANDS = {
    1: "Quadro", 2: "Tesla", 3: "NVS", 4: "Grid", 5: "GeForce", 6: "Titan", 7: "NvidiaVApps", 8: "NvidiaVPC",
    9: "NvidiaVCS", 10: "NvidiaVWS", 11: "NvidiaCloudGaming", 12: "QuadroRTX", 13: "NvidiaRTX", 14: "Nvidia",
    15: "GeForceRTX", 16: "TitanRTX",
}  # fmt: skip
ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada Lovelace",
    9: "Hopper", 10: "Blackwell", 13: "Rubin",
}  # fmt: skip
ADDRESSING_MODES = {0: "None", 1: "HMM", 2: "ATS"}
UNKNOWN = "Unknown"

_MIG_ENABLED = 1


@dataclass(frozen=True)
class MigFacts:
    """One MIG device: a compute instance in a GPU instance. `memory` is in MiB."""

    uuid: str
    gpu_instance: int
    compute_instance: int
    profile_id: int
    placement_start: int
    placement_size: int
    gpu_slices: int
    compute_slices: int
    memory: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int


@dataclass(frozen=True)
class GpuFacts:
    """One GPU. `memory` is in bytes, None where NVML has no figure, as with memory shared with the CPU."""

    uuid: str
    minor: int
    name: str
    brand: str
    architecture: str
    compute_capability: tuple[int, int]
    pci_bus_id: str
    memory: int | None
    addressing_mode: str | None
    mig_enabled: bool = False
    mig: tuple[MigFacts, ...] = ()


@dataclass(frozen=True)
class Seen:
    """A GPU and what else this look is good for."""

    index: int
    facts: GpuFacts
    handle: Any
    ecc_errors: int  # uncorrectable ones since the driver was loaded; 0 without ECC


@dataclass(frozen=True)
class Scan:
    """The whole machine. `lost` and `unread` say, by index, why a GPU could not be looked at."""

    driver_version: str
    cuda_version: int
    seen: tuple[Seen, ...] = ()
    lost: dict[int, str] = field(default_factory=dict)
    unread: dict[int, str] = field(default_factory=dict)


def scan(nvml: Nvml) -> Scan:
    """Look at all GPUs; one that fails doesn't hide the others.

    Raises:
        NvmlAbsent: NVML itself fails.
        NvmlError: it has no figures of the driver.
    """
    driver = nvml.call("nvmlSystemGetDriverVersion")
    cuda = nvml.optional("nvmlSystemGetCudaDriverVersion")
    seen: list[Seen] = []
    lost: dict[int, str] = {}
    unread: dict[int, str] = {}
    for index in range(nvml.call("nvmlDeviceGetCount")):
        try:
            seen.append(_look(nvml, index))
        except GpuLost as error:
            lost[index] = str(error)
        except NvmlError as error:
            unread[index] = str(error)
    return Scan(driver, cuda or 0, tuple(seen), lost, unread)


def _look(nvml: Nvml, index: int) -> Seen:
    handle = nvml.call("nvmlDeviceGetHandleByIndex", index)
    memory = nvml.optional("nvmlDeviceGetMemoryInfo", handle)
    major, minor = nvml.call("nvmlDeviceGetCudaComputeCapability", handle)
    mode = nvml.optional("nvmlDeviceGetMigMode", handle)
    mig_enabled = mode is not None and mode[0] == _MIG_ENABLED
    facts = GpuFacts(
        uuid=nvml.call("nvmlDeviceGetUUID", handle),
        minor=nvml.call("nvmlDeviceGetMinorNumber", handle),
        name=nvml.call("nvmlDeviceGetName", handle),
        brand=BRANDS.get(nvml.optional("nvmlDeviceGetBrand", handle), UNKNOWN),
        architecture=ARCHITECTURES.get(nvml.optional("nvmlDeviceGetArchitecture", handle), UNKNOWN),
        compute_capability=(major, minor),
        pci_bus_id=pci_address(nvml.call("nvmlDeviceGetPciInfo", handle).busId),
        memory=None if memory is None else memory.total,
        addressing_mode=ADDRESSING_MODES.get(nvml.optional("nvmlDeviceGetAddressingMode", handle)),
        mig_enabled=mig_enabled,
        mig=_mig_devices(nvml, handle) if mig_enabled else (),
    )
    kind, span = nvml.constant("NVML_MEMORY_ERROR_TYPE_UNCORRECTED"), nvml.constant("NVML_VOLATILE_ECC")
    ecc_errors = nvml.optional("nvmlDeviceGetTotalEccErrors", handle, kind, span) or 0
    return Seen(index, facts, handle, ecc_errors)


def pci_address(bus_id: str) -> str:
    """NVML's bus id (`00000000:1B:00.0`) as sysfs and Kubernetes write it (`0000:1b:00.0`)."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _mig_devices(nvml: Nvml, parent: Any) -> tuple[MigFacts, ...]:
    count = nvml.call("nvmlDeviceGetMaxMigDeviceCount", parent)
    handles = (nvml.find("nvmlDeviceGetMigDeviceHandleByIndex", parent, index) for index in range(count))
    return tuple(_mig_device(nvml, parent, handle) for handle in handles if handle is not None)


def _mig_device(nvml: Nvml, parent: Any, handle: Any) -> MigFacts:
    gpu_instance = nvml.call("nvmlDeviceGetGpuInstanceId", handle)
    instance = nvml.call("nvmlDeviceGetGpuInstanceById", parent, gpu_instance)
    info = nvml.call("nvmlGpuInstanceGetInfo", instance)
    attributes = nvml.call("nvmlDeviceGetAttributes", handle)
    return MigFacts(
        uuid=nvml.call("nvmlDeviceGetUUID", handle),
        gpu_instance=gpu_instance,
        compute_instance=nvml.call("nvmlDeviceGetComputeInstanceId", handle),
        profile_id=info.profileId,
        placement_start=info.placement.start,
        placement_size=info.placement.size,
        gpu_slices=attributes.gpuInstanceSliceCount,
        compute_slices=attributes.computeInstanceSliceCount,
        memory=attributes.memorySizeMB,
        multiprocessors=attributes.multiprocessorCount,
        copy_engines=attributes.sharedCopyEngineCount,
        decoders=attributes.sharedDecoderCount,
        encoders=attributes.sharedEncoderCount,
        jpeg_engines=attributes.sharedJpegCount,
        ofa_engines=attributes.sharedOfaCount,
    )
