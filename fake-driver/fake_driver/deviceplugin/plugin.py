"""The device plugin process: serves every node, and registers anew whenever a kubelet has restarted."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from typing import Any, Literal

import grpc
from pydantic import BaseModel, Field

from fake_driver.api import device_plugin_pb2 as pb
from fake_driver.api import device_plugin_pb2_grpc
from fake_driver.calls import Call, CallLog
from fake_driver.channels import unix_channel
from fake_driver.control import messages as m
from fake_driver.control.server import Operation
from fake_driver.deviceplugin.config import DevicePluginConfig, PluginNodeConfig
from fake_driver.deviceplugin.service import DeviceBoard, DevicePluginService
from fake_driver.errors import StartError
from fake_driver.faults import FaultStore
from fake_driver.services.guard import Guard
from fake_driver.services.socket_server import SocketServer
from fake_driver.strict import Message

_CHECK_SECONDS = 0.25
_REGISTER_TIMEOUT_SECONDS = 10
_stubs: Any = device_plugin_pb2_grpc


class SetCount(Message):
    """How many devices a node has, or every node."""

    count: int = Field(ge=0)
    node: str | None = None


class SetDeviceHealth(Message):
    """The health of a device on a node, or on every node."""

    device: str
    health: Literal["Healthy", "Unhealthy"]
    node: str | None = None


class PluginNodeStatus(BaseModel):
    """One node as the device plugin sees it."""

    name: str
    registrations: int
    error: str
    devices: dict[str, str]


class PluginStatus(BaseModel):
    """The whole device plugin."""

    resource: str
    pid: int
    stopping: bool
    faults: list[dict[str, Any]]
    nodes: list[PluginNodeStatus]


class NodeDevicePlugin:
    """The device plugin of one node."""

    def __init__(self, config: DevicePluginConfig, node: PluginNodeConfig, guard: Guard) -> None:
        self.name = node.name
        self.board = DeviceBoard(node.name, node.count)
        self.registrations = 0
        self.error = ""
        self._resource = config.resource
        self._grace = config.stop_grace_seconds
        self._service = DevicePluginService(
            config.resource, self.board, guard, pre_start_required=config.pre_start_required
        )
        directory = node.kubelet_dir / "device-plugins"
        self._kubelet = directory / "kubelet.sock"
        name = re.sub(r"[^A-Za-z0-9.-]", "_", config.resource)
        self._server = SocketServer(directory / f"{name}.sock", [self._service.register])
        self._registered_with: tuple[int, int] | None = None

    def start(self) -> None:
        """Serve; the first `check` registers."""
        self._server.start()

    def check(self) -> None:
        """Register if the kubelet is new, or took our socket away (as it does when it starts)."""
        try:
            found = self._kubelet.stat()
        except OSError as error:
            self._registered_with = None
            self.error = f"no kubelet at {self._kubelet}: {error.strerror}"
            return
        stamp = (found.st_ino, found.st_ctime_ns)
        if stamp != self._registered_with or not self._server.path.exists():
            self._server.ensure()
            self._register(stamp)

    def stop(self) -> None:
        """Leave: the kubelet then counts the node's devices as gone."""
        self.board.wake()
        self._server.stop(self._grace)

    def _register(self, stamp: tuple[int, int]) -> None:
        request = pb.RegisterRequest(
            version="v1beta1",
            endpoint=self._server.path.name,
            resource_name=self._resource,
            options=self._service.options,
        )
        with unix_channel(self._kubelet) as channel:
            try:
                _stubs.RegistrationStub(channel).Register(request, timeout=_REGISTER_TIMEOUT_SECONDS)
            except grpc.RpcError as error:
                self.error = f"registration failed: {error}"
                return
        self.error = ""
        self.registrations += 1
        self._registered_with = stamp


