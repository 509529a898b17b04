"""When pods are due, which kind each is, and what it is called.

The order of things is a function of the orders alone: the same seed gives the same due times and kinds on one
worker or on ten, which deal the arrivals out among themselves. Due times come from the integral of the rate
and are never summed up from sleeps, so they can't drift.
"""

from __future__ import annotations

import dataclasses
import hashlib
import heapq
import itertools
import math
import random
import re
from collections.abc import Iterator, Sequence

from harness.errors import UsageError

from .model import Arrivals, Orders, PodKind, Segment


@dataclasses.dataclass(frozen=True, slots=True)
class Arrival:
    """A pod that somebody wants at `due` (seconds on the clock of `time.time()`)."""

    due: float
    name: str
    namespace: str
    kind: PodKind


def duration(orders: Orders) -> float:
    """Seconds from the start to the last possible arrival: the shape's length, or a later burst."""
    return max(
        sum(segment.seconds for segment in orders.segments),
        max((burst.at for burst in orders.bursts), default=0.0),
    )


def rate_at(segments: Sequence[Segment], elapsed: float) -> float:
    """Pods/s that the shape asks for `elapsed` seconds after the start, bursts apart; 0 outside it."""
    segment, within = _segment_at(segments, elapsed)
    if segment is None or not 0 <= within < segment.seconds:
        return 0.0
    return segment.start + (segment.end - segment.start) * within / segment.seconds


def windows_at(segments: Sequence[Segment], elapsed: float) -> tuple[str, ...]:
    """Windows that a pod due `elapsed` seconds after the start belongs to.

    First `measured` or `warm-up`, then its phase's name if it has one. What is due after the last segment (a
    late burst) is in that segment's windows; without segments everything is measured.
    """
    segment, _ = _segment_at(segments, elapsed)
    if segment is None:
        return ("measured",)
    window = "measured" if segment.measured else "warm-up"
    return tuple(dict.fromkeys((window, segment.phase or window)))


def share(number: int, worker: int, workers: int) -> int:
    """This worker's part of a number of things that are dealt out in turn, such as requests in flight."""
    return number // workers + (worker < number % workers)


def schedule(orders: Orders, *, started_at: float, worker: int = 0, workers: int = 1) -> Iterator[Arrival]:
    """This worker's arrivals, in order of their due times.

    Args:
        orders: what to generate.
        started_at: the moment that counts as 0, on the clock of `time.time()`; the same for all workers.
        worker: this worker's index, from 0.
        workers: how many there are.

    Raises:
        UsageError: on a worker index that can't be.
    """
    deck = Deck(orders, worker=worker, workers=workers)
    for index, offset in enumerate(_offsets(orders)):
        kind = deck.draw_kind()
        if index % workers == worker:
            yield deck.arrival(kind, started_at + offset)


class Deck:
    """Deals out pods: a kind by weight, a namespace in turn, a name that no other pod of the run has."""

    def __init__(self, orders: Orders, *, worker: int = 0, workers: int = 1) -> None:
        if not 0 <= worker < workers:
            raise UsageError(f"worker {worker} of {workers}: expected an index from 0 to {workers - 1}")
        self._kinds = orders.kinds
        self._weights = list(itertools.accumulate(kind.weight for kind in orders.kinds))
        self._random = random.Random(f"{orders.seed}/kinds")  # noqa: S311 - a seeded draw, no secret
        self._prefix = name_prefix(orders.run_id, worker)
        self._labels = {kind.name: _label(kind.name, 20) for kind in orders.kinds}
        self._counters = {kind.name: itertools.count() for kind in orders.kinds}
        self._namespaces = {
            kind.name: itertools.cycle(worker_namespaces(kind.namespaces, worker, workers))
            for kind in orders.kinds
        }

    def draw_kind(self) -> PodKind:
        """The next kind, by weight. All workers of a run draw the same kinds in the same order."""
        return self._random.choices(self._kinds, cum_weights=self._weights)[0]

    def arrival(self, kind: PodKind, due: float) -> Arrival:
        """A pod of that kind, due then, with the next name and namespace."""
        return Arrival(
            due=due,
            name=f"{self._prefix}{self._labels[kind.name]}-{next(self._counters[kind.name])}",
            namespace=next(self._namespaces[kind.name]),
            kind=kind,
        )


def worker_namespaces(namespaces: Sequence[str], worker: int, workers: int) -> list[str]:
    """This worker's share of a kind's namespaces; with fewer namespaces than workers, they share."""
    return list(namespaces[worker::workers]) or [namespaces[worker % len(namespaces)]]


def name_prefix(run_id: str, worker: int) -> str:
    """What the names of all pods of one worker of a run start with: `<run>-w<worker>-`.

    A name is that, the kind and a counter: some 60 characters at most, so that names which the control plane
    derives from it (a claim's, at most 63 with its random end) are cut as little as can be.
    """
    return f"{_label(run_id, 24)}-w{worker}-"


def _label(text: str, limit: int) -> str:
    """`text` as part of a DNS-1123 name. Two texts never become one: a changed one ends in its hash."""
    clean = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if clean == text and len(clean) <= limit:
        return clean
    digest = hashlib.sha256(text.encode()).hexdigest()[:6]
    return f"{clean[: limit - 7].strip('-') or 'x'}-{digest}"


def _segment_at(segments: Sequence[Segment], elapsed: float) -> tuple[Segment | None, float]:
    """The segment of that moment and the seconds since it began; the last one for everything after it."""
    segment, within = None, elapsed
    for candidate in segments:
        if segment is not None:
            if within < segment.seconds:
                break
            within -= segment.seconds
        segment = candidate
    return segment, within


def _offsets(orders: Orders) -> Iterator[float]:
    """Due times of the whole run in seconds from its start, in order."""
    bursts = sorted(burst.at for burst in orders.bursts for _ in range(burst.pods))
    return heapq.merge(_shape_offsets(orders), bursts)


def _shape_offsets(orders: Orders) -> Iterator[float]:
    targets = _poisson_targets(orders.seed) if orders.arrivals is Arrivals.POISSON else itertools.count(1.0)
    target = next(targets)
    began, done = 0.0, 0.0  # seconds, and pods expected until then
    for segment in orders.segments:
        expected = segment.seconds * (segment.start + segment.end) / 2
        while target <= done + expected:
            yield began + min(_seconds_until(segment, target - done), segment.seconds)
            target = next(targets)
        began, done = began + segment.seconds, done + expected


def _poisson_targets(seed: int) -> Iterator[float]:
    """A Poisson process of rate 1; time-warped by the integral of the rate it is the one that we want."""
    rng = random.Random(f"{seed}/arrivals")  # noqa: S311 - a seeded draw, no secret
    return itertools.accumulate(rng.expovariate(1.0) for _ in itertools.count())


def _seconds_until(segment: Segment, pods: float) -> float:
    """Seconds into the segment until the integral of its rate comes to `pods`.

    Solves start*t + (end-start)*t*t/(2*seconds) = pods in the form that cancels nothing when start == end.
    """
    slope = (segment.end - segment.start) / segment.seconds
    return 2 * pods / (segment.start + math.sqrt(max(0.0, segment.start**2 + 2 * slope * pods)))
