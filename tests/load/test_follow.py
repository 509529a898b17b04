"""What a scenario follows by itself: also over the moment when a watch has to begin anew."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from harness.kube import PODS, ApiError, KubeClient
from harness.waiting import wait_until
from load.scenarios.follow import Backlog, Follower

Object = dict[str, Any]


def pod(name: str, node: str = "", phase: str = "Pending") -> Object:
    spec = {"nodeName": node} if node else {}
    metadata = {"uid": name, "name": name, "namespace": "ns", "resourceVersion": "1"}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


class Server:
    """Has two states of the world; the watch of the first ends as one that can't be resumed."""

    def __init__(self, *lists: list[Object]) -> None:
        self._lists = iter(lists)
        self._last: list[Object] = []
        self.stop = threading.Event()

    def request(self, method: str, path: str, *, query: object) -> str:
        self._last = next(self._lists, self._last)
        return json.dumps({"metadata": {"resourceVersion": "5"}, "items": self._last})

    def watch(self, *_: object, **__: object) -> Iterator[Object]:
        if not self.stop.is_set():
            self.stop.set()
            raise ApiError("WATCH", "/api/v1/pods", 410, "too old")
        self.stop.wait(0.01)
        return iter(())


@pytest.mark.parametrize(("keeps", "kept"), [(True, ["ns/bound"]), (False, [])])
def test_what_went_while_nobody_watched_is_gone(keeps: bool, kept: list[str]) -> None:
    """A pod that is taken for waiting for ever would make every recovery look endless."""
    server = Server([pod("went"), pod("bound", "n"), pod("waits")], [pod("bound", "n"), pod("waits")])
    backlog = Backlog(cast(KubeClient, server), ["ns"], keeps_bound=keeps)
    backlog.start()
    try:
        wait_until(lambda: backlog.waiting(since=float("inf")) == 1, 10, "one to wait", interval=0.01)
        assert [name for _, _, _, name in backlog.bound()] == kept  # in a soak they'd be ever more
    finally:
        backlog.stop()


def test_a_pod_that_is_to_run_waits_on_its_node_until_it_has() -> None:
    ran = [pod("ran", "n", "Running"), pod("failed", "n", "Running"), pod("bound", "n"), pod("waits")]
    later = [pod("ran", "n", "Succeeded"), pod("failed", "n", "Failed"), pod("bound", "n"), pod("waits")]
    server = Server(ran, later)
    backlog = Backlog(cast(KubeClient, server), ["ns"], running=True)
    backlog.start()
    try:
        assert server.stop.wait(10)
        assert backlog.waiting(since=float("inf")) == 2
        assert [name for _, _, _, name in backlog.bound()] == ["ns/ran", "ns/failed"]
    finally:
        backlog.stop()


def test_that_something_may_have_been_missed_is_told() -> None:
    heard: list[tuple[str, str]] = []
    server = Server([pod("a")], [pod("b")])
    follower = Follower(
        cast(KubeClient, server),
        PODS,
        ["ns"],
        lambda kind, obj, _: heard.append((kind, obj["metadata"]["uid"])),
    )
    follower.start()
    try:
        wait_until(lambda: ("ADDED", "b") in heard, 10, "the second list", interval=0.01)
    finally:
        follower.stop()
    assert heard == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "b")]
    assert len(follower.cuts) == 1
