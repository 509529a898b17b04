"""Plays the kubelet towards a driver: for calls that a real one makes rarely, or not without many pods."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from fake_driver.api import dra_v1_pb2, dra_v1_pb2_grpc, dra_v1beta1_pb2, dra_v1beta1_pb2_grpc
from fake_driver.channels import unix_channel

from clusters.driver_host import HostedDriver
from clusters.interface import Node
from harness.errors import RequirementFailed
from harness.kube import Object

_CALL_SECONDS = 30.0
_VERSIONS: dict[str, tuple[Any, Any]] = {
    "v1": (dra_v1_pb2, dra_v1_pb2_grpc),
    "v1beta1": (dra_v1beta1_pb2, dra_v1beta1_pb2_grpc),
}


@dataclass(frozen=True)
class Device:
    """A device in the answer of a driver."""

    requests: tuple[str, ...]
    pool: str
    name: str
    cdi_ids: tuple[str, ...]


class Kubelet:
    """Calls the DRAPlugin service of a driver on one node, in one of its versions."""

    def __init__(self, driver: HostedDriver, node: Node, version: str = "v1") -> None:
        node.require_here()
        # The second one: the first is for registration.
        socket = Path(driver.client.status().node(node.name).sockets[1])
        if socket.is_relative_to(node.kubelet_dir_in_node):  # the name that it has in a driver's pod
            socket = node.kubelet_dir / socket.relative_to(node.kubelet_dir_in_node)
        self._open = ExitStack()
        channel = self._open.enter_context(unix_channel(socket))
        self._messages, stubs = _VERSIONS[version]
        self._service = stubs.DRAPluginStub(channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def prepare(self, claim: Object) -> list[Device]:
        """Have an allocated claim prepared, and return its devices.

        Raises:
            RequirementFailed: the driver can't.
        """
        request = self._messages.NodePrepareResourcesRequest(claims=[self._reference(claim)])
        answer = _checked(self._call("NodePrepareResources", request), claim, "an allocated claim")
        return [
            Device(tuple(each.request_names), each.pool_name, each.device_name, tuple(each.cdi_device_ids))
            for each in answer.devices
        ]

    def unprepare(self, claim: Object) -> None:
        """Have a claim unprepared.

        Raises:
            RequirementFailed: the driver can't.
        """
        request = self._messages.NodeUnprepareResourcesRequest(claims=[self._reference(claim)])
        _checked(self._call("NodeUnprepareResources", request), claim, "that a claim is given back")

    def _call(self, method: str, request: Any) -> Any:
        try:
            return getattr(self._service, method)(request, timeout=_CALL_SECONDS)
        except grpc.RpcError as error:
            raise RequirementFailed(f"the driver answers {method}", str(error)) from error

    def _reference(self, claim: Object) -> Any:
        metadata = claim["metadata"]
        return self._messages.Claim(
            namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"]
        )


def _checked(response: Any, claim: Object, what: str) -> Any:
    uid = claim["metadata"]["uid"]
    if uid not in response.claims:
        raise RequirementFailed("the driver answers for each claim", "it has no answer", claim)
    if error := response.claims[uid].error:
        raise RequirementFailed(f"the driver takes {what}", error, claim)
    return response.claims[uid]
