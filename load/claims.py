"""One ResourceClaim while it exists, and what its watch objects say."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from .pod import version_of

if TYPE_CHECKING:
    from .pod import PodRecord

Object = dict[str, Any]

ALL_DEVICES_CHARGE = 32
"""What quota charges for allocationMode All: the most devices that a claim can get."""


@dataclasses.dataclass(frozen=True, slots=True)
class Holding:
    """A device in a claim's allocation."""

    device: str
    """driver/pool/device."""
    exclusive: bool
    """Nobody else may hold it. False with a shareID: a part of a device that allows several allocations."""


@dataclasses.dataclass(slots=True, eq=False)
class ClaimRecord:
    """What is known of a claim, ours or not. Times are on the clock of `time.time()`."""

    uid: str
    namespace: str
    name: str
    owner: str
    """Name of the pod that owns it; empty if none does."""
    owner_uid: str
    charge: int
    """Devices that it counts for in a quota."""
    version: int = 0
    holdings: tuple[Holding, ...] = ()
    allocated: bool = False
    reserved: bool = False
    was_reserved: bool = False
    terminating: bool = False
    finalizers: tuple[str, ...] = ()
    ours: bool = False
    """Owned by a pod of this worker."""
    pod: PodRecord | None = None
    """That pod, while it is followed."""
    orphaned_at: float | None = None
    """When its pod went, once that is no longer followed."""

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def released(self) -> bool:
        """Nobody uses it any more. One that never was reserved is not released: the news of it is to come."""
        return self.was_reserved and not self.reserved

    @property
    def orphaned_since(self) -> float | None:
        """When the pod that owned it went; None while it is there."""
        return self.pod.gone if self.pod else self.orphaned_at

    def update(self, obj: Object) -> None:
        """Take over what changes in a claim's life."""
        metadata, status = obj["metadata"], obj.get("status") or {}
        self.version = version_of(metadata)
        self.terminating = "deletionTimestamp" in metadata
        self.finalizers = tuple(metadata.get("finalizers", ()))
        self.reserved = bool(status.get("reservedFor"))
        self.was_reserved |= self.reserved
        allocation = status.get("allocation")
        self.allocated = allocation is not None
        self.holdings = holdings(allocation) if allocation else ()


def read_claim(obj: Object) -> ClaimRecord:
    """A claim that was not known before."""
    metadata = obj["metadata"]
    owner: Object = next((ref for ref in metadata.get("ownerReferences", ()) if ref.get("kind") == "Pod"), {})
    record = ClaimRecord(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        owner=owner.get("name", ""),
        owner_uid=owner.get("uid", ""),
        charge=charge(obj.get("spec") or {}),
    )
    record.update(obj)
    return record


def holdings(allocation: Object) -> tuple[Holding, ...]:
    """The devices of an allocation that the claim occupies: not those that it has by adminAccess."""
    return tuple(
        Holding(f"{result['driver']}/{result['pool']}/{result['device']}", not result.get("shareID"))
        for result in (allocation.get("devices") or {}).get("results", ())
        if not result.get("adminAccess")
    )


def charge(spec: Object) -> int:
    """Devices that quota counts for a claim when it is created, allocated or not.

    As pkg/quota/v1/evaluator/core/resource_claims.go has it: the count, 32 for All, the largest alternative.
    """
    return sum(
        max((_count(alternative) for alternative in request["firstAvailable"]), default=0)
        if request.get("firstAvailable")
        else _count(request.get("exactly") or {})
        for request in (spec.get("devices") or {}).get("requests", ())
    )


def _count(request: Object) -> int:
    if not request:
        return 0
    if request.get("allocationMode", "ExactCount") == "All":
        return ALL_DEVICES_CHARGE
    return int(request.get("count", 1))
