"""What the watches show of taints: devices that were given away all the same, pods that were evicted."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field

from harness.kube import Object

TAINT_KEY = "load.dra-harness.dev/storm"
_EVICTED = "DeletionByDeviceTaintManager"
"""Reason of the pod condition DisruptionTarget: pkg/controller/devicetainteviction."""


@dataclass
class Tainted:
    """A time in which pools are tainted; its end is open while it lasts."""

    pools: frozenset[str]
    begin: float = math.inf
    """Since when it is settled."""
    end: float = math.inf
    evicts: float = math.inf
    """Since when pods are evicted."""


def evictions_off(counted: int, seen: int, raced: int, crossed: int) -> int:
    """How far the controller's counter is from what was seen.

    A pod that somebody deletes between the controller's patch of its condition and its delete is not counted.
    One that it finds being deleted already is counted, though it does nothing to it (`maybeDeletePod` in
    pkg/controller/devicetainteviction).

    Args:
        counted: by the controller.
        seen: pods with its condition that went.
        raced: those among them that may have been deleted by us.
        crossed: pods without it that were deleted by us while they were to be evicted.
    """
    return max(0, counted - seen - crossed, seen - raced - counted)


@dataclass
class Witness:
    """Allocations and evictions as the watches show them."""

    tainted: list[Tainted] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    evicted: dict[str, float] = field(default_factory=dict)
    """UIDs of pods that the taint eviction deleted, and when that was seen."""
    tolerating: frozenset[str] = frozenset()
    """Templates of claims that tolerate the taints."""
    tolerating_evicted: list[str] = field(default_factory=list)
    """Pods of such claims among the evicted, whoever's delete came first."""
    crossed: set[str] = field(default_factory=set)
    """UIDs of pods that somebody else deleted while they were to be evicted."""
    _seen: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def claim(self, kind: str, obj: Object, at: float) -> None:
        """A watch event of a claim: its first allocation is judged against what is tainted now."""
        uid = obj["metadata"]["uid"]
        allocation = obj.get("status", {}).get("allocation")
        with self._lock:
            if kind == "DELETED":
                self._seen.discard(uid)
                return
            if not allocation or uid in self._seen:
                return
            self._seen.add(uid)
            if _tolerates(obj):
                return
            pools = {each["pool"] for each in allocation.get("devices", {}).get("results", ())}
            for span in self.tainted:
                if span.begin <= at < span.end and pools & span.pools:
                    name = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
                    self.wrong.append(
                        f"claim {name} got a device of {sorted(pools & span.pools)[0]} while tainted"
                    )
                    return

    def pod(self, kind: str, obj: Object, at: float) -> None:
        """A watch event of a pod: the controller says in a condition that it is the one who deletes it."""
        if "deletionTimestamp" not in obj["metadata"] and kind != "DELETED":
            return  # the condition comes first, the deletion after it
        conditions = obj.get("status", {}).get("conditions", ())
        by_controller = any(
            each["type"] == "DisruptionTarget" and each.get("reason") == _EVICTED for each in conditions
        )
        uid = obj["metadata"]["uid"]
        claims = obj.get("spec", {}).get("resourceClaims", ())
        tolerates = any(each.get("resourceClaimTemplateName") in self.tolerating for each in claims)
        with self._lock:
            if not by_controller:
                if not tolerates and self._evicts(obj["spec"].get("nodeName", ""), at):
                    self.crossed.add(uid)
            elif uid not in self.evicted:
                self.evicted[uid] = at
                if tolerates:
                    self.tolerating_evicted.append(
                        f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
                    )

    def _evicts(self, node: str, at: float) -> bool:
        return any(span.evicts <= at < span.end and node in span.pools for span in self.tainted)


def _tolerates(claim: Object) -> bool:
    requests = claim["spec"]["devices"].get("requests", ())
    return any(each.get("exactly", {}).get("tolerations") for each in requests)
