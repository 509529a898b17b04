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
_REPLAY = 1.0
"""Seconds after its return in which a watch tells what it missed: an event that comes later is a new one."""
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


@dataclass
class _Absence:
    """A time without a watch, which begins when it said something for the last time, or any time later."""

    heard: float
    noticed: float
    reason: str
    relisted: bool = False
    back: float | None = None
    """When the server accepted the watch that seems to have ended it."""


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
        self._heard = 0.0
        """When the last event or bookmark came, or a list was asked for."""
        self._away: _Absence | None = None
        self._stopped = False
        self._greenlet: gevent.Greenlet | None = None
        self._following = gevent.event.Event()
        self.flow_schema_uid = ""
        """The FlowSchema that the API server put the first list under."""

    @property
    def away_since(self) -> float | None:
        """Since when there is no watch, as far as anybody noticed; None while there is one."""
        return self._away.noticed if self._away and self._away.back is None else None

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
                    if self._away is not None:
                        self._away.relisted = True
                self._stream()
            except (_Cut, EnvironmentBlocked) as end:
                if isinstance(end, _Expired):
                    self._version = ""
                    if self._away is not None:
                        self._away.back = None
                self._end_gap()
                if self._away is None:
                    self._away, attempt = _Absence(self._heard, self._clock(), str(end)), 0
                    _log.warning("watch on %s: %s", self._target.kind, end)
                self._sleep(_BACKOFF[min(attempt, len(_BACKOFF) - 1)])
                attempt += 1

    def _accepted(self, at: float) -> None:
        """There is a watch again, unless the next thing that it says is that it can't be resumed."""
        self._following.set()
        if self._away is not None:
            self._away.back = at

    def _end_gap(self, event_at: float | None = None) -> None:
        """The watch did come back, if it was away; `event_at`: when an event came as the first thing then.

        A peer that is gone without a word is noticed late, and a watch may have nothing to say for a minute.
        So the last word is when the gap began only if something was missed.
        """
        away = self._away
        if away is None or away.back is None:
            return
        missed = event_at is not None and event_at - away.back <= _REPLAY
        since = away.heard if missed else away.noticed
        gap = Gap(
            kind=self._target.kind,
            at=since,
            seconds=away.back - since,
            relisted=away.relisted,
            reason=away.reason,
            late=event_at - since if event_at is not None and missed else 0.0,
        )
        self._sink.gap(gap)
        self._away = None

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
        self._version, self._heard = listed["metadata"]["resourceVersion"], began
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
                self._accepted(at)
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
        self._end_gap(None if type_ == "BOOKMARK" else at)
        self._version, self._heard = obj["metadata"]["resourceVersion"], at
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
