"""All ResourceClaims of the watched namespaces, each with the pod that owns it, if that is one of ours."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from .claims import ClaimRecord, Holding, Object, read_claim
from .invariants import Invariants
from .pod import PodRecord, version_of


class ClaimBook:
    """Follows claims from their creation to their deletion, and tells the invariants.

    Args:
        pods: those that are followed, by name; the tracker's own table.
        prefix: what the names of this worker's pods start with, followed or already ended.
        invariants: told of everything.
    """

    def __init__(self, pods: Mapping[str, PodRecord], prefix: str, invariants: Invariants) -> None:
        self._pods = pods
        self._prefix = prefix
        self._invariants = invariants
        self._claims: dict[str, ClaimRecord] = {}
        self._newest: dict[str, int] = {}
        self.seen = 0
        """Claims of our pods that ever were there."""

    def event(self, type_: str, obj: Object, at: float) -> PodRecord | None:
        """A watch event.

        Returns:
            the pod whose claims it changed, if it is one that is followed.
        """
        metadata = obj["metadata"]
        version, namespace = version_of(metadata), metadata["namespace"]
        if version:
            if version <= self._newest.get(namespace, 0):
                return None  # a watch resumed too early tells old news, even of claims that are gone
            self._newest[namespace] = version
        claim = self._claims.get(metadata["uid"])
        if type_ == "DELETED":
            return self._gone(claim, version, at) if claim else self._seen_gone(obj, version, at)
        return self._put(claim, obj, at)

    def relisted(
        self, objects: Iterable[Object], at: float, namespaces: Collection[str] | None
    ) -> set[PodRecord]:
        """The full state of these namespaces (None: of all): what is missing is gone.

        Returns:
            the followed pods whose claims it changed.
        """
        listed = {obj["metadata"]["uid"]: obj for obj in objects}
        known = [
            claim for claim in self._claims.values() if namespaces is None or claim.namespace in namespaces
        ]
        self._invariants.relisting(known)
        changed = [self._gone(claim, 0, at) for claim in known if claim.uid not in listed]
        for obj in sorted(listed.values(), key=lambda obj: obj["metadata"]["uid"] not in self._claims):
            metadata = obj["metadata"]
            namespace = metadata["namespace"]
            self._newest[namespace] = max(self._newest.get(namespace, 0), version_of(metadata))
            changed.append(self._put(self._claims.get(metadata["uid"]), obj, at, listed=True))
        return {pod for pod in changed if pod is not None}

    def orphan(self, pod: PodRecord) -> None:
        """The pod is not followed any longer."""
        for claim in pod.claims.values():
            claim.pod, claim.orphaned_at = None, pod.gone
        pod.claims.clear()

    def ours(self) -> list[ClaimRecord]:
        """Claims of this worker's pods that exist."""
        return [claim for claim in self._claims.values() if claim.ours]

    def _put(
        self, claim: ClaimRecord | None, obj: Object, at: float, *, listed: bool = False
    ) -> PodRecord | None:
        if claim is None:
            claim = self._new(obj, at)
            before: tuple[Holding, ...] = ()
            self._invariants.created(claim, at)
        else:
            before = claim.holdings
            claim.update(obj)
        self._invariants.holds(claim, before, at, listed=listed)
        pod = claim.pod
        if pod is not None:
            if claim.holdings and claim.holdings != before:
                pod.devices.extend(h.device for h in claim.holdings if h.device not in pod.devices)
            if listed and pod.delete_sent is not None:
                claim.was_reserved = True  # the pod was bound; its reservation went in the gap, or is there
        return pod

    def _new(self, obj: Object, at: float) -> ClaimRecord:
        claim = self._claims[obj["metadata"]["uid"]] = read_claim(obj)
        if not claim.owner.startswith(self._prefix):
            return claim
        claim.ours = True
        self.seen += 1
        pod = self._pods.get(claim.owner)
        if pod is None or pod.namespace != claim.namespace or (pod.uid and pod.uid != claim.owner_uid):
            claim.orphaned_at = at
            return claim
        claim.pod = pod
        pod.claims[claim.uid] = claim
        pod.claim_names.append(claim.name)
        return claim

    def _seen_gone(self, obj: Object, version: int, at: float) -> PodRecord | None:
        """A claim that was made in a gap of the watch, and is deleted now."""
        self._put(None, obj, at)
        return self._gone(self._claims[obj["metadata"]["uid"]], version, at)

    def _gone(self, claim: ClaimRecord, version: int, at: float) -> PodRecord | None:
        del self._claims[claim.uid]
        self._invariants.gone(claim, version, at)
        pod = claim.pod
        if pod is not None:
            pod.claims.pop(claim.uid, None)
        return pod
