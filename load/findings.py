"""What a tracker hands over at the end."""

from __future__ import annotations

import dataclasses
from typing import Any

from .model import Cause, Gap, Lateness, Requests, StageSamples, Timeline, Violation, WorkerReport


@dataclasses.dataclass(frozen=True)
class Findings:
    """What the tracker knows at the end: its part of a WorkerReport."""

    intended: int
    causes: dict[Cause, int]
    causes_by_kind: dict[str, dict[Cause, int]]
    causes_by_namespace: dict[str, dict[Cause, int]]
    samples: list[StageSamples]
    lateness: Lateness
    requests: list[Requests]
    """Verbs `create` and `delete`."""
    violations: list[Violation]
    gaps: list[Gap]
    timelines: list[Timeline]
    claims_seen: int
    raced_evictions: int

    def report(self, **rest: Any) -> WorkerReport:
        """The whole report; `rest` is what only the generator knows (seconds, cpu_seconds, flow, ...)."""
        return WorkerReport(**{**vars(self), **rest})
