"""What must hold at every instant, judged from the watches: no device or claim twice, no more than quota.

Namespaces may be watched one by one, and then the news of one claim can overtake that of another. So a device
that seems to be in two claims is judged by resource versions, which order all claims of a cluster: it is a
double allocation if the earlier claim still had it at the version at which the later one got it.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable

from .claims import ClaimRecord, Holding
from .model import Orders, Violation
from .pod import PodRecord
from .slices import SliceBook

LEAK_SECONDS = 10.0
"""How long a claim may outlive its pod, or a pod its delete: garbage collection is not at once. Where claims
wait for the controller's own limits they have `Orders.seconds_per_claim` more for each."""

LIMIT = 200
"""Violations kept of each invariant. Of the rest only the number is told."""


@dataclasses.dataclass(slots=True)
class _Holder:
    claim: ClaimRecord
    exclusive: bool
    since: int
    """Resource version at which the claim was seen to have the device."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Suspicion:
    device: str
    earlier: str
    """UID of the claim that had it first."""
    later: str
    """namespace/name of the other."""
    version: int
    """At which the other got it."""
    at: float


class Invariants:
    """Follows all claims that are watched, whoever owns them."""

    def __init__(self, orders: Orders, started_at: float) -> None:
        self._started_at = started_at
        self._orders = orders
        self._holders: dict[str, list[_Holder]] = {}
        self._suspicions: dict[str, list[_Suspicion]] = {}
        self._charged: collections.Counter[str] = collections.Counter()
        self._found: dict[str, list[Violation]] = {}
        self._number: collections.Counter[str] = collections.Counter()
        self.slices = SliceBook()

    def created(self, claim: ClaimRecord, at: float) -> None:
        """A claim was seen for the first time; its pod, if ours, already has it among its claims."""
        self._check_quota(claim, at)
        if claim.pod is not None:
            self._check_duplicates(claim, claim.pod, at)

    def relisting(self, claims: Iterable[ClaimRecord]) -> None:
        """A list takes the place of what was known of these claims; `holds` follows for each in it."""
        for claim in claims:
            for holding in claim.holdings:
                self._let_go(claim, holding.device)

    def holds(
        self, claim: ClaimRecord, before: tuple[Holding, ...], at: float, *, listed: bool = False
    ) -> None:
        """A claim was seen, with the devices in `claim.holdings`; earlier it had those in `before`.

        `listed`: in a list, so that nobody knows when it let go of a device that it no longer has.
        """
        self._resolve(claim, listed=listed)
        if claim.holdings == before and not listed:
            return
        for holding in before:
            self._let_go(claim, holding.device)
        known = {holding.device for holding in before}
        for holding in claim.holdings:
            self._take(claim, holding, at)
            if holding.device not in known:
                self._check_removed(claim, holding.device, at)

    def gone(self, claim: ClaimRecord, version: int, at: float) -> None:
        """A claim was deleted, at that resource version; 0 if nobody saw when."""
        held, claim.holdings = claim.holdings, ()
        claim.version = version
        self._resolve(claim)
        for holding in held:
            self._let_go(claim, holding.device)
        if claim.charge:
            self._charged[claim.namespace] -= claim.charge

    def leaks(self, claims: list[ClaimRecord], pods: list[PodRecord], at: float, *, seen: int) -> None:
        """At the end: ours that outlived their pods, or their delete, by more than `LEAK_SECONDS`.

        `seen`: claims of ours that there were in all, any of which may have had to be let go of before.
        """
        most = LEAK_SECONDS + self._orders.seconds_per_claim * seen
        for claim in claims:
            since = claim.orphaned_since
            if not claim.ours or since is None or at - since <= most:
                continue
            kind = "leaked-finalizer" if claim.terminating and claim.finalizers else "leaked-claim"
            held = f"; finalizers {', '.join(claim.finalizers)}" if claim.finalizers else ""
            self._violated(
                kind, at, claim.key, f"still there {at - since:.1f} s after its pod {claim.owner} went{held}"
            )
        for pod in pods:
            since = pod.delete_sent if pod.terminating and pod.gone is None else None
            if since is not None and pod.finalizers and at - since > LEAK_SECONDS:
                names = ", ".join(pod.finalizers)
                message = f"still there {at - since:.1f} s after its delete; finalizers {names}"
                self._violated("leaked-finalizer", at, pod.key, message)

    def finish(self) -> list[Violation]:
        """All violations, in order of time. No news is to come: what is still suspected is so."""
        for uid in list(self._suspicions):
            for suspicion in self._suspicions.pop(uid):
                self._confirm(suspicion)
        result = [violation for found in self._found.values() for violation in found]
        for invariant, found in self._found.items():
            if (more := self._number[invariant] - len(found)) > 0:
                at, message = found[-1].at, f"{more} more"
                result.append(Violation(invariant=invariant, at=at, object="*", message=message, count=more))
        return sorted(result, key=lambda violation: violation.at)

    def _check_quota(self, claim: ClaimRecord, at: float) -> None:
        """Quota is charged when a claim is created, so that is when it can be broken."""
        if not claim.charge:
            return
        self._charged[claim.namespace] += claim.charge
        quota = self._quota(claim.namespace, at)
        if quota is not None and self._charged[claim.namespace] > quota:
            self._violated(
                "over-quota",
                at,
                claim.key,
                f"with it the claims of {claim.namespace} ask for {self._charged[claim.namespace]} devices, "
                f"quota is {quota}",
            )

    def _quota(self, namespace: str, at: float) -> int | None:
        quota = self._orders.device_quota.get(namespace)
        changes = [change for change in self._orders.quota_changes if change.namespace == namespace]
        for change in sorted(changes, key=lambda change: change.at):
            if at >= self._started_at + change.at:
                quota = change.devices
        return quota

    def _check_duplicates(self, claim: ClaimRecord, pod: PodRecord, at: float) -> None:
        live = [other for other in pod.claims.values() if not other.terminating]
        if len(live) > pod.kind.claims and not claim.terminating:
            names = ", ".join(sorted(other.name for other in live))
            self._violated(
                "duplicate-claim",
                at,
                claim.key,
                f"pod {pod.name} should have {pod.kind.claims} claims and has {len(live)}: {names}",
            )

    def _check_removed(self, claim: ClaimRecord, device: str, at: float) -> None:
        removed = self.slices.removed_at(device)
        if removed is not None and at - removed > self._orders.settle_seconds:
            message = f"allocated to {claim.key} {at - removed:.1f} s after it left its pool's slices"
            self._violated("removed-device", at, device, message)

    def _take(self, claim: ClaimRecord, holding: Holding, at: float) -> None:
        mine = _Holder(claim, holding.exclusive, claim.version)
        others = self._holders.setdefault(holding.device, [])
        for other in others:
            if mine.exclusive or other.exclusive:
                self._suspect(holding.device, other, mine, at)
        others.append(mine)

    def _let_go(self, claim: ClaimRecord, device: str) -> None:
        rest = [holder for holder in self._holders.get(device, ()) if holder.claim is not claim]
        if rest:
            self._holders[device] = rest
        else:
            self._holders.pop(device, None)

    def _suspect(self, device: str, one: _Holder, two: _Holder, at: float) -> None:
        earlier, later = (one, two) if one.since <= two.since else (two, one)
        suspicion = _Suspicion(device, earlier.claim.uid, later.claim.key, later.since, at)
        ordered = earlier.claim.namespace == later.claim.namespace or not later.since
        if ordered or earlier.claim.version >= later.since:
            self._confirm(suspicion, earlier.claim)
        else:
            self._suspicions.setdefault(earlier.claim.uid, []).append(suspicion)

    def _resolve(self, claim: ClaimRecord, *, listed: bool = False) -> None:
        """There is news of the claim: did it still have the devices when others got them?"""
        for suspicion in self._suspicions.pop(claim.uid, ()):
            has = any(holding.device == suspicion.device for holding in claim.holdings)
            if claim.version > suspicion.version and (has or not listed):
                self._confirm(suspicion, claim)
            elif has:
                self._suspicions.setdefault(claim.uid, []).append(suspicion)

    def _confirm(self, suspicion: _Suspicion, claim: ClaimRecord | None = None) -> None:
        holders = self._holders.get(suspicion.device, ())
        named = claim or next((h.claim for h in holders if h.claim.uid == suspicion.earlier), None)
        first = named.key if named else suspicion.earlier
        self._violated(
            "double-allocation",
            suspicion.at,
            suspicion.device,
            f"in the allocations of {first} and {suspicion.later} at the same time",
        )

    def _violated(self, invariant: str, at: float, subject: str, message: str) -> None:
        self._number[invariant] += 1
        found = self._found.setdefault(invariant, [])
        if len(found) < LIMIT:
            found.append(Violation(invariant=invariant, at=at, object=subject, message=message))
