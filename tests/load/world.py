"""Watch objects as the API server sends them, cut down to what a generator's books read."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path
from typing import Any

from load.model import Orders, PodKind

Object = dict[str, Any]

EVICTION = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByDeviceTaintManager",
    "message": "Device Taint manager: deleting due to NoExecute taint",
}


def kind(name: str = "gpu", *, claims: int = 1, **more: Any) -> PodKind:
    """A kind of pod in namespace `ns`, unless `more` says otherwise."""
    return PodKind(name=name, **{"weight": 1, "manifest": {}, "claims": claims, "namespaces": ["ns"], **more})


def orders(*kinds: PodKind, **more: Any) -> Orders:
    """Orders of run `r1`, held for two seconds, whose kubeconfigs nobody reads."""
    known: dict[str, Any] = {
        "run_id": "r1",
        "seed": 7,
        "sender_kubeconfig": Path("sender"),
        "observer_kubeconfig": Path("observer"),
        "expected_flow_schema_uid": "schema",
        "exempt_uids": [],
        "observer_flow_schema_uid": "observers",
        "kinds": list(kinds) or [kind()],
        "hold_seconds": 2.0,
    }
    return Orders(**{**known, **more})


class World:
    """Makes objects, each state with the next resource version."""

    def __init__(self) -> None:
        self._versions = itertools.count(100)

    def pod(self, name: str, namespace: str = "ns") -> Object:
        """A pod as it is right after its creation."""
        metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
        return self.next({"metadata": metadata, "spec": {}, "status": {"phase": "Pending"}})

    def claim(self, pod: str = "", number: int = 0, namespace: str = "ns", count: int = 1) -> Object:
        """A claim for so many devices, owned by that pod if one is named."""
        name = f"{pod or 'claim'}-c{number}"
        metadata: Object = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"}
        if pod:
            metadata["ownerReferences"] = [{"kind": "Pod", "name": pod, "uid": f"uid-{pod}"}]
        metadata["finalizers"] = ["resource.kubernetes.io/delete-protection"]
        request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}}
        return self.next({"metadata": metadata, "spec": {"devices": {"requests": [request]}}})

    def next(self, obj: Object, **status: Any) -> Object:
        """The object a version later, with these fields of its status set (None takes one away)."""
        new = copy.deepcopy(obj)
        new["metadata"]["resourceVersion"] = str(next(self._versions))
        fields = new.setdefault("status", {})
        fields.update(status)
        new["status"] = {key: value for key, value in fields.items() if value is not None}
        return new

    def named(self, pod: Object, *claims: str) -> Object:
        """The pod with these generated claims in its status."""
        statuses = [{"name": f"c{n}", "resourceClaimName": claim} for n, claim in enumerate(claims)]
        return self.next(pod, resourceClaimStatuses=statuses)

    def bound(self, pod: Object, node: str = "n1") -> Object:
        """The pod with a node."""
        new = self.next(pod)
        new["spec"]["nodeName"] = node
        return new

    def allocated(self, claim: Object, *devices: str, **result: Any) -> Object:
        """The claim with these devices of pool `p` of driver `d`, reserved for its pod."""
        results = [{"request": "r", "driver": "d", "pool": "p", "device": each, **result} for each in devices]
        allocation = {"devices": {"results": results}}
        return self.next(claim, allocation=allocation, reservedFor=[{"resource": "pods", "name": "x"}])

    def released(self, claim: Object) -> Object:
        """The claim without allocation and reservation."""
        return self.next(claim, allocation=None, reservedFor=None)

    def terminating(self, obj: Object) -> Object:
        """The object with a deletion timestamp."""
        new = self.next(obj)
        new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        return new

    def slice_(self, name: str, *devices: str, pool: str = "p", generation: int = 1) -> Object:
        """A ResourceSlice of driver `d`."""
        spec = {
            "driver": "d",
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1},
            "devices": [{"name": device} for device in devices],
        }
        return self.next({"metadata": {"name": name}, "spec": spec})
