"""Makes the result of one trial from what the generator, the servers and the machine reported."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from load.books import ServerBooks, balance
from load.histogram import LatencyHistogram, Quantile
from load.model import Cause, Orders, Segment, Snapshot, Stage, StageSamples, Timeline, WorkerReport
from load.result import SLOWEST, Figure, Generator, Host, Rates, StageRow, Standing, TrialResult

_SHORTEST = 2.0
"""Arrivals over less time than this are a burst: their rate is that of what became of them."""
_Z95 = 1.96


def trial_result(
    name: str,
    orders: Orders,
    report: WorkerReport,
    snapshots: Sequence[Snapshot],
    server: ServerBooks | None,
    host: Host | None,
    *,
    settings: Mapping[str, str] | None = None,
    figures: Mapping[str, Figure] | None = None,
    notes: Sequence[str] = (),
    faults: Sequence[str] = (),
    elsewhere: bool = False,
) -> TrialResult:
    """One trial as the result has it.

    Args:
        name: of the trial.
        orders: what the generator was told.
        report: the merged report of all its processes.
        snapshots: of the whole trial, in order.
        server: None where the servers could not be read.
        host: None where the machine could not be.
        settings: what distinguishes the trial.
        figures: what the scenario measured.
        notes: what happened, and when.
        faults: reasons of the scenario why the numbers can't be trusted.
        elsewhere: whether the generator's processes were on other machines than the one measured.
    """
    return TrialResult(
        name=name,
        settings=dict(settings or {}),
        seconds=report.seconds,
        intended=report.intended,
        causes=report.causes,
        causes_by_kind=report.causes_by_kind,
        causes_by_namespace=report.causes_by_namespace,
        rates=rates(report, orders.segments, snapshots),
        stages=stage_rows(report.samples),
        generator=_generator(report, orders, None if elsewhere else host, faults),
        requests=report.requests,
        retry_after=report.retry_after,
        host=host,
        server=server,
        books=balance(report, server, orders.conduct),
        violations=report.violations,
        gaps=report.gaps,
        slowest=slowest(report.timelines),
        figures=dict(figures or {}),
        notes=list(notes),
    )


def _generator(report: WorkerReport, orders: Orders, host: Host | None, faults: Sequence[str]) -> Generator:
    lateness = LatencyHistogram.decode(report.lateness.histogram)
    p50, p99, longest = (_seconds(lateness.quantile(q)) for q in (0.5, 0.99, 1.0))
    busy = host.cpu * host.cores * host.seconds if host else 0.0
    return Generator(
        workers=report.workers,
        cpu_seconds=report.cpu_seconds,
        cpu_share=min(1.0, report.cpu_seconds / busy) if busy else None,
        lateness_p50=p50,
        lateness_p99=p99,
        lateness_max=longest,
        standing=_standing(report, orders),
        flow=report.flow,
        faults=[*report.faults, *faults],
    )


def _standing(report: WorkerReport, orders: Orders) -> Standing:
    if report.flow is None:
        return Standing.UNKNOWN
    if {report.flow.flow_schema_uid, report.flow.priority_level_uid} & set(orders.exempt_uids):
        return Standing.EXEMPT
    own = report.flow.flow_schema_uid == orders.expected_flow_schema_uid
    return Standing.OWN if own else Standing.OTHER


def _seconds(quantile: Quantile | None) -> float:
    return quantile.seconds if quantile else 0.0


def rates(report: WorkerReport, segments: Sequence[Segment], snapshots: Sequence[Snapshot]) -> Rates:
    """What came of the arrivals while they were measured, per second.

    Counted between two snapshots and not over the drain: what is done after the load has ended would make
    every overloaded cluster look as if it had kept up.
    """
    warm_up = 0.0
    for segment in segments:
        if segment.measured:
            break
        warm_up += segment.seconds
    first = next((each for each in snapshots if each.elapsed >= warm_up), None) if warm_up else None
    last = _end(report, snapshots, first.elapsed if first else 0.0)
    if last is None:
        return _overall(report)
    start = first.elapsed if first else 0.0

    def rate(count: str) -> float:
        before = _count(first, count) if first else 0
        return (_count(last, count) - before) / (last.elapsed - start)

    return Rates(
        offered=rate("intended"),
        sent=rate("sent"),
        accepted=rate("accepted"),
        bound=rate("bound"),
        released=rate("completed"),
    )


def _end(report: WorkerReport, snapshots: Sequence[Snapshot], start: float) -> Snapshot | None:
    """The last snapshot with arrivals; of a burst, the first in which all that was ever bound is."""
    within = [each for each in snapshots if each.elapsed <= report.seconds + 1]
    if within and within[-1].elapsed - start >= _SHORTEST and report.seconds - start >= _SHORTEST:
        return within[-1]
    most = max((each.bound for each in snapshots), default=0)
    return next((each for each in snapshots if each.bound == most and each.elapsed > start), None)


def _count(snapshot: Snapshot, name: str) -> int:
    if name == "sent":
        return snapshot.intended - snapshot.causes.get(Cause.DROPPED_BY_GENERATOR, 0)
    count: int = getattr(snapshot, name)
    return count


def _overall(report: WorkerReport) -> Rates:
    """Without a snapshot: what is known at the end, over the arrivals' time."""
    seconds = max(report.seconds, 1.0)
    done = report.causes.get(Cause.COMPLETED, 0)
    sent = report.intended - report.causes.get(Cause.DROPPED_BY_GENERATOR, 0)
    return Rates(
        offered=report.intended / seconds,
        sent=sent / seconds,
        accepted=done / seconds,
        bound=done / seconds,
        released=done / seconds,
    )


