"""The stages' latencies of one worker: histograms for the report, the last seconds for the live view."""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Iterable

from .histogram import LatencyHistogram
from .model import Lateness, Stage, StageSamples
from .pod import PodRecord

RECENT_SECONDS = 10.0
RECENT_LIMIT = 20_000
"""Samples kept for the live view, whether or not anybody looks at it."""

_Recent = collections.deque[tuple[float, float]]
"""When, and how many seconds."""
OnStage = Callable[[Stage, float], None]
"""Told of a stage that a pod came to, and after how many seconds."""


class Latencies:
    """Counts from the due time; GONE and RELEASED from the moment when the delete was sent."""

    def __init__(self, last_stage: Stage, on_stage: OnStage | None = None) -> None:
        self._last_stage = last_stage
        self._on_stage = on_stage
        self._stages: dict[tuple[Stage, str, str], LatencyHistogram] = {}
        self._lateness = LatencyHistogram()
        self._recent_bound: _Recent = collections.deque(maxlen=RECENT_LIMIT)
        self._recent_lateness: _Recent = collections.deque(maxlen=RECENT_LIMIT)

    def sent(self, due: float, at: float) -> None:
        """How late the generator was."""
        late = max(0.0, at - due)
        self._lateness.record(late)
        self._recent_lateness.append((at, late))

    def reached(self, pod: PodRecord, stage: Stage, at: float) -> None:
        """The pod came to a stage now, for the first time."""
        since = _base(pod, stage)
        for window in pod.windows:
            self._of(stage, pod, window).record(at - since)
        if stage is Stage.BOUND:
            self._recent_bound.append((at, at - since))
        if self._on_stage is not None:
            self._on_stage(stage, at - since)

    def censored(self, pod: PodRecord, stage: Stage, at: float) -> None:
        """The pod has not come to a stage, and nobody looks any longer."""
        for window in pod.windows:
            self._of(stage, pod, window).censor(at - _base(pod, stage))

    def give_up(self, pod: PodRecord, at: float) -> None:
        """Censor every stage that the pod should have come to and has not. It was accepted.

        A stage that must have been passed since a later one was seen (its event fell into a gap) is not
        counted: what it took is not known, and was no longer than the later one.
        """
        missing = [stage for stage in self._awaited(pod) if stage not in pod.stages]
        if Stage.BOUND in pod.stages:
            missing = [stage for stage in missing if stage is Stage.RUNNING]
        if pod.delete_sent is not None and pod.taken is None:
            ends = [Stage.GONE, Stage.RELEASED] if pod.expected_claims else [Stage.GONE]
            missing += [stage for stage in ends if stage not in pod.stages]
        for stage in missing:
            self.censored(pod, stage, at)

    def samples(self) -> list[StageSamples]:
        """All histograms, in the order of stages."""
        order = list(Stage)
        keys = sorted(self._stages, key=lambda key: (order.index(key[0]), key[1:]))
        return [self._stages[key].samples(*key) for key in keys]

    def lateness(self) -> Lateness:
        """Of all that was sent."""
        return Lateness(histogram=self._lateness.encode(), count=self._lateness.count)

    def recent_bound(self, at: float, waiting: Iterable[float]) -> list[float]:
        """Sorted seconds to BOUND in the last ten seconds, and so far of those that still wait."""
        return sorted([*_recent(self._recent_bound, at), *waiting])

    def recent_lateness(self, at: float) -> list[float]:
        """Sorted seconds of lateness in the last ten seconds."""
        return sorted(_recent(self._recent_lateness, at))

    def _of(self, stage: Stage, pod: PodRecord, window: str) -> LatencyHistogram:
        key = (stage, pod.kind.name, window)
        histogram = self._stages.get(key)
        if histogram is None:
            histogram = self._stages[key] = LatencyHistogram()
        return histogram

    def _awaited(self, pod: PodRecord) -> list[Stage]:
        stages = [Stage.BOUND, Stage.RUNNING] if self._last_stage is Stage.RUNNING else [Stage.BOUND]
        if pod.expected_claims and not pod.claims_undecided:
            return [Stage.CLAIM_CREATED, Stage.CLAIM_IN_STATUS, Stage.ALLOCATED, *stages]
        return stages


def rank(ordered: list[float], q: float) -> float | None:
    """The quantile of a sorted list; None without values."""
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)] if ordered else None


def _base(pod: PodRecord, stage: Stage) -> float:
    if stage in (Stage.GONE, Stage.RELEASED) and pod.delete_sent is not None:
        return pod.delete_sent
    return pod.due


def _recent(entries: _Recent, at: float) -> list[float]:
    while entries and entries[0][0] < at - RECENT_SECONDS:
        entries.popleft()
    return [seconds for _, seconds in entries]
