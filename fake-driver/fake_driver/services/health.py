"""The DRAResourceHealth service: a full list at first, then again on change and before it gets too old."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fake_driver.api import (
    dra_health_v1_pb2,
    dra_health_v1_pb2_grpc,
    dra_health_v1alpha1_pb2,
    dra_health_v1alpha1_pb2_grpc,
)
from fake_driver.calls import as_dict
from fake_driver.config import HealthConfig, Quirk
from fake_driver.inventory.base import Health, HealthValue
from fake_driver.services.guard import Guard
from fake_driver.services.socket_server import Register

_VERSIONS: dict[str, tuple[Any, Any]] = {
    "v1": (dra_health_v1_pb2, dra_health_v1_pb2_grpc),
    "v1alpha1": (dra_health_v1alpha1_pb2, dra_health_v1alpha1_pb2_grpc),
}


@dataclass(frozen=True)
class Report:
    """The health of one device; `timeout` is how many seconds the report is good for."""

    health: HealthValue = "Healthy"
    message: str = ""
    timeout: int = 30


class HealthBoard:
    """The health of one node's devices, and who is told about it."""

    def __init__(
        self,
        pool: str,
        devices: Callable[[], Sequence[str]],
        config: HealthConfig,
        quirks: set[Quirk],
        found: Callable[[], Mapping[str, Health]] = dict,
    ) -> None:
        self.pool = pool
        self._devices = devices
        self._config = config
        self._quirks = quirks
        self._found = found
        self._changed = threading.Condition()
        self._version = 0
        self._reports: dict[str, Report] = {}
        self.streams = 0

    def set(self, device: str, report: Report) -> None:
        """Change a device's health and tell the kubelet."""
        with self._changed:
            self._reports[device] = report
        self.wake()

    def wake(self) -> None:
        """Send the list again on every stream."""
        with self._changed:
            self._version += 1
            self._changed.notify_all()

    def reports(self) -> dict[str, Report]:
        """The current health by device name: as it was set, else as the hardware has it."""
        found, timeout = self._found(), self._config.timeout_seconds
        devices = self._devices()
        if Quirk.HEALTH_PARTIAL_LIST in self._quirks:
            devices = devices[:-1]
        with self._changed:
            known = {
                name: Report(health.value, health.message, timeout) for name, health in found.items()
            } | self._reports
        return {device: known.get(device, Report(timeout=timeout)) for device in devices}

    def rounds(self, is_active: Callable[[], bool]) -> Iterator[dict[str, Report]]:
        """What to send, whenever something is to be sent, until the stream has ended."""
        with self._changed:
            self.streams += 1
        try:
            while is_active():
                with self._changed:
                    version = self._version
                yield self.reports()
                refresh = None if Quirk.HEALTH_NO_REFRESH in self._quirks else self._refresh()
                self._wait_for_news(version, is_active, refresh)
        finally:
            with self._changed:
                self.streams -= 1

    def _wait_for_news(self, seen: int, is_active: Callable[[], bool], timeout: float | None) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._version != seen or not is_active(), timeout=timeout)

    def _refresh(self) -> float:
        shortest = min((report.timeout for report in self.reports().values()), default=None)
        return self._config.refresh if shortest is None else min(self._config.refresh, shortest / 3)


def health_service(version: str, board: HealthBoard, guard: Guard) -> Register:
    """The DRAResourceHealth service of `version`, to be registered with a server."""
    messages, stubs = _VERSIONS[version]

    def register(server: Any) -> None:
        stubs.add_DRAResourceHealthServicer_to_server(_Health(version, messages, board, guard), server)

    return register


class _Health:
    def __init__(self, version: str, messages: Any, board: HealthBoard, guard: Guard) -> None:
        self._service = f"{version}.DRAResourceHealth"
        self._messages = messages
        self._board = board
        self._guard = guard

    def NodeWatchResources(self, request: Any, context: Any) -> Iterator[Any]:
        """Report until the kubelet cancels."""
        context.add_callback(self._board.wake)
        with self._guard.log.record(self._guard.node, self._service, "NodeWatchResources", request) as call:
            for reports in self._board.rounds(context.is_active):
                self._guard.suffer_stream(context, call)
                response = self._response(reports)
                sent = (call.response or {}).get("reports", 0) + 1
                call.response = {"reports": sent, "last": as_dict(response)}
                yield response

    def _response(self, reports: dict[str, Report]) -> Any:
        now = int(time.time())
        devices = [
            self._messages.DeviceHealth(
                device=self._messages.DeviceIdentifier(pool_name=self._board.pool, device_name=device),
                health=report.health.upper(),
                last_updated_time=now,
                health_check_timeout_seconds=report.timeout,
                message=report.message,
            )
            for device, report in reports.items()
        ]
        return self._messages.NodeWatchResourcesResponse(devices=devices)
