"""One watch on one kind of object: list, follow, resume where it was cut, list again where that fails."""

from __future__ import annotations

import http.client
import logging
import urllib.parse
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import gevent
import gevent.event
import orjson

from harness.errors import EnvironmentBlocked
from load.generator.access import Access
from load.generator.clock import Clock
from load.generator.exchange import head
from load.generator.wire import Received, Wire, connections
from load.model import Gap

Object = dict[str, Any]

_CHUNK = 65536
_SILENCE = 150.0
"""Seconds without a byte after which a watch counts as cut: bookmarks come about once a minute."""
_TURN = 0.003
"""Seconds of work after which a watch that always has something to read lets arrivals be sent."""
_BACKOFF = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Seconds between attempts to get a watch back; the last one again and again."""

_log = logging.getLogger(__name__)


class Sink(Protocol):
    """Where a watch's news goes; stamps are seconds since the epoch."""

    def event(self, type_: str, obj: Object, at: float) -> None:
        """One watch event, stamped when its bytes were received."""
        ...

    def relisted(self, objects: list[Object], began: float, at: float) -> None:
        """The full state, asked for at `began`: at the start, and after a gap that could not be resumed."""
        ...

    def gap(self, gap: Gap) -> None:
        """The watch was away."""
        ...


@dataclass(frozen=True)
class Target:
    """What to watch."""

    kind: str
    """`pods`, `claims` or `slices`, as in a `Gap`."""
    path: str
    """The collection's URL path."""
    selector: str = ""
    prefix: str = ""
    """Objects in namespaces whose names don't begin so are passed over."""


class _Cut(Exception):
    """The watch ended, could not be started, or said something that can't be read."""


class _Expired(_Cut):
    """The resource version is too old to resume from (410)."""


