"""Keeps the ResourceSlices of one node's pool as they should be, whoever else touches them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fake_driver.inventory.misplaced import off_by_one
from fake_driver.kubeapi.client import SLICES, ApiClient, ApiError, Watch
from fake_driver.publishing.plan import Plan, Published, make_plan, slice_prefix
from fake_driver.publishing.split import Content, content_of, keep_time_added, missing_paths, same_content

log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.2
_RETRY_MAX_SECONDS = 2.0
_RESYNC_SECONDS = 30.0


class PublishRejected(Exception):
    """The API server refuses the slices; the message is its own."""


@dataclass
class PoolStatus:
    """What is known about the published pool; `error` is the last failure, empty once it's over."""

    published: bool = False
    generation: int = 0
    slices: list[str] = field(default_factory=list)
    dropped_fields: list[str] = field(default_factory=list)
    error: str = ""
    rejected: bool = False


class PoolPublisher:
    """Publishes one pool, named like its node, and restores it until stopped."""

    def __init__(self, client: ApiClient, driver: str, node: str, contents: Sequence[Content]) -> None:
        self._client = client
        self._driver = driver
        self._node = node
        self._selector = {"fieldSelector": f"spec.driver={driver},spec.nodeName={node}"}
        self._changed = threading.Condition()
        self._wanted: Sequence[Content] = contents
        self._wanted_version = 1
        self._done_version = 0
        self._dirty = True
        self._stopped = threading.Event()
        self._watch: Watch | None = None
        self._published: Published | None = None
        self._server_made: dict[int, tuple[Content, Content]] = {}
        self._status = PoolStatus()
        self.restores = True  # a quirk turns it off
        self.count_error = 0  # a quirk makes it nonzero: added to every resourceSliceCount
        self.keeps_old = False  # a quirk: slices that are not wanted any more stay
        self.trusts_old = False  # a quirk: what another process published is taken for whole
        self.hides_refusals = False  # a quirk: what the API server refuses counts as published
        self.renumbers = False  # a quirk: NUMA nodes are others once slices are published again
        self._renumbered = False
        self._threads = [
            threading.Thread(target=target, name=f"{name}-{node}", daemon=True)
            for name, target in (("publish", self._publish_loop), ("watch", self._watch_loop))
        ]

    def start(self) -> None:
        """Begin to publish and to watch."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End both threads; the slices stay."""
        with self._changed:
            self._stopped.set()
            self._changed.notify_all()
            watch = self._watch
        if watch:
            watch.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=10)

    def status(self) -> PoolStatus:
        """A copy of the current state."""
        with self._changed:
            return PoolStatus(**vars(self._status))

    def want(self, contents: Sequence[Content]) -> int:
        """Change what is to be published, and return a ticket for `wait`."""
        with self._changed:
            self._wanted = contents
            self._wanted_version += 1
            self._status.rejected = False
            self._dirty = True
            self._changed.notify_all()
            return self._wanted_version

    def wait(self, timeout: float, ticket: int = 1) -> None:
        """Wait until what `ticket` stands for (at first: the initial contents), or something newer, is out.

        Raises:
            PublishRejected: the API server refuses it.
            TimeoutError: it isn't out after `timeout` seconds; the message has the last error.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            while self._done_version < ticket:
                if self._status.rejected and self._wanted_version >= ticket:
                    raise PublishRejected(self._status.error)
                left = deadline - time.monotonic()
                if left <= 0 or self._stopped.is_set():
                    reason = self._status.error or "no answer from the API server"
                    raise TimeoutError(f"slices of node {self._node} not published: {reason}")
                self._changed.wait(left)

    def resync(self) -> None:
        """Compare with the API server now."""
        with self._changed:
            self._dirty = True
            self._changed.notify_all()

    def delete_slices(self) -> None:
        """Delete all slices of the pool; only after `stop`.

        Raises:
            ApiError: the API server refused.
        """
        for slice_ in self._list()[0]:
            self._client.delete(f"{SLICES}/{slice_['metadata']['name']}")

    def _publish_loop(self) -> None:
        retry = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._dirty or self._stopped.is_set(), timeout=retry or _RESYNC_SECONDS
                )
                if self._stopped.is_set():
                    return
                self._dirty = False
                wanted, version = self._wanted, self._wanted_version
            try:
                names = self._sync(wanted)
            except ApiError as error:
                if error.rejected and self.hides_refusals:
                    self._note(names=[], version=version)
                    continue
                log.warning("node %s: publishing failed: %s", self._node, error)
                conflict = error.status in (404, 409)
                retry = _RETRY_SECONDS if conflict else min(retry * 2 or _RETRY_SECONDS, _RETRY_MAX_SECONDS)
                self._note(version=version, error=str(error), rejected=error.rejected)
            else:
                retry = 0.0
                self._note(names=names, version=version)

    def _note(
        self, *, names: list[str] | None = None, version: int = 0, error: str = "", rejected: bool = False
    ) -> None:
        with self._changed:
            self._status.error = error
            self._status.rejected = rejected and version == self._wanted_version
            if names is not None:
                self._done_version = version
                self._status.published = True
                self._status.slices = names
                self._status.generation = self._published.generation if self._published else 0
            self._changed.notify_all()

    def _sync(self, wanted: Sequence[Content]) -> list[str]:
        stored, _ = self._list()
        if self.renumbers and bool(stored) == (self._published is None):
            self._renumbered = True  # another process published this, or somebody took it away
        if self._renumbered:
            wanted = [_renumbered(content) for content in wanted]
        if self.trusts_old and stored and self._published is None:
            self._published = Published(wanted, stored[0]["spec"]["pool"]["generation"])
            self.restores = False
        if self._published is not None and not self.restores and wanted == self._published.contents:
            return [slice_["metadata"]["name"] for slice_ in stored]
        owner = self._owner()
        plan = make_plan(wanted, stored, self._published, owner, self._is_what_server_made)
        if plan.writes > 1:
            # All or nothing: a refusal halfway would leave a pool that no consumer can use.
            self._write(plan, wanted, owner, dry_run=True)
        names = self._write(plan, wanted, owner)
        for slice_ in () if self.keeps_old else plan.deletes:
            self._client.delete(f"{SLICES}/{slice_['metadata']['name']}")
        if plan.writes or plan.deletes:
            log.info(
                "node %s: generation %d, %d written, %d deleted",
                *(self._node, plan.generation, plan.writes, len(plan.deletes)),
            )
        self._published = Published(wanted, plan.generation)
        gone = {slice_["metadata"]["name"] for slice_ in plan.deletes}
        kept = {slice_["metadata"]["name"] for slice_ in stored} - gone
        return sorted(kept | set(names))

    def _write(
        self, plan: Plan, wanted: Sequence[Content], owner: dict[str, Any], *, dry_run: bool = False
    ) -> list[str]:
        pool = {
            "name": self._node,
            "generation": plan.generation,
            "resourceSliceCount": len(wanted) + self.count_error,
        }
        spec = {"driver": self._driver, "nodeName": self._node, "pool": pool}
        names = []
        for index, slice_ in plan.updates:
            content = keep_time_added(wanted[index], slice_["spec"])
            metadata = slice_["metadata"] | {"ownerReferences": [owner]}
            body = slice_ | {"metadata": metadata, "spec": spec | content}
            answer = self._client.replace(f"{SLICES}/{metadata['name']}", body, dry_run=dry_run)
            names.append(self._remember(index, wanted[index], answer, dry_run=dry_run))
        for index in plan.creates:
            body = {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {
                    "generateName": f"{slice_prefix(index)}{self._driver}-{self._node}-",
                    "ownerReferences": [owner],
                },
                "spec": spec | wanted[index],
            }
            answer = self._client.create(SLICES, body, dry_run=dry_run)
            names.append(self._remember(index, wanted[index], answer, dry_run=dry_run))
        return names

    def _remember(self, index: int, wanted: Content, answer: dict[str, Any], *, dry_run: bool) -> str:
        """Note what the server made of `wanted`: it drops fields of disabled features, silently."""
        if not dry_run:
            made = content_of(answer["spec"])
            if not same_content(wanted, made):
                self._server_made[index] = (wanted, made)
                dropped = missing_paths(wanted, made)
                log.warning("node %s: the API server dropped %s", self._node, ", ".join(dropped))
                with self._changed:
                    self._status.dropped_fields = dropped
            elif self._server_made.pop(index, None):
                with self._changed:
                    self._status.dropped_fields = []
        return str(answer["metadata"]["name"])

    def _is_what_server_made(self, index: int, content: Content) -> bool:
        wanted, made = self._server_made.get(index, (None, None))
        return made is not None and self._wanted[index] == wanted and same_content(made, content)

    def _owner(self) -> dict[str, Any]:
        node = self._client.get(f"/api/v1/nodes/{self._node}")
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "name": self._node,
            "uid": node["metadata"]["uid"],
            "controller": True,
        }

    def _list(self) -> tuple[list[dict[str, Any]], str]:
        answer = self._client.get(SLICES, self._selector)
        type_ = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
        items = [type_ | item for item in answer.get("items") or []]
        return items, answer["metadata"]["resourceVersion"]

    def _watch_loop(self) -> None:
        """Make the publisher look again after every change to the pool's slices."""
        while not self._stopped.is_set():
            try:
                _, version = self._list()
                watch = self._client.watch(SLICES, version, self._selector)
            except ApiError:
                self._stopped.wait(_RETRY_SECONDS * 5)
                continue
            with self._changed:
                if self._stopped.is_set():
                    watch.close()
                    return
                self._watch = watch
            self.resync()
            for event in watch:
                if event.get("type") != "BOOKMARK":
                    self.resync()


def _renumbered(content: Content) -> Content:
    if "devices" not in content:
        return content
    devices = [device | {"attributes": off_by_one(device["attributes"])} for device in content["devices"]]
    return content | {"devices": devices}
