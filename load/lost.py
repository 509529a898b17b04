"""What is said of a generator worker that died: its pods are known from the schedule, their ends are not."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Iterator

from load import arrivals
from load.arrivals import Arrival
from load.histogram import LatencyHistogram
from load.ledger import INCOMPLETE
from load.model import Cause, Lateness, Orders, Timeline, WorkerReport


def lost_report(
    orders: Orders, *, index: int, count: int, started_at: float, until: float, reason: str
) -> WorkerReport:
    """Every pod of a worker that left no report, as lost with it.

    Its arrivals are a function of the orders, so the ledger still closes on all that came due.

    Args:
        orders: of the run.
        index: of the worker.
        count: of all workers.
        started_at: of the run.
        until: seconds from the start within which arrivals count: the whole schedule, or to an interruption.
        reason: why it is lost.
    """
    due = list(_due(orders, index, count, started_at, until))
    return WorkerReport(
        workers=0,
        intended=len(due),
        causes=_causes(len(due)),
        causes_by_kind=_count(each.kind.name for each in due),
        causes_by_namespace=_count(each.namespace for each in due),
        samples=[],
        lateness=Lateness(histogram=LatencyHistogram().encode(), count=0),
        requests=[],
        violations=[],
        gaps=[],
        timelines=[_life(each, reason) for each in due[:INCOMPLETE]],
        claims_seen=0,
        seconds=0.0,
        cpu_seconds=0.0,
        started_at=started_at,
        last_arrival_at=started_at,
        drained_at=started_at,
    )


def _due(orders: Orders, index: int, count: int, started_at: float, until: float) -> Iterator[Arrival]:
    schedule = arrivals.schedule(orders, started_at=started_at, worker=index, workers=count)
    return itertools.takewhile(lambda arrival: arrival.due <= started_at + until, schedule)


def _causes(pods: int) -> dict[Cause, int]:
    return {Cause.LOST_WITH_WORKER: pods} if pods else {}


def _count(names: Iterable[str]) -> dict[str, dict[Cause, int]]:
    return {name: _causes(pods) for name, pods in collections.Counter(names).items()}


def _life(arrival: Arrival, reason: str) -> Timeline:
    return Timeline(
        pod=f"{arrival.namespace}/{arrival.name}",
        kind=arrival.kind.name,
        due=arrival.due,
        cause=Cause.LOST_WITH_WORKER,
        message=reason,
    )
