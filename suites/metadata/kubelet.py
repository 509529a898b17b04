"""Plays the kubelet towards a driver: for measurements that need many calls and no pods."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fake_driver.api import dra_v1_pb2, dra_v1_pb2_grpc
from fake_driver.channels import unix_channel

from clusters.driver_host import HostedDriver
from clusters.interface import Node
from harness.errors import RequirementFailed
from harness.kube import Object

_CALL_SECONDS = 30.0


class Kubelet:
    """Calls the DRAPlugin service (v1) of a driver on one node."""

    def __init__(self, driver: HostedDriver, node: Node) -> None:
        node.require_here()
        # The second one: the first is for registration.
        socket = Path(driver.client.status().node(node.name).sockets[1])
        if socket.is_relative_to(node.kubelet_dir_in_node):  # the name that it has in a driver's pod
            socket = node.kubelet_dir / socket.relative_to(node.kubelet_dir_in_node)
        self._open = ExitStack()
        channel = self._open.enter_context(unix_channel(socket))
        stub: Any = dra_v1_pb2_grpc.DRAPluginStub
        self._service = stub(channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def prepare(self, claim: Object) -> None:
        """Have an allocated claim prepared.

        Raises:
            RequirementFailed: the driver can't.
        """
        request = dra_v1_pb2.NodePrepareResourcesRequest(claims=[_reference(claim)])
        _check(self._service.NodePrepareResources(request, timeout=_CALL_SECONDS), claim)

    def unprepare(self, claim: Object) -> None:
        """Have a claim unprepared.

        Raises:
            RequirementFailed: the driver can't.
        """
        request = dra_v1_pb2.NodeUnprepareResourcesRequest(claims=[_reference(claim)])
        _check(self._service.NodeUnprepareResources(request, timeout=_CALL_SECONDS), claim)


def _reference(claim: Object) -> Any:
    metadata = claim["metadata"]
    return dra_v1_pb2.Claim(namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"])


def _check(response: Any, claim: Object) -> None:
    if error := response.claims[claim["metadata"]["uid"]].error:
        raise RequirementFailed("the driver takes an allocated claim", error, claim)
