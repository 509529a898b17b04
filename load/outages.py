"""When the API server, or the storage behind it, did not answer while a trial went on."""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import urllib3

from harness.kube import ApiError, KubeClient
from harness.regularly import regularly

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
        self._over: list[Outage] = []
        self._now: Outage | None = None
        self._going_on = ExitStack()

    @property
    def outages(self) -> Sequence[Outage]:
        """Those that are over, and the one that goes on."""
        return (*self._over, self._now) if self._now else tuple(self._over)

    def __enter__(self) -> Self:
        self._going_on.enter_context(regularly("outages", self._interval, self._look))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._going_on.close()

    def _look(self) -> bool:
        asked = time.time()
        wrong = self._ask()
        if wrong and self._now is None:
            self._now = Outage(asked, time.time(), wrong)
        elif self._now is not None:
            self._now = replace(self._now, until=time.time())
            if not wrong:
                self._over.append(self._now)
                self._now = None
        return wrong is not None

    def _ask(self) -> str | None:
        """What is wrong, nothing, or None where nobody may ask."""
        try:
            self._admin.request("GET", _STORAGE, accept="*/*")
        except ApiError as error:
            return (
                None
                if error.status in _FORBIDDEN
                else f"{error.status} {error.message}".strip().splitlines()[0]
            )
        except (OSError, urllib3.exceptions.HTTPError) as error:
            return type(error).__name__
        return ""


def _clock(at: float) -> str:
    return f"{datetime.datetime.fromtimestamp(at, datetime.UTC):%H:%M:%S}"