class DevicePlugins:
    """One extended resource on any number of nodes."""

    class Refused(Exception):
        """An operation can't be done; nothing was changed."""

    def __init__(self, config: DevicePluginConfig) -> None:
        self.config = config
        self.calls = CallLog()
        self.faults = FaultStore()
        self.stopping = threading.Event()
        self._nodes = {
            node.name: NodeDevicePlugin(config, node, Guard(node.name, self.calls, self.faults))
            for node in config.nodes
        }
        self._keeper = threading.Thread(target=self._keep_registered, name="register", daemon=True)

    def start(self) -> None:
        """Serve on all nodes, and register as kubelets appear.

        Raises:
            StartError: a socket can't be created.
        """
        for node in self._nodes.values():
            node.start()
        self._keeper.start()

    def stop(self) -> None:
        """Leave all nodes."""
        self.stopping.set()
        self.faults.clear()
        if self._keeper.is_alive():
            self._keeper.join()
        for node in self._nodes.values():
            node.stop()

    def _keep_registered(self) -> None:
        while not self.stopping.is_set():
            for node in self._nodes.values():
                try:
                    node.check()
                except (StartError, OSError) as error:
                    node.error = str(error)  # the next look may find it possible
            self.stopping.wait(_CHECK_SECONDS)

    # What the control endpoint offers; each method is one operation.

    def status(self, _: m.Nothing) -> PluginStatus:
        """Everything there is to know."""
        return PluginStatus(
            resource=self.config.resource,
            pid=os.getpid(),
            stopping=self.stopping.is_set(),
            faults=self.faults.active(),
            nodes=[
                PluginNodeStatus(
                    name=node.name,
                    registrations=node.registrations,
                    error=node.error,
                    devices=node.board.devices(),
                )
                for node in self._nodes.values()
            ],
        )

    def find_calls(self, request: m.FindCalls) -> list[Call]:
        """Recorded gRPC calls, oldest first."""
        return self.calls.find(node=request.node, method=request.method, after=request.after)

    def clear_calls(self, _: m.Nothing) -> None:
        """Forget the recorded calls."""
        self.calls.clear()

    def set_count(self, request: SetCount) -> None:
        """Offer another number of devices."""
        for node in self._on(request.node):
            node.board.set_count(request.count)

    def set_health(self, request: SetDeviceHealth) -> None:
        """Report another health of a device.

        Raises:
            Refused: no such device.
        """
        for node in self._on(request.node):
            try:
                node.board.set_health(request.device, request.health)
            except KeyError:
                raise self.Refused(f"device: node {node.name} has no device {request.device!r}") from None

    def set_fault(self, request: m.SetFault) -> int:
        """Put a fault into force and return its id."""
        id_ = self.faults.add(request.fault)
        for node in self._nodes.values():
            node.board.wake()
        return id_

    def clear_faults(self, request: m.ClearFaults) -> int:
        """Lift one fault or all, and return how many were lifted."""
        return self.faults.clear(request.id)

    def ask_stop(self, _: m.Nothing) -> None:
        """End the process gracefully."""
        self.stopping.set()

    def _on(self, name: str | None) -> Iterator[NodeDevicePlugin]:
        if name is None:
            yield from self._nodes.values()
        elif name in self._nodes:
            yield self._nodes[name]
        else:
            raise self.Refused(f"node: expected one of {', '.join(self._nodes)}, got {name!r}")


def operations(plugins: DevicePlugins) -> dict[str, Operation]:
    """The operations of the control endpoint, by name."""
    return {
        "status": (m.Nothing, plugins.status),
        "calls": (m.FindCalls, plugins.find_calls),
        "clear-calls": (m.Nothing, plugins.clear_calls),
        "set-count": (SetCount, plugins.set_count),
        "set-health": (SetDeviceHealth, plugins.set_health),
        "set-fault": (m.SetFault, plugins.set_fault),
        "clear-faults": (m.ClearFaults, plugins.clear_faults),
        "stop": (m.Nothing, plugins.ask_stop),
    }
