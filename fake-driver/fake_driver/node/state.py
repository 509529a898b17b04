"""Prepares and unprepares claims on one node: what a DRA driver promises to the kubelet."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fake_driver.config import Quirk
from fake_driver.errors import ClaimError, StartError
from fake_driver.inventory.base import NodeInventory
from fake_driver.kubeapi.client import RESOURCE_API, ApiClient, ApiError
from fake_driver.node.cdi import CdiWriter
from fake_driver.node.checkpoint import Checkpoint
from fake_driver.node.claims import (
    AllocatedDevice,
    Applies,
    ClaimRef,
    PreparedClaim,
    applies,
    applies_always,
    applies_by_request,
    read_claim,
)
from fake_driver.node.metadata import MetadataWriter

log = logging.getLogger(__name__)

_SLOW_SECONDS = 0.02  # of a quirk: twice what metadata may add to preparing a claim


@dataclass(frozen=True)
class DeviceAnswer:
    """One device in the answer to the kubelet."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...]
    share_id: str | None


@dataclass(frozen=True)
class NodeIdentity:
    """Whose claims these are."""

    driver: str
    pool: str


class NodeState:
    """The prepared claims of one node, on disk and in CDI."""

    def __init__(
        self,
        identity: NodeIdentity,
        client: ApiClient,
        checkpoint: Checkpoint,
        cdi: CdiWriter,
        metadata: MetadataWriter,
        inventory: Callable[[], NodeInventory],
        quirks: set[Quirk],
    ) -> None:
        self._identity = identity
        self._client = client
        self._checkpoint = checkpoint
        self._cdi = cdi
        self._metadata = metadata
        self._inventory = inventory
        self._quirks = quirks
        self._given_up: dict[str, ClaimError] = {}  # by a quirk: claim UID -> the error for good
        self.metadata_enabled = True

    def restore(self) -> None:
        """Bring CDI specs and metadata files in line with the checkpoint, as after a reboot or a crash.

        Raises:
            StartError: the checkpoint can't be used.
            OSError: files can't be written.
        """
        with self._checkpoint.transaction() as prepared:
            if Quirk.FORGETS_CLAIMS in self._quirks:
                prepared.clear()
            for claim in prepared.values():
                self._ensure_files(claim)
            for uid in self._cdi.claims() - set(prepared):
                self._cdi.remove(uid)
            self._metadata.remove_orphans(prepared)

    def tidy(self) -> None:
        """Remove what is empty; whatever can't be read stays as it is."""
        with contextlib.suppress(StartError, OSError):
            with self._checkpoint.transaction() as prepared:
                if not prepared:
                    with contextlib.suppress(OSError):  # none, or another claim's files by a quirk
                        self._metadata.remove_folder()
            self._checkpoint.forget_if_empty()

    def prepared(self) -> dict[str, PreparedClaim]:
        """The prepared claims by UID."""
        return self._checkpoint.read()

    def prepare(self, refs: Sequence[ClaimRef]) -> dict[str, list[DeviceAnswer] | ClaimError]:
        """Prepare claims; the answer has one entry for each, by UID."""
        fetched = {ref.uid: self._fetch(ref) for ref in refs}  # slow, so before the lock
        answers: dict[str, list[DeviceAnswer] | ClaimError] = {}
        with self._checkpoint.transaction() as prepared:
            for ref in refs:
                claim = fetched[ref.uid]
                if isinstance(claim, PreparedClaim):
                    answers[ref.uid] = self._prepare(claim, prepared)
                else:
                    answers[ref.uid] = claim
        return answers

    def unprepare(self, refs: Sequence[ClaimRef]) -> dict[str, ClaimError | None]:
        """Revert claims, known or not; the answer has one entry for each, by UID."""
        with self._checkpoint.transaction() as prepared:
            return {ref.uid: self._unprepare(ref, prepared) for ref in refs}

    def update_metadata(self, uid: str, request: str, changes: dict[str, dict[str, Any]]) -> int:
        """Change a request's metadata and return its new generation.

        Raises:
            ClaimError: the claim isn't prepared, or has no such request or device.
        """
        with self._checkpoint.transaction() as prepared:
            try:
                if uid not in prepared:
                    raise ClaimError(f"claim with UID {uid} is not prepared")
                prepared[uid] = self._metadata.update(prepared[uid], request, changes)
            except ClaimError:
                if Quirk.METADATA_UPDATES_ANYTHING not in self._quirks:
                    raise
                return 1
            return prepared[uid].generations[request]

    def _fetch(self, ref: ClaimRef) -> PreparedClaim | ClaimError:
        path = f"{RESOURCE_API}/namespaces/{ref.namespace}/resourceclaims/{ref.name}"
        if ref.uid in self._given_up:
            return self._given_up[ref.uid]
        try:
            claim = self._client.get(path)
            special = "resource.kubernetes.io/extended-resource-claim"
            annotations = claim["metadata"].get("annotations") or {}
            if special in annotations and Quirk.REFUSES_EXTENDED_RESOURCES in self._quirks:
                return ClaimError(f"ResourceClaim {ref.namespace}/{ref.name} has no pod claim name")
            identity = self._identity
            return read_claim(claim, ref, identity.driver, identity.pool, self._applies)
        except ApiError as error:
            failure = ClaimError(f"get ResourceClaim {ref.namespace}/{ref.name}: {error}")
            if Quirk.GIVES_UP_ON_CLAIMS in self._quirks:
                self._given_up[ref.uid] = failure
            return failure
        except ClaimError as error:
            return error

    @property
    def _applies(self) -> Applies:
        if Quirk.CONFIG_FOR_ALL_REQUESTS in self._quirks:
            return applies_always
        return applies_by_request if Quirk.NO_SUBREQUEST_CONFIG in self._quirks else applies

    def _prepare(
        self, wanted: PreparedClaim, prepared: dict[str, PreparedClaim]
    ) -> list[DeviceAnswer] | ClaimError:
        known = prepared.get(wanted.uid)
        try:
            if known is not None:
                if _held(known) != _held(wanted):
                    raise ClaimError(
                        f"ResourceClaim {wanted.namespace}/{wanted.name} is prepared with other devices "
                        "than it has now; it must be unprepared first"
                    )
                self._ensure_files(known)
                return self._answer(known, again=True)
            self._check_conflicts(wanted, prepared)
            claim = replace(
                wanted,
                devices=tuple(self._described(device) for device in wanted.devices),
                metadata=self.metadata_enabled or Quirk.METADATA_ALWAYS in self._quirks,
            )
            self._write_files(claim, prepared)
        except ClaimError as error:
            return error
        prepared[claim.uid] = claim
        return self._answer(claim)

    def _write_files(self, claim: PreparedClaim, prepared: dict[str, PreparedClaim]) -> None:
        if claim.metadata:
            self._metadata.check_owner(claim, prepared)
        try:
            self._cdi.write(claim)
            if claim.metadata:
                self._write_metadata(claim)
        except OSError as error:
            with contextlib.suppress(OSError):  # what hinders the writing may hinder this; it is tried again
                self._remove_files(ClaimRef(claim.namespace, claim.name, claim.uid))
            raise ClaimError(f"can't write {error.filename or 'a file'}: {error.strerror}") from None

    def _write_metadata(self, claim: PreparedClaim) -> None:
        if Quirk.METADATA_SLOW in self._quirks:
            time.sleep(_SLOW_SECONDS)
        try:
            self._metadata.write(claim)
        except OSError:
            if Quirk.METADATA_IGNORES_FAILURE not in self._quirks:
                raise

    def _unprepare(self, ref: ClaimRef, prepared: dict[str, PreparedClaim]) -> ClaimError | None:
        if ref.uid not in prepared and Quirk.UNPREPARE_UNKNOWN_FAILS in self._quirks:
            return ClaimError(f"claim with UID {ref.uid} is not prepared")
        if Quirk.UNPREPARE_NEEDS_CLAIM in self._quirks:
            fetched = self._fetch(ref)
            if isinstance(fetched, ClaimError):
                return fetched
        try:
            self._remove_files(ref)
        except OSError as error:
            return ClaimError(f"can't remove {error.filename or 'a file'}: {error.strerror}")
        if Quirk.UNPREPARE_KEEPS_DEVICE not in self._quirks:
            prepared.pop(ref.uid, None)
        return None

    def _remove_files(self, ref: ClaimRef) -> None:
        if Quirk.KEEPS_CDI_SPECS not in self._quirks:
            self._cdi.remove(ref.uid)
        self._metadata.remove(ref)

    def _check_conflicts(self, wanted: PreparedClaim, prepared: dict[str, PreparedClaim]) -> None:
        if Quirk.SHARES_DEVICES in self._quirks:
            return
        for device in wanted.devices:
            for other in prepared.values():
                if any(_conflict(device, held) for held in other.devices):
                    raise ClaimError(
                        f"device {device.pool}/{device.device} is in use by claim "
                        f"{other.namespace}/{other.name} (UID {other.uid})"
                    )

    def _described(self, allocated: AllocatedDevice) -> AllocatedDevice:
        device = self._inventory().device(allocated.device)
        if device is None:
            raise ClaimError(f"device {allocated.pool}/{allocated.device} doesn't exist")
        edits = self._inventory().edits(allocated.device)
        return replace(allocated, attributes=device["attributes"], edits=edits)

    def _ensure_files(self, claim: PreparedClaim) -> None:
        if not self._cdi.path(claim.uid).exists():
            self._cdi.write(claim)
        if claim.metadata and self._metadata.missing(claim):
            self._metadata.write(claim)

    def _answer(self, claim: PreparedClaim, *, again: bool = False) -> list[DeviceAnswer]:
        metadata = dict(self._metadata.cdi_ids(claim)) if claim.metadata else {}
        answers = []
        for device in claim.devices:
            ids = [self._cdi.device_id(claim.uid, device)]
            if extra := metadata.pop(device.main_request, None):
                ids.append(extra)
            if Quirk.UNQUALIFIED_CDI_IDS in self._quirks:
                ids = [id_.partition("=")[2] for id_ in ids]
            if Quirk.DUPLICATE_CDI_IDS in self._quirks:
                ids *= 2
            name = device.device
            if again and Quirk.PREPARE_MOVES_DEVICE in self._quirks:
                name += "-moved"
            answers.append(DeviceAnswer(self._names(device), device.pool, name, tuple(ids), device.share_id))
        return answers

    def _names(self, device: AllocatedDevice) -> tuple[str, ...]:
        if Quirk.NO_REQUEST_NAMES in self._quirks:
            return ()  # the kubelet gives the device to every request of the claim
        return (device.request if Quirk.SUBREQUEST_NAMES in self._quirks else device.main_request,)


def _held(claim: PreparedClaim) -> list[tuple[str, str, str, str | None]]:
    return [(device.request, device.pool, device.device, device.share_id) for device in claim.devices]


def _conflict(one: AllocatedDevice, other: AllocatedDevice) -> bool:
    """Whether two claims can't hold these at once: admin access only looks on, shares are made for it."""
    if (one.pool, one.device) != (other.pool, other.device):
        return False
    if one.admin_access or other.admin_access:
        return False
    return one.exclusive or other.exclusive or one.share_id == other.share_id