class Watch:
    """Follows one target from `start` until `stop`; gaps are reported, never hidden.

    Args:
        target: what to watch.
        access: the observer's.
        sink: told what happens.
        clock: for the stamps.
        seconds: how long the watch should at least be left open by the server.
        requests: counts lists and watches by (verb, code).
        sleep: injected by tests.
    """

    def __init__(
        self,
        target: Target,
        access: Access,
        sink: Sink,
        clock: Clock,
        *,
        seconds: float,
        requests: Counter[tuple[str, str]],
        sleep: Callable[[float], None] = gevent.sleep,
    ) -> None:
        self._target = target
        self._access = access
        self._sink = sink
        self._clock = clock
        self._seconds = int(seconds) + 1
        self._requests = requests
        self._sleep = sleep
        self._lists = Wire(access, size=1)
        self._version = ""
        """Where to resume from; empty where it takes a list first."""
        self._relisted = False
        self._reason = ""
        self._over: Gap | None = None
        """A gap that seems to have ended."""
        self._stopped = False
        self._greenlet: gevent.Greenlet | None = None
        self._following = gevent.event.Event()
        self.flow_schema_uid = ""
        """The FlowSchema that the API server put the first list under."""
        self.away_since: float | None = None
        """Since when there is no watch; None while there is one."""

    def start(self, deadline: float) -> gevent.Greenlet:
        """List, begin to follow, and return once the server has accepted the watch.

        Raises:
            EnvironmentBlocked: it did not within `deadline` seconds, and why.
        """
        self._list()
        self._greenlet = gevent.spawn(self._follow)
        if not self._following.wait(deadline):
            self.stop()
            raise EnvironmentBlocked(f"watch on {self._target.kind}: not accepted within {deadline:g} s")
        return self._greenlet

    def stop(self) -> None:
        """End the watch."""
        self._stopped = True
        if self._greenlet is not None:
            self._greenlet.kill()
        self._end_gap()
        self._lists.close()

    # Following

    def _follow(self) -> None:
        attempt = 0
        while not self._stopped:
            try:
                if not self._version:
                    self._list()
                    self._relisted = True
                self._stream()
            except (_Cut, EnvironmentBlocked) as end:
                if isinstance(end, _Expired):
                    self._version = ""
                    if self._over is not None:
                        self.away_since, self._over = self._over.at, None
                self._end_gap()
                if self.away_since is None:
                    self.away_since, self._reason, attempt = self._clock(), str(end), 0
                    _log.warning("watch on %s: %s", self._target.kind, end)
                self._sleep(_BACKOFF[min(attempt, len(_BACKOFF) - 1)])
                attempt += 1

    def _accepted(self) -> None:
        """There is a watch again, unless the next thing that it says is that it can't be resumed."""
        self._following.set()
        if self.away_since is None:
            return
        self._over = Gap(
            kind=self._target.kind,
            at=self.away_since,
            seconds=self._clock() - self.away_since,
            relisted=self._relisted,
            reason=self._reason,
        )
        self.away_since = None

    def _end_gap(self) -> None:
        """The watch did come back, if it was away."""
        if self._over is not None:
            self._sink.gap(self._over)
            self._over, self._relisted = None, False

    def _list(self) -> None:
        began = self._clock()
        answer = self._lists.send(
            head(self._access, "GET", self._url({})), "GET", want_flow=not self.flow_schema_uid
        )
        at = self._clock()
        self._count("list", answer.status)
        if answer.status != 200:
            raise EnvironmentBlocked(
                f"list of {self._target.kind}: {answer.status} {answer.reason} {answer.message}".rstrip()
            )
        if answer.flow is not None:
            self.flow_schema_uid = answer.flow.flow_schema_uid
        listed = orjson.loads(answer.body)
        self._version = listed["metadata"]["resourceVersion"]
        self._sink.relisted([obj for obj in listed["items"] if self._is_ours(obj)], began, at)

    def _stream(self) -> None:
        pool = connections(self._access, size=1, deadline=_SILENCE)
        try:
            sock = pool.get_socket()
            try:
                self._read(sock)
            finally:
                pool.release_socket(sock)
        except (OSError, http.client.HTTPException) as error:
            raise _Cut(f"{type(error).__name__}: {error}") from error
        finally:
            pool.close()

    def _read(self, sock: Any) -> None:
        query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": self._version}
        query["timeoutSeconds"] = str(self._seconds)
        sock.sendall(head(self._access, "GET", self._url(query)))
        response = Received("GET")
        following = False
        busy = 0.0
        while not response.message_complete:
            data = sock.recv(_CHUNK)
            at = self._clock()
            response.feed(data)
            if not data:
                break
            if response.headers_complete and not following:
                self._count("watch", response.status_code)
                if response.status_code != 200:
                    self._refused(response)
                following = True
                self._accepted()
            for line in _whole_lines(response.body):
                self._line(line, at)
            busy += self._clock() - at
            if busy > _TURN:
                gevent.sleep(0)
                busy = 0.0
        raise _Cut("the server ended the watch")

    def _refused(self, response: Received) -> None:
        if response.status_code == 410:
            raise _Expired("410 on the start of the watch")
        raise _Cut(f"{response.status_code} on the start of the watch")

    def _line(self, line: bytes, at: float) -> None:
        try:
            event = orjson.loads(line)
        except ValueError as error:
            raise _Cut(f"a line that is no JSON: {error}") from error
        type_, obj = event["type"], event["object"]
        if type_ == "ERROR":
            if obj.get("code") == 410:
                raise _Expired(f"410: {obj.get('message', '')}")
            raise _Cut(f"error {obj.get('code')}: {obj.get('message', '')}")
        self._end_gap()
        self._version = obj["metadata"]["resourceVersion"]
        if type_ != "BOOKMARK" and self._is_ours(obj):
            self._sink.event(type_, obj, at)

    # Small things

    def _is_ours(self, obj: Object) -> bool:
        namespace: str = obj["metadata"].get("namespace", "")
        return namespace.startswith(self._target.prefix)

    def _url(self, query: dict[str, str]) -> str:
        if self._target.selector:
            query = {**query, "labelSelector": self._target.selector}
        return self._target.path + (f"?{urllib.parse.urlencode(query)}" if query else "")

    def _count(self, verb: str, status: int) -> None:
        self._requests[verb, str(status)] += 1


def _whole_lines(body: bytearray) -> list[bytes]:
    """Take the lines that have come whole; the rest stays."""
    end = body.rfind(b"\n") + 1
    if not end:
        return []
    lines = bytes(body[:end]).split(b"\n")
    del body[:end]
    return [line for line in lines if line]
