"""What can be set of the `nvml` inventory: `inventory: nvml`, or `inventory: {nvml: {...}}`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from fake_driver.strict import Strict

APPLICATION_XIDS = (13, 31, 43, 45, 68, 109)
"""XIDs that speak of a program, not of the GPU: those that NVIDIA's device plugin and DRA driver skip."""


class NvmlConfig(Strict):
    """Where NVIDIA's driver is on this machine, and how its GPUs are watched."""

    library: Path | None = None
    """libnvidia-ml.so.1; without it the one below `root` and `driverRoot`, or what the loader finds."""

    root: Path = Path("/")
    """Below which the machine's own /dev, /proc, /sys and /usr are, for a driver that runs in a container."""

    driver_root: str = Field(default="/", pattern="^/")
    """Where on the machine NVIDIA's driver has its /usr: /run/nvidia/driver if it comes in a container."""

    numa: Literal["int", "ints", "none"] = "int"
    """The form of numaNode; `ints` needs the gate DRAListTypeAttributes."""

    check_seconds: float = Field(default=10, gt=0)
    """Between two looks at all GPUs. Events are noticed at once."""

    deadline_seconds: float = Field(default=30, gt=0)
    """Once NVML has not answered for so long, nobody knows how the GPUs are."""

    harmless_xids: list[int] = Field(default=list(APPLICATION_XIDS))
    """XIDs that leave a GPU healthy; all others are fatal."""

    informational_taints: bool = True
    """Whether there are taints of effect None, which Kubernetes before v1.35 refuses."""


class NvmlChoice(Strict):
    """The `nvml` inventory with its settings."""

    nvml: NvmlConfig
