"""Where the control endpoint listens, and who may ask."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator

from fake_driver.strict import Strict

LOOPBACK = "127.0.0.1"


class ControlConfig(Strict):
    """A unix socket for its owner, a TCP port for holders of a token, or both.

    The port is for a driver in a pod, where the API server's pod proxy reaches it; port 0 takes a free one.
    `tokenFile` is read anew for every request, so a Secret that changes needs no restart.
    """

    socket: Path | None = None
    port: int | None = Field(default=None, ge=0, le=65535)
    address: str = LOOPBACK
    token_file: Path | None = None

    @field_validator("address")
    @classmethod
    def _is_one_address(cls, address: str) -> str:
        try:
            if not ipaddress.ip_address(address).is_unspecified:
                return address
        except ValueError:
            pass
        raise ValueError(f"expected a loopback address or the pod's own, got {address!r}")

    @model_validator(mode="after")
    def _listens_safely(self) -> Self:
        if self.socket is None and self.port is None:
            raise ValueError("expected socket, or port and tokenFile")
        if (self.port is None) != (self.token_file is None):
            raise ValueError("expected port and tokenFile together: what comes over TCP has to bring a token")
        return self
