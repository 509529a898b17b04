"""The control endpoints of pods, one per node, as if they were one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fake_driver.client import ControlClient, DevicePluginClient, DriverClient, DriverError
from fake_driver.control import messages as m
from fake_driver.strict import Strict
from fake_driver.transports import Transport


class PodsClient(ControlClient):
    """Asks the pod of the node that a request names, or every pod.

    What is asked of every pod is done by each on its own: where one refuses, others may have done it.
    """

    def __init__(self, pods: Mapping[str, Transport]) -> None:
        if not pods:
            raise DriverError("none of its pods is there")
        super().__init__(next(iter(pods.values())))
        self._pods = {node: ControlClient(transport) for node, transport in pods.items()}

    def ask(self, operation: str, request: Strict | None = None) -> Any:
        """Run an operation on the pods that it concerns, and return their results as one.

        Raises:
            DriverError: one of them refuses, or there is none on the node that the request names.
        """
        if isinstance(request, m.FindCalls) and request.after and len(self._pods) > 1:
            raise DriverError("calls: `after` counts the calls of one pod; there are several")
        node = getattr(request, "node", None)
        if node is not None and node not in self._pods:
            raise DriverError(f"node: expected one of {', '.join(self._pods)}, got {node!r}")
        asked = self._pods.values() if node is None else [self._pods[node]]
        return _merged(operation, [client.ask(operation, request) for client in asked])


class DriverPodsClient(PodsClient, DriverClient):
    """The pods of a DRA driver."""


class DevicePluginPodsClient(PodsClient, DevicePluginClient):
    """The pods of a device plugin."""


def _merged(operation: str, answers: list[Any]) -> Any:
    if operation == "status":
        return {**answers[0], "nodes": [node for answer in answers for node in answer["nodes"]]}
    if operation == "calls":
        return sorted((call for answer in answers for call in answer), key=lambda call: call["time"])
    if operation == "set-fault" and len(set(answers)) > 1:
        raise DriverError(f"set-fault: the pods number their faults differently: {answers}")
    return answers[0]
