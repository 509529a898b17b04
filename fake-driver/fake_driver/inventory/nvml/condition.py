"""What is known about the state of each GPU, and what follows: its health, and its taints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fake_driver.inventory.base import Health
from fake_driver.inventory.nvml.config import NvmlConfig
from fake_driver.inventory.nvml.devices import NamedDevice
from fake_driver.inventory.nvml.events import Xid

XID_NAMES = {
    13: "graphics engine exception",
    31: "GPU memory page fault",
    43: "GPU stopped processing",
    45: "preemptive cleanup",
    48: "double bit ECC error",
    64: "row remapping failure",
    68: "video processor exception",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    94: "contained ECC error",
    95: "uncontained ECC error",
    109: "context switch timeout",
    119: "GSP RPC timeout",
}

_Where = tuple[str, tuple[int, int] | None]


@dataclass
class Conditions:
    """The state of a machine's GPUs by UUID. A fatal XID stays until the driver starts anew."""

    lost: dict[str, str] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    ecc_errors: dict[str, int] = field(default_factory=dict)
    deaf: dict[str, str] = field(default_factory=dict)
    silent_for: float | None = None  # seconds without an answer of NVML, once they are too many
    fatal: dict[_Where, int] = field(default_factory=dict)
    harmless: dict[_Where, int] = field(default_factory=dict)

    def note(self, xid: Xid, config: NvmlConfig) -> None:
        """Remember an XID: the first fatal one, and the latest harmless one."""
        where = (xid.gpu, xid.instance)
        if xid.code in config.harmless_xids:
            self.harmless[where] = xid.code
        else:
            self.fatal.setdefault(where, xid.code)

    def health(self, named: NamedDevice) -> Health:
        """How a device is; a MIG device is no better than its GPU."""
        gpu = named.gpu.uuid
        if gpu in self.lost:
            return Health("Unhealthy", f"the GPU is lost: {self.lost[gpu]}")
        if (fatal := self._xid(self.fatal, named)) is not None:
            return Health("Unhealthy", _xid_text(fatal))
        if count := self.ecc_errors.get(gpu, 0):
            return Health("Unhealthy", f"{count} uncorrectable ECC errors since NVIDIA's driver was loaded")
        if self.silent_for is not None:
            return Health("Unknown", f"NVML has not answered for {self.silent_for:g} s")
        if gpu in self.unread:
            return Health("Unknown", f"the GPU can't be read: {self.unread[gpu]}")
        if gpu in self.deaf:
            return Health("Unknown", f"not monitored: {self.deaf[gpu]}")
        harmless = self._xid(self.harmless, named)
        return Health("Healthy", "" if harmless is None else f"{_xid_text(harmless)}, of an application")

    def taints(self, named: NamedDevice, driver: str, *, informational: bool) -> Iterator[dict[str, Any]]:
        """The taints of a device, in the driver's domain."""
        gpu = named.gpu.uuid
        fatal, harmless = self._xid(self.fatal, named), self._xid(self.harmless, named)
        if gpu in self.lost:
            yield {"key": f"{driver}/gpu-lost", "effect": "NoSchedule"}
        if fatal is not None:
            yield {"key": f"{driver}/xid", "value": str(fatal), "effect": "NoSchedule"}
        elif harmless is not None and informational:
            yield {"key": f"{driver}/xid", "value": str(harmless), "effect": "None"}
        if gpu in self.deaf and informational:
            yield {"key": f"{driver}/unmonitored", "effect": "None"}

    def _xid(self, known: dict[_Where, int], named: NamedDevice) -> int | None:
        whole = known.get((named.gpu.uuid, None))
        if whole is None and named.mig:
            instance = (named.mig.gpu_instance, named.mig.compute_instance)
            return known.get((named.gpu.uuid, instance))
        return whole


def _xid_text(code: int) -> str:
    return f"XID {code} ({XID_NAMES[code]})" if code in XID_NAMES else f"XID {code}"
