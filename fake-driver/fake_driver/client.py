"""Talk to a running driver or device plugin through its control endpoint."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from fake_driver.calls import Call
from fake_driver.config import Quirk
from fake_driver.control import messages as m
from fake_driver.deviceplugin.plugin import PluginStatus, SetCount, SetDeviceHealth
from fake_driver.faults import Fault
from fake_driver.inventory.base import HealthValue
from fake_driver.inventory.model import Taint
from fake_driver.strict import Strict
from fake_driver.transports import Transport, UnixTransport


class DriverError(Exception):
    """The driver refuses, or can't be reached; the message says why."""


class ControlClient:
    """One control endpoint, by its socket or any other `Transport`; any thread may use it."""

    def __init__(self, endpoint: Path | Transport, timeout: float = 60) -> None:
        self.transport: Transport = (
            UnixTransport(endpoint, timeout) if isinstance(endpoint, Path) else endpoint
        )

    def ask(self, operation: str, request: Strict | None = None) -> Any:
        """Run an operation and return its result.

        Raises:
            DriverError: as for every method of the clients.
        """
        body = request.model_dump_json(by_alias=True, exclude_none=True) if request else "{}"
        where = self.transport.where
        try:
            answer = json.loads(self.transport.post(operation, body.encode()))
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise DriverError(f"{where}: {operation}: no answer: {error or 'closed'}") from error
        if not isinstance(answer, dict) or "result" not in answer:
            refusal = answer.get("error") if isinstance(answer, dict) else None
            raise DriverError(str(refusal or f"{where}: {operation}: not an answer: {answer}"))
        return answer["result"]

    def calls(
        self,
        *,
        node: str | None = None,
        method: str | None = None,
        claim_uid: str | None = None,
        after: int = 0,
    ) -> list[Call]:
        """Recorded gRPC calls that match, oldest first; `after` is a sequence number."""
        request = m.FindCalls(node=node, method=method, claim_uid=claim_uid, after=after)
        return [Call.model_validate(call) for call in self.ask("calls", request)]

    def clear_calls(self) -> None:
        """Forget the recorded calls."""
        self.ask("clear-calls")

    def set_fault(self, fault: Fault) -> int:
        """Put a fault into force and return its id."""
        return int(self.ask("set-fault", m.SetFault(fault=fault)))

    def clear_faults(self, fault_id: int | None = None) -> int:
        """Lift one fault or all; calls that hang on it go on. Returns how many were lifted."""
        return int(self.ask("clear-faults", m.ClearFaults(id=fault_id)))

    def stop(self) -> None:
        """End the process gracefully; returns before it has ended."""
        self.ask("stop")


class DriverClient(ControlClient):
    """A running `fake-driver serve`."""

    def status(self) -> m.Status:
        """Everything there is to know."""
        return m.Status.model_validate(self.ask("status"))

    def set_inventory(self, inventory: Mapping[str, Any] | str, *, node: str | None = None) -> None:
        """Publish another profile (inline, path or bundled name); returns once it is published.

        Raises:
            DriverError: the profile is wrong, or the API server refuses it; nothing has changed then.
        """
        self.ask("set-inventory", m.SetInventory(inventory=inventory, node=node))

    def set_taints(
        self, device: str, taints: Iterable[Taint | Mapping[str, Any]], *, node: str | None = None
    ) -> None:
        """Publish extra taints of a device instead of those so far; returns once they are published."""
        checked = [taint if isinstance(taint, Taint) else Taint.model_validate(taint) for taint in taints]
        self.ask("set-taints", m.SetTaints(device=device, taints=checked, node=node))

    def set_health(
        self,
        device: str,
        health: HealthValue,
        message: str = "",
        *,
        timeout_seconds: int | None = None,
        node: str | None = None,
    ) -> None:
        """Report a device as `Healthy`, `Unhealthy` or `Unknown`."""
        request = m.SetHealth(
            device=device, health=health, message=message, timeout_seconds=timeout_seconds, node=node
        )
        self.ask("set-health", request)

    def set_metadata(self, *, enabled: bool) -> None:
        """Turn metadata files on or off for claims prepared from now on."""
        self.ask("set-metadata", m.SetMetadata(enabled=enabled))

    def update_metadata(
        self, node: str, claim_uid: str, request: str, devices: Mapping[str, Mapping[str, Any]]
    ) -> int:
        """Change `attributes` or `networkData` by device; returns the new generation."""
        plain = {device: dict(change) for device, change in devices.items()}
        body = m.UpdateMetadata(node=node, claim_uid=claim_uid, request=request, devices=plain)
        return int(self.ask("update-metadata", body))

    def set_quirks(self, quirks: Sequence[Quirk]) -> None:
        """Misbehave as asked from now on, and only so."""
        self.ask("set-quirks", m.SetQuirks(quirks=list(quirks)))

    def register(self, node: str | None = None) -> None:
        """Offer the registration socket again."""
        self.ask("register", m.OnNode(node=node))

    def unregister(self, node: str | None = None) -> None:
        """Take the registration socket away; the driver goes on otherwise."""
        self.ask("unregister", m.OnNode(node=node))

    def uninstall(self) -> None:
        """End the process gracefully, with its slices and checkpoints; returns before it has ended."""
        self.ask("uninstall")


class DevicePluginClient(ControlClient):
    """A running `fake-driver device-plugin`."""

    def status(self) -> PluginStatus:
        """Everything there is to know."""
        return PluginStatus.model_validate(self.ask("status"))

    def set_count(self, count: int, *, node: str | None = None) -> None:
        """Offer another number of devices."""
        self.ask("set-count", SetCount(count=count, node=node))

    def set_health(
        self, device: str, health: Literal["Healthy", "Unhealthy"], *, node: str | None = None
    ) -> None:
        """Report a device as `Healthy` or `Unhealthy`."""
        self.ask("set-health", SetDeviceHealth(device=device, health=health, node=node))
