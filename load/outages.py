"""When the API server, or the storage behind it, did not answer while a trial went on."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import urllib3

from harness.kube import ApiError, KubeClient

_STORAGE = "/readyz/etcd"
"""Asks etcd, and gives up after 2 s: https://kubernetes.io/docs/reference/using-api/health-checks/"""
_LOOK_SECONDS = 1.0
_FORBIDDEN = (401, 403, 404)


@dataclass(frozen=True)
class Outage:
    """A time without answers, in seconds of time.time(), and what was said at its beginning."""

    since: float
    until: float
    reason: str

    def __str__(self) -> str:
        when = f"{_clock(self.since)} to {_clock(self.until)}"
        return f"{when}: the API server's storage did not answer ({self.reason})"


class OutageWatch:
    """Asks once a second, in a thread, from `with` to its end.

    Args:
        admin: a client that priority and fairness doesn't hold up.
    """

    def __init__(self, admin: KubeClient, *, interval: float = _LOOK_SECONDS) -> None:
        self._admin = admin
        self._interval = interval
        self._outages: list[Outage] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outages", daemon=True)

    @property
    def outages(self) -> Sequence[Outage]:
        """Those that are over, and the one that was going on at the end."""
        return tuple(self._outages)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        since, reason = 0.0, ""
        while not self._ended.wait(self._interval):
            asked = time.time()
            found = self._ask()
            if found is None:
                return
            if found and not reason:
                since, reason = asked, found
            elif reason and not found:
                self._outages.append(Outage(since, time.time(), reason))
                reason = ""
        if reason:
            self._outages.append(Outage(since, time.time(), reason))

    def _ask(self) -> str | None:
        """What is wrong, nothing, or None where nobody may ask."""
        try:
            self._admin.request("GET", _STORAGE, accept="*/*")
        except ApiError as error:
            return None if error.status in _FORBIDDEN else str(error.message).strip().splitlines()[0]
        except (OSError, urllib3.exceptions.HTTPError) as error:
            return type(error).__name__
        return ""


def _clock(at: float) -> str:
    return f"{datetime.datetime.fromtimestamp(at, datetime.UTC):%H:%M:%S}"
