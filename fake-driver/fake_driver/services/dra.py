"""The DRAPlugin service, in both API versions that kubelets speak."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from fake_driver.api import dra_v1_pb2, dra_v1_pb2_grpc, dra_v1beta1_pb2, dra_v1beta1_pb2_grpc
from fake_driver.config import Quirk
from fake_driver.errors import ClaimError
from fake_driver.faults import Active, FaultKind, WrongAnswer
from fake_driver.node.claims import ClaimRef
from fake_driver.node.state import DeviceAnswer, NodeState
from fake_driver.services.guard import Guard
from fake_driver.services.socket_server import Register

_VERSIONS: dict[str, tuple[Any, Any]] = {
    "v1": (dra_v1_pb2, dra_v1_pb2_grpc),
    "v1beta1": (dra_v1beta1_pb2, dra_v1beta1_pb2_grpc),
}


def dra_service(version: str, state: NodeState, guard: Guard, quirks: Set[Quirk]) -> Register:
    """The DRAPlugin service of `version`, to be registered with a server."""
    messages, stubs = _VERSIONS[version]

    def register(server: Any) -> None:
        stubs.add_DRAPluginServicer_to_server(_DraPlugin(version, messages, state, guard, quirks), server)

    return register


class _DraPlugin:
    def __init__(
        self, version: str, messages: Any, state: NodeState, guard: Guard, quirks: Set[Quirk]
    ) -> None:
        self._service = f"{version}.DRAPlugin"
        self._has_share_id = version != "v1beta1"
        self._messages = messages
        self._state = state
        self._guard = guard
        self._quirks = quirks

    def NodePrepareResources(self, request: Any, context: Any) -> Any:
        """Prepare claims; each gets its own answer."""

        def action(faults: Sequence[Active]) -> Any:
            refused = _refused(request, faults, "before")
            results = self._state.prepare([ref for ref in _refs(request) if ref.uid not in refused])
            response = self._messages.NodePrepareResourcesResponse()
            for uid, result in results.items():
                entry = response.claims[uid]
                if isinstance(result, ClaimError):
                    entry.error = str(result)
                elif self._gives_devices():
                    entry.devices.extend(self._device(device) for device in result)
            for uid, message in (refused | _refused(request, faults, "after")).items():
                response.claims[uid].Clear()
                response.claims[uid].error = message
            _spoil(response, faults)
            return response

        return self._call("NodePrepareResources", request, context, action)

    def NodeUnprepareResources(self, request: Any, context: Any) -> Any:
        """Unprepare claims; each gets its own answer."""

        def action(faults: Sequence[Active]) -> Any:
            refused = _refused(request, faults, "before")
            results = self._state.unprepare([ref for ref in _refs(request) if ref.uid not in refused])
            response = self._messages.NodeUnprepareResourcesResponse()
            for uid, result in results.items():
                response.claims[uid].error = str(result) if result else ""
            for uid, message in (refused | _refused(request, faults, "after")).items():
                response.claims[uid].error = message
            _spoil(response, faults)
            return response

        return self._call("NodeUnprepareResources", request, context, action)

    def _call(self, method: str, request: Any, context: Any, action: Any) -> Any:
        uids = [claim.uid for claim in request.claims]
        return self._guard.call(self._service, method, request, context, action, uids)

    def _gives_devices(self) -> bool:
        return self._has_share_id or Quirk.EMPTY_IN_V1BETA1 not in self._quirks

    def _device(self, device: DeviceAnswer) -> Any:
        message = self._messages.Device(
            request_names=device.requests,
            pool_name=device.pool,
            device_name=device.device,
            cdi_device_ids=device.cdi_ids,
        )
        if device.share_id and self._has_share_id:
            message.share_id = device.share_id
        return message


def _refs(request: Any) -> list[ClaimRef]:
    return [ClaimRef(claim.namespace, claim.name, claim.uid) for claim in request.claims]


def _refused(request: Any, faults: Sequence[Active], when: str) -> dict[str, str]:
    """The claims that a fault makes fail, with the message."""
    return {
        claim.uid: active.fault.message
        for active in faults
        if active.fault.kind is FaultKind.CLAIM_ERROR and active.fault.when == when
        for claim in request.claims
        if active.fault.claim_uid in (None, claim.uid)
    }


def _spoil(response: Any, faults: Sequence[Active]) -> None:
    """Make the answer wrong, as the faults in force ask for."""
    for active in faults:
        fault = active.fault
        if fault.kind is not FaultKind.WRONG_ANSWER:
            continue
        for uid in [uid for uid in response.claims if fault.claim_uid in (None, uid)]:
            if fault.answer is WrongAnswer.OMIT_CLAIM:
                del response.claims[uid]
                continue
            for device in getattr(response.claims[uid], "devices", ()):
                _spoil_device(device, fault.answer)


def _spoil_device(device: Any, answer: WrongAnswer | None) -> None:
    if answer is WrongAnswer.WRONG_DEVICE:
        device.device_name += "-wrong"
    elif answer is WrongAnswer.WRONG_POOL:
        device.pool_name += "-wrong"
    elif answer is WrongAnswer.WRONG_REQUEST:
        device.request_names[:] = ["wrong-request"]
    elif answer is WrongAnswer.NO_CDI_IDS:
        del device.cdi_device_ids[:]
    elif answer is WrongAnswer.UNKNOWN_CDI_ID:
        device.cdi_device_ids[:] = [f"{id_}-unknown" for id_ in device.cdi_device_ids]
