"""The Registration service: tells the kubelet what this driver is, and hears how it went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fake_driver.api import plugin_registration_pb2 as messages
from fake_driver.api import plugin_registration_pb2_grpc
from fake_driver.services.guard import Guard

_stubs: Any = plugin_registration_pb2_grpc


@dataclass
class RegistrationState:
    """What the kubelet said last."""

    registered: bool = False
    error: str = ""
    registrations: int = 0  # how often it said "registered"
    supported_versions: list[str] = field(default_factory=list)


class Registration:
    """Answers GetInfo and remembers NotifyRegistrationStatus."""

    def __init__(self, driver: str, endpoint: str, versions: Sequence[str], guard: Guard) -> None:
        self._info = messages.PluginInfo(
            type="DRAPlugin", name=driver, endpoint=endpoint, supported_versions=versions
        )
        self._guard = guard
        self.state = RegistrationState(supported_versions=list(versions))

    def register(self, server: Any) -> None:
        """Add the service to a server."""
        _stubs.add_RegistrationServicer_to_server(self, server)

    def GetInfo(self, request: Any, context: Any) -> Any:
        """Who we are and where our services are."""
        return self._guard.call("Registration", "GetInfo", request, context, lambda _: self._info)

    def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:
        """How the registration ended."""

        def action(_: object) -> Any:
            self.state.registered = request.plugin_registered
            self.state.error = request.error
            self.state.registrations += request.plugin_registered
            return messages.RegistrationStatusResponse()

        return self._guard.call("Registration", "NotifyRegistrationStatus", request, context, action)
