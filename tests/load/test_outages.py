"""When storage did not answer, from answers as the API server gives them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest
import urllib3

from harness.kube import ApiError, KubeClient
from harness.waiting import wait_until
from load.outages import Outage, OutageWatch


class Server:
    """Gives the answers in turn, the last one from then on."""

    def __init__(self, *answers: str | Exception) -> None:
        self._answers = list(answers)
        self.asked = 0

    def request(self, method: str, path: str, **_: Any) -> str:
        assert (method, path) == ("GET", "/readyz/etcd")
        answer = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        if isinstance(answer, Exception):
            raise answer
        return answer


def _threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def refused(status: int) -> ApiError:
    return ApiError("GET", "/readyz/etcd", status, "error: etcd failed\nmore")


def watched(server: Server, *, asks: int) -> Sequence[Outage]:
    with OutageWatch(cast(KubeClient, server), interval=0.001) as watch:
        wait_until(lambda: server.asked >= asks, 10, "looks", interval=0.001)
    return watch.outages


def test_there_is_none_where_all_answer() -> None:
    assert watched(Server("ok"), asks=5) == ()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (refused(500), "500 error: etcd failed"),
        (ApiError("GET", "/readyz/etcd", 502, ""), "502"),
        (urllib3.exceptions.ReadTimeoutError(None, "", ""), "ReadTimeoutError"),  # type: ignore[arg-type] # of no pool
        (ConnectionRefusedError(), "ConnectionRefusedError"),
    ],
)
def test_it_lasts_until_an_answer(error: Exception, reason: str) -> None:
    (outage,) = watched(Server("ok", error, refused(503), "ok"), asks=6)
    assert outage.reason == reason
    assert outage.since < outage.until


def test_one_that_goes_on_at_the_end_is_told() -> None:
    (outage,) = watched(Server("ok", refused(500)), asks=4)
    assert outage.since <= outage.until


def test_each_is_told_apart() -> None:
    assert len(watched(Server(refused(500), "ok", refused(500), "ok"), asks=6)) == 2


@pytest.mark.parametrize("status", [401, 403, 404])
def test_who_may_not_ask_does_not_ask_again(status: int) -> None:
    server = Server(refused(status))
    with OutageWatch(cast(KubeClient, server), interval=0.001) as watch:
        wait_until(lambda: not _threads("outages"), 10, "it to give up", interval=0.001)
    assert (watch.outages, server.asked) == ((), 1)


def test_in_words() -> None:
    outage = Outage(1_700_000_000.4, 1_700_000_008.0, "error: etcd failed")
    assert str(outage) == "22:13:20 to 22:13:28: the API server's storage did not answer (error: etcd failed)"
