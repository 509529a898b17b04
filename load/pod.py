"""One intended pod while it is followed, and what its watch objects say."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from .model import Cause, PodKind, Stage

if TYPE_CHECKING:
    from .claims import ClaimRecord

Object = dict[str, Any]


@dataclasses.dataclass(slots=True, eq=False)
class PodRecord:
    """What is known of a pod that has not ended. Times are on the clock of `time.time()`."""

    name: str
    namespace: str
    kind: PodKind
    due: float
    windows: tuple[str, ...]
    expected_claims: int
    sent: float | None = None
    answered: float | None = None
    status: int | None = None
    refusal: Cause | None = None
    """What the answer came to, while the watch may still show that the pod was made all the same."""
    accepted: bool = False
    """The answer or the watch said that the pod was made."""
    uid: str = ""
    node: str = ""
    stages: dict[Stage, float] = dataclasses.field(default_factory=dict)
    claims: dict[str, ClaimRecord] = dataclasses.field(default_factory=dict)
    """Those that exist, by UID."""
    claim_names: list[str] = dataclasses.field(default_factory=list)
    """Of all that were ever seen."""
    claims_lost: bool = False
    """Some of its claims may have come and gone in a gap of the watch."""
    devices: list[str] = dataclasses.field(default_factory=list)
    taken: Cause | None = None
    """EVICTED or VANISHED: someone else deletes or deleted it before its time."""
    condemned: bool = False
    """The taint eviction says in a condition that it deletes it."""
    delete_sent: float | None = None
    deleted_by_us: bool = False
    """Our delete went out before any other was seen."""
    terminating: bool = False
    finalizers: tuple[str, ...] = ()
    gone: float | None = None
    closed: bool = False
    message: str = ""
    """Why it was refused, or why the scheduler says it can't place it."""

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def claims_undecided(self) -> bool:
        """Whether it gets claims at all is known once it is bound (`PodKind.claims_by_status`)."""
        return self.kind.claims_by_status and Stage.BOUND not in self.stages

    def all_claims_allocated(self) -> bool:
        """Every claim that it is to have exists and has devices."""
        return len(self.claims) >= self.expected_claims > 0 and all(
            claim.allocated for claim in self.claims.values()
        )

    def released(self) -> bool:
        """Every claim that it had was seen, and is gone or without reservation."""
        if len(self.claim_names) < self.expected_claims and not self.claims_lost:
            return False
        return all(claim.released for claim in self.claims.values())


def version_of(metadata: Object) -> int:
    """The resource version: since Kubernetes 1.35 promised to be a number that grows. 0 without one."""
    version = metadata.get("resourceVersion", "")
    return int(version) if version.isdecimal() else 0


def claims_named(status: Object) -> int:
    """How many claims a pod's status names: generated ones, and the one for its extended resources."""
    named = sum(1 for entry in status.get("resourceClaimStatuses", ()) if entry.get("resourceClaimName"))
    return named + ("extendedResourceClaimStatus" in status)


def is_evicted(status: Object) -> bool:
    """Whether the device taint eviction marked the pod: it does so just before it deletes it."""
    return any(
        condition.get("type") == "DisruptionTarget"
        and condition.get("reason") == "DeletionByDeviceTaintManager"
        and condition.get("status") == "True"
        for condition in status.get("conditions", ())
    )


def unscheduled_message(status: Object) -> str:
    """Why the scheduler could not place the pod, in its own words; empty if it didn't say."""
    for condition in status.get("conditions", ()):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message", ""))
    return ""
