"""NVML itself, through pynvml: one session, and errors by what they mean for the caller."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any


class NvmlAbsent(Exception):
    """NVML can't be used on this machine, or not any more; the message says why."""


class NvmlError(Exception):
    """NVML refuses one call."""


class GpuLost(NvmlError):
    """The GPU doesn't answer any more."""


class Nvml:
    """A session with NVML. Calls are pynvml's functions by name, and block as long as NVML does.

    Args:
        library: says where libnvidia-ml.so.1 is, whenever a session begins; None where the loader finds one.
    """

    def __init__(self, library: Callable[[], Path | None] = lambda: None) -> None:
        self._library = library
        self._pynvml: Any = None
        self.is_open = False

    def open(self) -> None:
        """Load the library and begin.

        Raises:
            NvmlAbsent: no pynvml, no library, or no driver below it.
        """
        try:
            self._pynvml = importlib.import_module("pynvml")
        except ImportError:
            raise NvmlAbsent("the Python package nvidia-ml-py is not installed") from None
        if library := self._library():
            try:
                # The loader takes a library that is there under the same soname, so pynvml gets this one.
                ctypes.CDLL(str(library))
            except OSError as error:
                raise NvmlAbsent(f"can't load {library}: {error}") from None
        try:
            self._pynvml.nvmlInit()
        except self._pynvml.NVMLError as error:
            raise NvmlAbsent(f"NVML can't be used: {error}") from None
        self.is_open = True

    def close(self) -> None:
        """End the session, if there is one."""
        if self.is_open:
            self.is_open = False
            try:
                self._pynvml.nvmlShutdown()
            except self._pynvml.NVMLError:
                return  # with the driver gone there is nothing to shut down

    def constant(self, name: str) -> int:
        """A constant of nvml.h."""
        return int(getattr(self._pynvml, name))

    def call(self, function: str, *arguments: Any) -> Any:
        """Call a function.

        Raises:
            NvmlAbsent: the whole driver is gone.
            GpuLost: the GPU is.
            NvmlError: NVML refuses.
        """
        answer, code = self._call(function, arguments)
        if code is not None:
            self._refuse(function, code)
        return answer

    def optional(self, function: str, *arguments: Any) -> Any:
        """Call a function that this GPU or driver may not have; None if so.

        Raises:
            NvmlAbsent, GpuLost, NvmlError: as for `call`.
        """
        answer, code = self._call(function, arguments)
        if code in self._codes("NOT_SUPPORTED", "FUNCTION_NOT_FOUND"):
            return None
        if code is not None:
            self._refuse(function, code)
        return answer

    def find(self, function: str, *arguments: Any) -> Any:
        """Call a function that may find nothing, or nothing in time; None if so.

        Raises:
            NvmlAbsent, GpuLost, NvmlError: as for `call`.
        """
        answer, code = self._call(function, arguments)
        if code in self._codes("NOT_FOUND", "TIMEOUT"):
            return None
        if code is not None:
            self._refuse(function, code)
        return answer

    def _call(self, function: str, arguments: tuple[Any, ...]) -> tuple[Any, int | None]:
        if not hasattr(self._pynvml, function):  # an older pynvml
            return None, self.constant("NVML_ERROR_FUNCTION_NOT_FOUND")
        try:
            return getattr(self._pynvml, function)(*arguments), None
        except self._pynvml.NVMLError as error:
            return None, int(error.value)

    def _codes(self, *names: str) -> set[int]:
        return {self.constant(f"NVML_ERROR_{name}") for name in names}

    def _refuse(self, function: str, code: int) -> None:
        text = str(self._pynvml.NVMLError(code)).rstrip(".")
        if code in self._codes("UNINITIALIZED", "DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH"):
            raise NvmlAbsent(f"NVML can't be used any more: {text}")
        if code in self._codes("GPU_IS_LOST", "RESET_REQUIRED"):
            raise GpuLost(text)
        raise NvmlError(f"{function}: {text}")
