"""What a trial's report says, read for scenarios."""

from __future__ import annotations

from typing import TYPE_CHECKING

from load.histogram import LatencyHistogram, Quantile
from load.model import REFUSED, UNFINISHED, Cause, Stage, WorkerReport

if TYPE_CHECKING:
    from load.result import Figure

MEASURED = "measured"


def quantile(
    report: WorkerReport, stage: Stage, share: float, *, kind: str = "", window: str = MEASURED
) -> Quantile | None:
    """A quantile of a stage's latency, over one kind of pod or all; None without any sample."""
    samples = [
        each
        for each in report.samples
        if each.stage is stage and each.window == window and (not kind or each.kind == kind)
    ]
    return LatencyHistogram.of(samples).quantile(share) if samples else None


def count(report: WorkerReport, stage: Stage, *, kind: str = "", window: str = MEASURED) -> int:
    """How many samples of a stage came."""
    return sum(
        each.count - each.censored
        for each in report.samples
        if each.stage is stage and each.window == window and (not kind or each.kind == kind)
    )


def accepted(report: WorkerReport) -> int:
    """Pods that the server accepted, whatever became of them."""
    never = (Cause.DROPPED_BY_GENERATOR, Cause.LOST_WITH_WORKER, *REFUSED)
    return report.intended - sum(report.causes.get(cause, 0) for cause in never)


def unfinished(report: WorkerReport) -> int:
    """Pods that the server accepted and that did not end within the drain limit."""
    return sum(number for cause, number in report.causes.items() if cause in UNFINISHED)


def bound_rate(report: WorkerReport) -> float:
    """Pods per second that got a node, over the time in which pods were being bound.

    With a backlog that is from the start to the end of the drain, else to the last arrival.
    """
    bound = count(report, Stage.BOUND) + count(report, Stage.BOUND, window="warm-up")
    until = report.drained_at if unfinished(report) or _late(report) else report.last_arrival_at
    seconds = until - report.started_at
    return bound / seconds if seconds > 0 else 0.0


def _late(report: WorkerReport) -> bool:
    """Whether the backlog at the end of the arrivals was worth seconds."""
    p99 = quantile(report, Stage.BOUND, 0.99)
    return p99 is not None and p99.seconds > 2.0


def figure(value: float, unit: str = "", *, at_least: bool = False) -> Figure:
    """A number for the result."""
    from load.result import Figure

    return Figure(value=round(value, 6), unit=unit, at_least=at_least)


def seconds(value: Quantile) -> Figure:
    """A quantile as a number for the result."""
    return figure(value.seconds, "s", at_least=value.at_least)
