"""Stub kubelets: real gRPC over the real sockets, and nothing else of a kubelet."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from fake_driver.api import (
    device_plugin_pb2,
    device_plugin_pb2_grpc,
    dra_health_v1_pb2,
    dra_health_v1_pb2_grpc,
    dra_health_v1alpha1_pb2,
    dra_health_v1alpha1_pb2_grpc,
    dra_v1_pb2,
    dra_v1_pb2_grpc,
    dra_v1beta1_pb2,
    dra_v1beta1_pb2_grpc,
    plugin_registration_pb2,
    plugin_registration_pb2_grpc,
)
from fake_driver.channels import unix_channel
from fake_driver.files import ShortPath

TIMEOUT = 60
DRA: dict[str, tuple[Any, Any]] = {
    "v1": (dra_v1_pb2, dra_v1_pb2_grpc),
    "v1beta1": (dra_v1beta1_pb2, dra_v1beta1_pb2_grpc),
}
HEALTH: dict[str, tuple[Any, Any]] = {
    "v1": (dra_health_v1_pb2, dra_health_v1_pb2_grpc),
    "v1alpha1": (dra_health_v1alpha1_pb2, dra_health_v1alpha1_pb2_grpc),
}
_registration: Any = plugin_registration_pb2_grpc
_device_plugin: Any = device_plugin_pb2_grpc


class StubKubelet:
    """The DRA side: finds the driver's sockets in the node's directory, and calls it."""

    def __init__(self, kubelet_dir: Path, driver: str) -> None:
        self.registry = kubelet_dir / "plugins_registry"
        self.plugin_dir = kubelet_dir / "plugins" / driver
        self.driver = driver

    def register(self, *, error: str = "") -> Any:
        """Ask who is there and answer that it's registered, or why not."""
        with unix_channel(self.registry / f"{self.driver}-reg.sock") as channel:
            stub = _registration.RegistrationStub(channel)
            info = stub.GetInfo(plugin_registration_pb2.InfoRequest(), timeout=TIMEOUT)
            status = plugin_registration_pb2.RegistrationStatus(plugin_registered=not error, error=error)
            stub.NotifyRegistrationStatus(status, timeout=TIMEOUT)
        return info

    def prepare(
        self, *claims: dict[str, Any], version: str = "v1", timeout: float = TIMEOUT, socket: str = "dra.sock"
    ) -> Any:
        """NodePrepareResources for claim objects; the answers by UID."""
        return self._call("NodePrepareResources", claims, version, timeout, socket)

    def unprepare(
        self, *claims: dict[str, Any], version: str = "v1", timeout: float = TIMEOUT, socket: str = "dra.sock"
    ) -> Any:
        """NodeUnprepareResources for claim objects; the answers by UID."""
        return self._call("NodeUnprepareResources", claims, version, timeout, socket)

    def _call(self, method: str, claims: Any, version: str, timeout: float, socket: str) -> Any:
        messages, stubs = DRA[version]
        refs = [
            messages.Claim(
                namespace=claim["metadata"]["namespace"],
                name=claim["metadata"]["name"],
                uid=claim["metadata"]["uid"],
            )
            for claim in claims
        ]
        request = getattr(messages, f"{method}Request")(claims=refs)
        with unix_channel(self.plugin_dir / socket) as channel:
            return getattr(stubs.DRAPluginStub(channel), method)(request, timeout=timeout).claims

    @contextmanager
    def watch_health(self, version: str = "v1") -> Iterator[Any]:
        """An open health stream."""
        messages, stubs = HEALTH[version]
        with unix_channel(self.plugin_dir / "dra.sock") as channel:
            stub = stubs.DRAResourceHealthStub(channel)
            stream = stub.NodeWatchResources(messages.NodeWatchResourcesRequest(), timeout=TIMEOUT)
            try:
                yield stream
            finally:
                stream.cancel()


class StubDeviceManager:
    """The device plugin side: a Registration service on kubelet.sock, and calls back to the plugin."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.registered: list[Any] = []
        directory.mkdir(parents=True, exist_ok=True)
        self._short = ShortPath(directory / "kubelet.sock")
        self._server = grpc.server(ThreadPoolExecutor(2))
        _device_plugin.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self._short.path}")
        self._server.start()

    def Register(self, request: Any, context: Any) -> Any:
        self.registered.append(request)
        return device_plugin_pb2.Empty()

    @contextmanager
    def plugin(self) -> Iterator[Any]:
        """A stub for the plugin that registered last."""
        with unix_channel(self.directory / self.registered[-1].endpoint) as channel:
            yield _device_plugin.DevicePluginStub(channel)

    def stop(self) -> None:
        self._server.stop(0).wait()
        self._short.close()
