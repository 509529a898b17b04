"""NVML's events: XIDs and uncorrectable ECC errors, as they happen."""

from __future__ import annotations

import contextlib
import ctypes
from dataclasses import dataclass
from typing import Any

from fake_driver.inventory.nvml.library import GpuLost, Nvml, NvmlAbsent, NvmlError
from fake_driver.inventory.nvml.scan import Seen

_WHOLE_GPU = 0xFFFFFFFF
_WANTED = ("nvmlEventTypeXidCriticalError", "nvmlEventTypeDoubleBitEccError")


@dataclass(frozen=True)
class Xid:
    """An XID event, of a GPU or of one MIG device of it."""

    gpu: str
    code: int
    instance: tuple[int, int] | None = None  # GPU instance, compute instance


@dataclass(frozen=True)
class EccError:
    """An uncorrectable ECC error of a GPU; the counter says how many there are."""

    gpu: str


class EventSet:
    """The GPUs that are listened to; made anew when one of them is lost, since a lost one spoils the set."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._set: Any = None
        self._gpus: dict[int, str] = {}  # address of the handle -> UUID
        self.deaf: dict[str, str] = {}  # GPUs without events, and why

    @property
    def is_open(self) -> bool:
        """Whether there is anything to wait for."""
        return self._set is not None

    def close(self) -> None:
        """Give the set back."""
        if self._set is not None and self._nvml.is_open:
            with contextlib.suppress(NvmlAbsent, NvmlError):  # then NVML has none of it either
                self._nvml.call("nvmlEventSetFree", self._set)
        self._set = None
        self._gpus.clear()
        self.deaf.clear()

    def listen_to(self, seen: tuple[Seen, ...]) -> None:
        """Listen to exactly these GPUs.

        Raises:
            NvmlAbsent: NVML is gone.
        """
        wanted = {_address(each.handle): each.facts.uuid for each in seen}
        heard = {address: uuid for address, uuid in wanted.items() if uuid not in self.deaf}
        if self._set is not None and heard == self._gpus:
            return
        self.close()
        try:
            self._set = self._nvml.call("nvmlEventSetCreate")
        except NvmlError as error:
            self.deaf = {uuid: str(error) for uuid in wanted.values()}
            return
        for each in seen:
            if reason := self._register(each.handle):
                self.deaf[each.facts.uuid] = reason
            else:
                self._gpus[_address(each.handle)] = each.facts.uuid

    def wait(self, seconds: float) -> Xid | EccError | None:
        """The next event, or None if none comes in time; only while the set is open.

        Raises:
            NvmlAbsent, NvmlError: nothing can be heard.
        """
        data = self._nvml.find("nvmlEventSetWait_v2", self._set, max(1, int(seconds * 1000)))
        if data is None or _address(data.device) not in self._gpus:
            return None
        gpu = self._gpus[_address(data.device)]
        if data.eventType == self._nvml.constant("nvmlEventTypeDoubleBitEccError"):
            return EccError(gpu)
        whole = _WHOLE_GPU in (data.gpuInstanceId, data.computeInstanceId)
        return Xid(gpu, data.eventData, None if whole else (data.gpuInstanceId, data.computeInstanceId))

    def _register(self, handle: Any) -> str:
        """Listen to one GPU; returns why that isn't possible."""
        xid, ecc = (self._nvml.constant(name) for name in _WANTED)
        try:
            supported = self._nvml.optional("nvmlDeviceGetSupportedEventTypes", handle) or 0
            if not supported & xid:
                return "this GPU reports no XIDs"
            self._nvml.call("nvmlDeviceRegisterEvents", handle, supported & (xid | ecc), self._set)
        except GpuLost:
            return ""  # the next look says so
        except NvmlError as error:
            return str(error)
        return ""


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