def stage_rows(samples: Sequence[StageSamples]) -> list[StageRow]:
    """A row for each stage and window over all kinds of pods, and for each kind where there are several."""
    order = list(Stage)
    found = dict.fromkeys((each.stage, each.window) for each in samples)
    keys = sorted(found, key=lambda key: order.index(key[0]))
    kinds = dict.fromkeys(each.kind for each in samples)
    rows = []
    for stage, window in keys:
        parts = [each for each in samples if (each.stage, each.window) == (stage, window)]
        rows.append(_row(LatencyHistogram.of(parts).samples(stage, "", window)))
        if len(kinds) > 1:
            rows += [
                _row(LatencyHistogram.of([p for p in parts if p.kind == k]).samples(stage, k, window))
                for k in kinds
            ]
    return rows


def _row(samples: StageSamples) -> StageRow:
    histogram = LatencyHistogram.of(samples)
    p50, p90, p99, p999, longest = (_figure(histogram.quantile(q)) for q in (0.5, 0.9, 0.99, 0.999, 1.0))
    low, high = _interval(histogram, 0.99)
    return StageRow(
        stage=samples.stage,
        kind=samples.kind,
        window=samples.window,
        count=samples.count,
        censored=samples.censored,
        p50=p50,
        p90=p90,
        p99=p99,
        p999=p999,
        max=longest,
        p99_low=low,
        p99_high=high,
        histogram=samples.histogram,
        censored_histogram=samples.censored_histogram,
    )


def _figure(quantile: Quantile | None) -> Figure | None:
    return Figure(value=quantile.seconds, unit="s", at_least=quantile.at_least) if quantile else None


def _interval(histogram: LatencyHistogram, q: float) -> tuple[float | None, float | None]:
    """95 % interval of a quantile: the samples whose ranks a binomial count leaves possible."""
    count = histogram.count
    if not count:
        return None, None
    reach = _Z95 * math.sqrt(count * q * (1 - q))
    low = histogram.quantile(max(0.0, (count * q - reach) / count))
    rank = count * q + reach
    high = histogram.quantile(rank / count) if rank <= count else None
    return _seconds(low), high.seconds if high and not high.at_least else None


def slowest(timelines: Sequence[Timeline]) -> list[Timeline]:
    """The pods that took longest: those that never came to an end first, then by their last stage."""

    def order(pod: Timeline) -> tuple[bool, float]:
        return pod.cause is not Cause.COMPLETED, max(pod.stages.values(), default=0.0)

    return sorted(timelines, key=order, reverse=True)[:SLOWEST]
