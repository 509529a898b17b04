"""The requests about pods, built once per kind and namespace and filled in with a name."""

from __future__ import annotations

import orjson

from harness.labels import RUN
from load.arrivals import Arrival
from load.generator.access import Access
from load.generator.exchange import BRIEF, head
from load.model import Orders, PodKind

WORKER_LABEL = "dra-harness.dev/worker"

_GAP = b"@NAME@"
_LENGTH = 1_000_000_000
"""Stands for a Content-Length in a prebuilt head; no body is that long."""


class PodRequests:
    """Create and delete requests of one worker's pods, as the sender."""

    def __init__(self, orders: Orders, access: Access, *, worker: int) -> None:
        self._access = access
        self._bodies = {kind.name: _body(kind, orders.run_id, worker) for kind in orders.kinds}
        self._heads: dict[str, tuple[bytes, bytes]] = {}
        query = (
            ""
            if orders.delete_grace_seconds is None
            else f"?gracePeriodSeconds={orders.delete_grace_seconds}"
        )
        path = "/api/v1/namespaces/@NAMESPACE@/pods/"
        self._delete = head(access, "DELETE", f"{path}@NAME@{query}", accept=BRIEF)

    def create(self, arrival: Arrival) -> bytes:
        """The whole request that creates the pod."""
        before, after = self._bodies[arrival.kind.name]
        name = arrival.name.encode()
        start, end = self._head(arrival.namespace)
        length = len(before) + len(name) + len(after)
        return b"%b%d%b%b%b%b" % (start, length, end, before, name, after)

    def probe(self, kind: PodKind, namespace: str, name: str) -> bytes:
        """A dry run of a create: it takes the create's way through admission, and nothing is stored."""
        before, after = self._bodies[kind.name]
        body = before + name.encode() + after
        path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldManager=dra-harness-load"
        return head(self._access, "POST", path, accept=BRIEF, length=len(body)) + body

    def delete(self, namespace: str, name: str) -> bytes:
        """The whole request that deletes the pod."""
        return self._delete.replace(b"@NAMESPACE@", namespace.encode(), 1).replace(_GAP, name.encode(), 1)

    def _head(self, namespace: str) -> tuple[bytes, bytes]:
        """The head of a create in that namespace, around its Content-Length."""
        found = self._heads.get(namespace)
        if found is None:
            path = f"/api/v1/namespaces/{namespace}/pods?fieldManager=dra-harness-load"
            whole = head(self._access, "POST", path, accept=BRIEF, length=_LENGTH)
            start, _, end = whole.partition(str(_LENGTH).encode())
            found = self._heads[namespace] = (start, end)
        return found


def _body(kind: PodKind, run_id: str, worker: int) -> tuple[bytes, bytes]:
    """The pod as JSON, before and after its name."""
    metadata = dict(kind.manifest.get("metadata", {}))
    metadata["labels"] = {**metadata.get("labels", {}), RUN: run_id, WORKER_LABEL: str(worker)}
    metadata.pop("namespace", None)
    metadata.pop("name", None)
    pod = {"apiVersion": "v1", "kind": "Pod", **kind.manifest, "metadata": {"name": "@NAME@", **metadata}}
    before, _, after = orjson.dumps(pod).partition(b'"name":"@NAME@"')
    return before + b'"name":"', b'"' + after
