"""Several generator processes' reports as one."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence

from harness.errors import HarnessError

from .histogram import LatencyHistogram
from .ledger import INCOMPLETE, SLOWEST, add, check_closed, in_turn
from .model import Cause, Flow, Lateness, Requests, Stage, StageSamples, Timeline, Violation, WorkerReport


def merge(reports: Sequence[WorkerReport]) -> WorkerReport:
    """One report of what all of them measured.

    Args:
        reports: one of each worker, at least one.

    Raises:
        HarnessError: without reports, or if one's ledger is not closed or its histograms can't be read.
    """
    if not reports:
        raise HarnessError("no generator process left a report")
    for report in reports:
        check_closed(report.intended, report.causes, report.causes_by_kind, report.causes_by_namespace)
    started, last = (min(r.started_at for r in reports), max(r.last_arrival_at for r in reports))
    flow, faults = _flow(reports)
    return WorkerReport(
        workers=sum(r.workers for r in reports),
        intended=sum(r.intended for r in reports),
        causes=add(r.causes for r in reports),
        causes_by_kind=_add_by_name([r.causes_by_kind for r in reports]),
        causes_by_namespace=_add_by_name([r.causes_by_namespace for r in reports]),
        samples=_samples(reports),
        lateness=_lateness([r.lateness for r in reports]),
        requests=_requests(reports),
        retry_after=_sum(r.retry_after for r in reports),
        violations=_violations(reports),
        gaps=sorted((gap for r in reports for gap in r.gaps), key=lambda gap: gap.at),
        timelines=_timelines(reports),
        claims_seen=sum(r.claims_seen for r in reports),
        raced_evictions=sum(r.raced_evictions for r in reports),
        seconds=last - started,
        cpu_seconds=sum(r.cpu_seconds for r in reports),
        started_at=started,
        last_arrival_at=last,
        drained_at=max(r.drained_at for r in reports),
        flow=flow,
        faults=faults,
        stopped=any(r.stopped for r in reports),
    )


def _samples(reports: Iterable[WorkerReport]) -> list[StageSamples]:
    parts: dict[tuple[Stage, str, str], list[StageSamples]] = collections.defaultdict(list)
    for report in reports:
        for samples in report.samples:
            parts[samples.stage, samples.kind, samples.window].append(samples)
    order = list(Stage)
    keys = sorted(parts, key=lambda key: (order.index(key[0]), key[1:]))
    return [LatencyHistogram.of(parts[key]).samples(*key) for key in keys]


def _lateness(parts: Iterable[Lateness]) -> Lateness:
    total = LatencyHistogram()
    for part in parts:
        total.merge(LatencyHistogram.decode(part.histogram))
    return Lateness(histogram=total.encode(), count=total.count)


def _requests(reports: Iterable[WorkerReport]) -> list[Requests]:
    verbs: dict[str, list[dict[str, int]]] = collections.defaultdict(list)
    for report in reports:
        for requests in report.requests:
            verbs[requests.verb].append(requests.by_code)
    return [Requests(verb=verb, by_code=_sum(codes)) for verb, codes in verbs.items()]


def _violations(reports: Iterable[WorkerReport]) -> list[Violation]:
    """Two workers that watch the same namespace see the same thing: it is told once."""
    found: dict[tuple[str, str, str], Violation] = {}
    for report in reports:
        for violation in report.violations:
            key = (violation.invariant, violation.object, violation.message)
            if key not in found or violation.at < found[key].at:
                found[key] = violation
    return sorted(found.values(), key=lambda violation: violation.at)


def _timelines(reports: Sequence[WorkerReport]) -> list[Timeline]:
    lives = [life for report in reports for life in report.timelines]
    completed = [life for life in lives if life.cause is Cause.COMPLETED]
    completed.sort(key=lambda life: -life.stages.get(Stage.RUNNING, life.stages.get(Stage.BOUND, 0.0)))
    by_cause: dict[Cause, list[Timeline]] = collections.defaultdict(list)
    for life in sorted(lives, key=lambda life: life.due):
        if life.cause is not Cause.COMPLETED:
            by_cause[life.cause].append(life)
    return completed[:SLOWEST] + in_turn(by_cause.values(), INCOMPLETE)


def _flow(reports: Sequence[WorkerReport]) -> tuple[Flow | None, list[str]]:
    """The flow that all are in, and everybody's faults; to be in different flows is one."""
    faults = list(dict.fromkeys(fault for report in reports for fault in report.faults))
    flows = {(f.flow_schema_uid, f.priority_level_uid): f for r in reports if (f := r.flow) is not None}
    if len(flows) > 1:
        faults.append(f"the workers' requests went to {len(flows)} different flows: {sorted(flows)}")
    return next(iter(flows.values()), None), faults


def _add_by_name(parts: Sequence[dict[str, dict[Cause, int]]]) -> dict[str, dict[Cause, int]]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: add(part[name] for part in parts if name in part) for name in names}


def _sum(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: collections.Counter[str] = collections.Counter()
    for part in parts:
        total.update(part)
    return dict(total)
