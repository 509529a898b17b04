"""Every call of the kubelet passes here: it's recorded, and hit by the faults in force."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message

from fake_driver.calls import Call, CallLog, abort, as_dict
from fake_driver.faults import Active, FaultKind, FaultStore

Answer = TypeVar("Answer", bound=Message)

CRASH_CODE = 70
_POLL_SECONDS = 0.1


class Guard:
    """Records and spoils the calls to one node."""

    def __init__(self, node: str, log: CallLog, faults: FaultStore) -> None:
        self.node = node
        self.log = log
        self._faults = faults

    def call(
        self,
        service: str,
        method: str,
        request: Message,
        context: Any,
        action: Callable[[Sequence[Active]], Answer],
        claim_uids: Iterable[str] = (),
    ) -> Answer:
        """Run `action` as the handler of a unary call; it gets the faults that concern its answer."""
        with self.log.record(self.node, service, method, request) as call:
            faults = self._faults.take(method, self.node, claim_uids)
            self.suffer(context, call, faults, "before")
            answer = action(faults)
            call.response = as_dict(answer)
            self.suffer(context, call, faults, "after")
            return answer

    def suffer_stream(self, context: Any, call: Call) -> None:
        """Apply the faults in force before a message of a stream is sent."""
        self.suffer(context, call, self._faults.take(call.method, self.node), "before")

    def suffer(self, context: Any, call: Call, faults: Sequence[Active], when: str) -> None:
        """Apply delays, hangs, crashes and whole-call errors."""
        for active in faults:
            fault = active.fault
            if fault.when != when:
                continue
            if fault.kind is FaultKind.CRASH:
                os._exit(CRASH_CODE)
            elif fault.kind is FaultKind.DELAY:
                active.cleared.wait(fault.seconds)
            elif fault.kind is FaultKind.HANG:
                while not active.cleared.wait(_POLL_SECONDS):
                    if not context.is_active():
                        abort(context, call, "CANCELLED", "the caller gave up while the call hung")
            elif fault.kind is FaultKind.ERROR:
                abort(context, call, fault.code, fault.message)
