"""The DevicePlugin service of one node."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

from fake_driver.api import device_plugin_pb2 as pb
from fake_driver.api import device_plugin_pb2_grpc
from fake_driver.calls import as_dict
from fake_driver.services.guard import Guard

_stubs: Any = device_plugin_pb2_grpc
_SERVICE = "v1beta1.DevicePlugin"
ENV_PREFIX = "DRA_HARNESS_PLUGIN_DEVICES_"


def env_name(resource: str) -> str:
    """The variable in which a container finds its device IDs, separated by commas."""
    return ENV_PREFIX + re.sub(r"[^A-Z0-9]", "_", resource.upper())


class DeviceBoard:
    """The devices of one node, and who is told about changes."""

    def __init__(self, node: str, count: int) -> None:
        self._node = node
        self._changed = threading.Condition()
        self._version = 0
        self._devices = self._healthy(count)

    def devices(self) -> dict[str, str]:
        """Health (`Healthy` or `Unhealthy`) by device ID."""
        with self._changed:
            return dict(self._devices)

    def set_count(self, count: int) -> None:
        """Offer that many devices, healthy unless said otherwise before."""
        with self._changed:
            self._devices = {**self._healthy(count), **_first(self._devices, count)}
        self.wake()

    def set_health(self, device: str, health: str) -> None:
        """Change the health of a device.

        Raises:
            KeyError: there is no such device.
        """
        with self._changed:
            if device not in self._devices:
                raise KeyError(device)
            self._devices[device] = health
        self.wake()

    def wake(self) -> None:
        """Send the list again on every stream, or end those that are over."""
        with self._changed:
            self._version += 1
            self._changed.notify_all()

    def rounds(self, context: Any) -> Iterator[dict[str, str]]:
        """The list at first and after every change, until the stream has ended."""
        while context.is_active():
            with self._changed:
                version = self._version
            yield self.devices()
            self._wait_for_news(version, context)

    def _wait_for_news(self, seen: int, context: Any) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._version != seen or not context.is_active())

    def _healthy(self, count: int) -> dict[str, str]:
        return {f"dev-{index}": "Healthy" for index in range(count)}


def _first(devices: dict[str, str], count: int) -> dict[str, str]:
    return dict(list(devices.items())[:count])


class DevicePluginService:
    """Answers the kubelet's device manager."""

    def __init__(self, resource: str, board: DeviceBoard, guard: Guard, *, pre_start_required: bool) -> None:
        self._resource = resource
        self._board = board
        self._guard = guard
        self.options = pb.DevicePluginOptions(
            pre_start_required=pre_start_required, get_preferred_allocation_available=True
        )

    def register(self, server: Any) -> None:
        """Add the service to a server."""
        _stubs.add_DevicePluginServicer_to_server(self, server)

    def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:
        """Which optional calls we want."""
        return self._call("GetDevicePluginOptions", request, context, lambda _: self.options)

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[Any]:
        """The device list, again after every change."""
        context.add_callback(self._board.wake)
        with self._guard.log.record(self._guard.node, _SERVICE, "ListAndWatch", request) as call:
            for devices in self._board.rounds(context):
                self._guard.suffer_stream(context, call)
                listed = [pb.Device(ID=id_, health=health) for id_, health in devices.items()]
                response = pb.ListAndWatchResponse(devices=listed)
                call.response = as_dict(response)
                yield response

    def GetPreferredAllocation(self, request: Any, context: Any) -> Any:
        """What must be included, then the first available."""

        def action(_: object) -> Any:
            response = pb.PreferredAllocationResponse()
            for wanted in request.container_requests:
                must = list(wanted.must_include_deviceIDs)
                rest = [id_ for id_ in sorted(wanted.available_deviceIDs) if id_ not in must]
                response.container_responses.add(deviceIDs=(must + rest)[: wanted.allocation_size])
            return response

        return self._call("GetPreferredAllocation", request, context, action)

    def Allocate(self, request: Any, context: Any) -> Any:
        """A variable with the device IDs, and a device node for each."""

        def action(_: object) -> Any:
            response = pb.AllocateResponse()
            for wanted in request.container_requests:
                answer = response.container_responses.add()
                answer.envs[env_name(self._resource)] = ",".join(wanted.devices_ids)
                for id_ in wanted.devices_ids:
                    path = f"/dev/dra-harness/{self._resource}/{id_}"
                    answer.devices.add(container_path=path, host_path="/dev/null", permissions="rw")
            return response

        return self._call("Allocate", request, context, action)

    def PreStartContainer(self, request: Any, context: Any) -> Any:
        """Nothing to prepare."""
        return self._call("PreStartContainer", request, context, lambda _: pb.PreStartContainerResponse())

    def _call(self, method: str, request: Any, context: Any, action: Any) -> Any:
        return self._guard.call(_SERVICE, method, request, context, action)
