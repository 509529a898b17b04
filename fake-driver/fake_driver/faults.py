"""Faults on request: what the driver does wrong, for which calls, and how often."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Self

from pydantic import Field, model_validator

from fake_driver.strict import Message

METHODS = Literal[
    "GetInfo",
    "NotifyRegistrationStatus",
    "NodePrepareResources",
    "NodeUnprepareResources",
    "NodeWatchResources",
    "GetDevicePluginOptions",
    "ListAndWatch",
    "Allocate",
    "GetPreferredAllocation",
    "PreStartContainer",
]

STATUS_CODES = Literal[
    "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
    "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
]  # fmt: skip


class FaultKind(StrEnum):
    """What goes wrong."""

    DELAY = "delay"  # the call takes `seconds` longer
    ERROR = "error"  # the whole call fails with gRPC status `code`
    CLAIM_ERROR = "claim-error"  # the answer for a claim is an error
    CRASH = "crash"  # the process ends at once
    HANG = "hang"  # the call waits until the fault is cleared, or the caller gives up
    WRONG_ANSWER = "wrong-answer"  # the answer is changed as `answer` says


class WrongAnswer(StrEnum):
    """How an answer to NodePrepareResources or NodeUnprepareResources is wrong."""

    OMIT_CLAIM = "omit-claim"
    WRONG_DEVICE = "wrong-device"
    WRONG_POOL = "wrong-pool"
    WRONG_REQUEST = "wrong-request"
    NO_CDI_IDS = "no-cdi-ids"
    UNKNOWN_CDI_ID = "unknown-cdi-id"


class Fault(Message):
    """One fault; it holds for every call that matches, or for the next `times` ones."""

    method: METHODS
    kind: FaultKind
    node: str | None = None
    claim_uid: str | None = None
    seconds: float = Field(default=0, ge=0)
    message: str = "fault on request"
    code: STATUS_CODES = "INTERNAL"
    when: Literal["before", "after"] = "before"
    answer: WrongAnswer | None = None
    times: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.kind is FaultKind.DELAY and self.seconds == 0:
            raise ValueError("seconds: is required for a delay")
        if (self.kind is FaultKind.WRONG_ANSWER) != (self.answer is not None):
            raise ValueError("answer: expected exactly with kind wrong-answer")
        return self


@dataclass
class Active:
    """A fault in force."""

    id: int
    fault: Fault
    left: int | None
    cleared: threading.Event = field(default_factory=threading.Event)


class FaultStore:
    """The faults in force; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._active: list[Active] = []

    def add(self, fault: Fault) -> int:
        """Put a fault into force and return its id."""
        with self._lock:
            active = Active(next(self._ids), fault, fault.times)
            self._active.append(active)
            return active.id

    def clear(self, id_: int | None = None) -> int:
        """Lift one fault, or all; calls that hang on it go on. Returns how many were lifted."""
        with self._lock:
            gone = [active for active in self._active if id_ in (None, active.id)]
            self._active = [active for active in self._active if active not in gone]
        for active in gone:
            active.cleared.set()
        return len(gone)

    def active(self) -> list[dict[str, object]]:
        """The faults in force, with their ids, as plain values."""
        with self._lock:
            return [
                {
                    "id": active.id,
                    "left": active.left,
                    "fault": active.fault.model_dump(mode="json", by_alias=True),
                }
                for active in self._active
            ]

    def take(self, method: str, node: str, claim_uids: Iterable[str] = ()) -> list[Active]:
        """The faults that hit a call, in the order they were set; uses up one of their `times`."""
        uids = set(claim_uids)
        with self._lock:
            hits = [active for active in self._active if _matches(active, method, node, uids)]
            for active in hits:
                if active.left is not None:
                    active.left -= 1
            # A used-up hang stays listed until it's cleared: that is how its caller gets on.
            self._active = [
                active
                for active in self._active
                if active.left is None or active.left > 0 or active.fault.kind is FaultKind.HANG
            ]
        return hits


def _matches(active: Active, method: str, node: str, uids: set[str]) -> bool:
    fault = active.fault
    return (
        active.left != 0
        and fault.method == method
        and fault.node in (None, node)
        and (fault.claim_uid is None or fault.claim_uid in uids)
    )
