"""The driver's own opaque configuration, `dra-harness.dev/v1` GpuConfig, in claims and device classes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from fake_driver.errors import ClaimError, ConfigError
from fake_driver.strict import Strict, validate


class Sharing(Strict):
    """How containers share the device; shown to them, nothing is enforced."""

    strategy: Literal["Exclusive", "TimeSlicing"]
    time_slice: Literal["Default", "Short", "Medium", "Long"] = "Default"


class GpuConfig(Strict):
    """Environment for the containers that get the device, and a sharing strategy."""

    api_version: Literal["dra-harness.dev/v1"]
    kind: Literal["GpuConfig"]
    env: dict[str, str] = Field(default_factory=dict)
    sharing: Sharing | None = None

    def environment(self) -> dict[str, str]:
        """All of it as environment variables."""
        if self.sharing is None:
            return dict(self.env)
        strategy = {"DRA_SHARING_STRATEGY": self.sharing.strategy, "DRA_TIME_SLICE": self.sharing.time_slice}
        return self.env | strategy


def parse_gpu_config(parameters: Any) -> GpuConfig:
    """Read opaque parameters.

    Raises:
        ClaimError: names the key and what was expected there.
    """
    try:
        return validate(GpuConfig, parameters, "opaque parameters")
    except ConfigError as error:
        raise ClaimError(str(error)) from None
