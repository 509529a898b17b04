"""What waits in the servers' queues, from answers as they give them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
import urllib3

from clusters import metrics
from clusters.metrics import Sample
from harness.errors import EnvironmentBlocked
from harness.kube import ApiError, KubeClient
from harness.waiting import wait_until
from load.backlog import BacklogWatch, waiting
from tests.support.paper import paper_cluster

DUMP = """\
PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing, WaitingRequests, ExecutingRequests, DispatchedRequests
exempt,            0,            false,  false,       0,               2,                 812
workload-low,      3,            false,  false,       {low},               24,                5121
"""


def dump(low: int) -> str:
    return DUMP.format(low=low)


class Server:
    """Gives the answers in turn, the last one from then on; an exception is raised."""

    def __init__(self, *answers: Any) -> None:
        self._answers = iter(answers)
        self._last: Any = None
        self.asked = 0

    def request(self, method: str, path: str, **_: Any) -> Any:
        self.asked += 1
        self._last = next(self._answers, self._last)
        if isinstance(self._last, Exception):
            raise self._last
        return self._last


def refused(status: int) -> ApiError:
    return ApiError("GET", "/debug", status, "no")


@pytest.fixture
def depths(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Server]:
    """Has the controller manager answer with depths of the claims' queue, or errors."""

    def answering(*answers: Any) -> Server:
        manager = Server(*answers)

        def read(*_: Any, **__: Any) -> list[Sample]:
            depth = manager.request("GET", "/metrics")
            return [Sample("workqueue_depth", {"name": "resource_claim"}, float(depth))]

        monkeypatch.setattr(metrics, "read", read)
        return manager

    return answering


def watching(server: Server) -> BacklogWatch:
    return BacklogWatch(paper_cluster(), cast(KubeClient, server), interval=0.001)


def test_the_dump_by_its_headings() -> None:
    assert waiting(dump(17)) == {"exempt": 0, "workload-low": 17}
    assert waiting("WaitingRequests,\tPriorityLevelName\n<none>,\ta\n5,\tb\n") == {"b": 5}


def test_the_most_is_kept(depths: Callable[..., Server]) -> None:
    server, manager = Server(dump(3), dump(40), dump(0)), depths(2, 9, 1)
    with watching(server) as watch:
        wait_until(lambda: server.asked > 3 and manager.asked > 3, 10, "looks", interval=0.001)
    assert watch.most.inqueue == {"exempt": 0, "workload-low": 40}
    assert watch.most.depth == {"resource_claim": 9}
    assert "backlog" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("status", [401, 403, 404])
def test_where_nobody_may_look_it_does_not_ask_again(depths: Callable[..., Server], status: int) -> None:
    server, manager = Server(refused(status)), depths(EnvironmentBlocked("not served"))
    with watching(server) as watch:
        wait_until(lambda: server.asked and manager.asked, 10, "looks", interval=0.001)
        wait_until(lambda: not watch._looks, 10, "it to see that", interval=0.001)
    assert (server.asked, manager.asked) == (1, 1)
    assert watch.most.inqueue == watch.most.depth == {}


def test_words_that_it_does_not_know_are_no_error(depths: Callable[..., Server]) -> None:
    server, _ = Server("<html>a proxy's page</html>"), depths(3)
    with watching(server) as watch:
        wait_until(lambda: watch.most.depth, 10, "the other look", interval=0.001)
    assert (server.asked, watch.most.inqueue) == (1, {})


@pytest.mark.parametrize("error", [refused(503), OSError("refused"), urllib3.exceptions.ProtocolError("cut")])
def test_a_server_that_comes_back_is_asked_again(depths: Callable[..., Server], error: Exception) -> None:
    server, manager = Server(error, dump(6)), depths(error, 4)
    with watching(server) as watch:
        wait_until(lambda: server.asked > 2 and manager.asked > 2, 10, "looks", interval=0.001)
    assert (watch.most.inqueue["workload-low"], watch.most.depth) == (6, {"resource_claim": 4})
