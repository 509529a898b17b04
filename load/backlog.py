"""What waits in the servers' own queues, looked at again and again: their metrics keep no maximum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import urllib3

from clusters import metrics
from clusters.interface import Cluster
from clusters.metrics import CONTROLLER_MANAGER
from harness.errors import EnvironmentBlocked
from harness.kube import ApiError, KubeClient
from harness.regularly import regularly

_LEVELS = "/debug/api_priority_and_fairness/dump_priority_levels"
"""Some hundred bytes, where the gauge `apiserver_flowcontrol_current_inqueue_requests` comes with megabytes:
https://kubernetes.io/docs/concepts/cluster-administration/flow-control/#dump-priority-levels"""
_DEPTH = "workqueue_depth"
_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Backlog:
    """The most that was seen waiting, and so at least what there was; nothing where nobody could look."""

    inqueue: Mapping[str, int]
    """Requests, by priority level of the API server."""
    depth: Mapping[str, int]
    """Keys, by workqueue of the controller manager."""


NOTHING_SEEN = Backlog({}, {})


class BacklogWatch:
    """Looks once a second, in a thread, from `with` to its end.

    Args:
        cluster: whose servers.
        admin: a client that priority and fairness doesn't hold up.
    """

    def __init__(self, cluster: Cluster, admin: KubeClient, *, interval: float = _LOOK_SECONDS) -> None:
        self._cluster = cluster
        self._admin = admin
        self._interval = interval
        self._inqueue: dict[str, int] = {}
        self._depth: dict[str, int] = {}
        self._looks = [(self._look_at_levels, self._inqueue), (self._look_at_queues, self._depth)]
        self._going_on = ExitStack()

    @property
    def most(self) -> Backlog:
        """What was seen until now."""
        return Backlog(dict(self._inqueue), dict(self._depth))

    def __enter__(self) -> Self:
        self._going_on.enter_context(regularly("backlog", self._interval, self._look))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._going_on.close()

    def _look(self) -> bool:
        self._looks = [(look, most) for look, most in self._looks if _keep_most(look, most)]
        return bool(self._looks)

    def _look_at_levels(self) -> Mapping[str, int]:
        return waiting(self._admin.request("GET", _LEVELS, accept="*/*"))

    def _look_at_queues(self) -> Mapping[str, int]:
        samples = metrics.read(self._cluster, self._admin, CONTROLLER_MANAGER, prefixes=[_DEPTH])
        return {sample.labels.get("name", ""): round(sample.value) for sample in samples}


def waiting(dump: str) -> Mapping[str, int]:
    """Waiting requests by priority level, from the dump; without a level that has no number."""
    head, *rows = ([cell.strip() for cell in line.split(",")] for line in dump.splitlines() if line.strip())
    name, count = head.index("PriorityLevelName"), head.index("WaitingRequests")
    return {row[name]: int(row[count]) for row in rows if row[count].isdigit()}


def _keep_most(look: Callable[[], Mapping[str, int]], most: dict[str, int]) -> bool:
    """Look, and say whether it makes sense to look again."""
    try:
        found = look()
    except (EnvironmentBlocked, ValueError):  # not served, or not in words that are known here
        return False
    except ApiError as error:
        return error.status not in (401, 403, 404)
    except (OSError, urllib3.exceptions.HTTPError):
        return True  # a server that is being restarted
    for name, count in found.items():
        most[name] = max(most.get(name, 0), count)
    return True
