"""Follows objects of the run by watch, for what a scenario has to see for itself.

The generator's own watches judge the churn. This is for standing pods, evictions and recovery; it runs in the
harness's process, so its times carry a few milliseconds of this process's own lateness.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection

import urllib3

from harness.kube import PODS, ApiError, KubeClient, Object, Resource

_WATCH_SECONDS = 3600.0
_RAN = ("Running", "Succeeded")
Handler = Callable[[str, Object, float], None]
"""Called with ADDED, MODIFIED or DELETED, the object, and the time of receipt (`time.time()`)."""


class Follower:
    """Lists, then watches one kind of object in some namespaces, and hands every change to a handler."""

    def __init__(
        self,
        kube: KubeClient,
        resource: Resource,
        namespaces: Collection[str],
        handler: Handler,
        *,
        labels: str = "",
    ) -> None:
        self._kube = kube
        self._resource = resource
        self._namespaces = frozenset(namespaces)
        self._handler = handler
        self._labels = labels
        self._left = threading.Event()
        self._listed = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"follow-{resource.plural}", daemon=True)
        self._version = ""
        self._there: dict[str, Object] = {}
        self.cuts: list[str] = []
        """Why the state had to be listed again, each time; what came between may be missed."""

    def start(self) -> None:
        """Begin; returns once the first list is in (or can't be had within 10 s)."""
        self._thread.start()
        self._listed.wait(10)

    def stop(self) -> None:
        """End. The thread goes with the next event or the end of its watch; nothing waits for it."""
        self._left.set()

    def _follow(self) -> None:
        while not self._left.is_set():
            try:
                if not self._version:
                    self._list()
                    self._listed.set()
                self._watch()
            except (OSError, ValueError, urllib3.exceptions.HTTPError):
                self._left.wait(0.2)  # the server is away; what happens meanwhile comes with the next watch
            except ApiError as error:
                self._lose(str(error))
                self._left.wait(0.2)

    def _list(self) -> None:
        query = {"labelSelector": self._labels} if self._labels else {}
        document = json.loads(self._kube.request("GET", self._resource.path(), query=query))
        at = time.time()
        listed = {obj["metadata"]["uid"]: obj for obj in document["items"]}
        for uid in self._there.keys() - listed.keys():
            self._hand("DELETED", self._there[uid], at)  # it went while nobody watched
        for obj in listed.values():
            self._hand("ADDED", obj, at)
        self._version = document["metadata"]["resourceVersion"]

    def _watch(self) -> None:
        """Follow from the last version on, until the server ends the watch."""
        events = self._kube.watch(
            self._resource, resource_version=self._version, labels=self._labels, seconds=_WATCH_SECONDS
        )
        for event in events:
            if self._left.is_set():
                return
            if event["type"] == "ERROR":
                self._lose(str(event["object"].get("message", "an error")))
                return
            self._version = event["object"]["metadata"]["resourceVersion"]
            self._hand(event["type"], event["object"], time.time())

    def _lose(self, reason: str) -> None:
        """The versions since the last one are not to be had any more: the state has to be listed again."""
        self._version = ""
        if not self._left.is_set() and self._listed.is_set():
            self.cuts.append(f"{self._resource.plural}: {reason}")

    def _hand(self, kind: str, obj: Object, at: float) -> None:
        if self._namespaces and obj["metadata"].get("namespace") not in self._namespaces:
            return
        if kind == "DELETED":
            self._there.pop(obj["metadata"]["uid"], None)
        elif kind != "BOOKMARK":
            self._there[obj["metadata"]["uid"]] = obj
        self._handler(kind, obj, at)


class Backlog:
    """Which pods of some namespaces are waiting for a node, and since when they have been seen to.

    Args:
        kube: an observer's.
        namespaces: whose pods.
        running: whether they wait until they have run there; those that did are remembered.
        keeps_bound: whether to remember those that got a node, which are ever more.
    """

    def __init__(
        self,
        kube: KubeClient,
        namespaces: Collection[str],
        *,
        running: bool = False,
        keeps_bound: bool = False,
    ) -> None:
        self._running = running
        self._keeps_bound = keeps_bound or running
        self._lock = threading.Lock()
        self._waiting: dict[str, float] = {}
        self._bound: dict[str, tuple[float, float, str, str]] = {}
        self._follower = Follower(kube, PODS, namespaces, self._handle)

    def start(self) -> None:
        """Begin to follow."""
        self._follower.start()

    def stop(self) -> None:
        """End."""
        self._follower.stop()

    def waiting(self, *, since: float) -> int:
        """Pods that were seen before that moment and are still waiting."""
        with self._lock:
            return sum(1 for seen in self._waiting.values() if seen < since)

    def bound(
        self, *, after: float = 0.0, before: float = float("inf")
    ) -> list[tuple[float, float, str, str]]:
        """(seen, bound, node, name) of pods that were first seen in that time and wait no more."""
        with self._lock:
            return [entry for entry in self._bound.values() if after <= entry[0] < before]

    def seen(self, *, after: float, before: float) -> int:
        """Pods that were first seen in that time, bound or not."""
        with self._lock:
            waiting = sum(1 for seen in self._waiting.values() if after <= seen < before)
        return waiting + len(self.bound(after=after, before=before))

    def _handle(self, kind: str, obj: Object, at: float) -> None:
        uid = obj["metadata"]["uid"]
        node = obj["spec"].get("nodeName", "")
        ran = obj.get("status", {}).get("phase") in _RAN
        with self._lock:
            if kind == "DELETED":
                self._waiting.pop(uid, None)
            elif uid in self._bound:
                return
            elif node and (ran or not self._running):
                name = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
                entry = (self._waiting.pop(uid, at), at, node, name)
                if self._keeps_bound:
                    self._bound[uid] = entry
            else:
                self._waiting.setdefault(uid, at)
