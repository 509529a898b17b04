"""Results of load runs, made by hand."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from load.books import ApfFlow, LimiterWait, ServerBooks, balance
from load.fingerprint import Fingerprint
from load.histogram import LatencyHistogram
from load.model import Cause, Conduct, Flow, Lateness, Requests, Stage, StageSamples, Timeline, WorkerReport
from load.result import (
    Check,
    Figure,
    Generator,
    Host,
    LoadResult,
    Rates,
    StageRow,
    Standing,
    TrialResult,
    Verdict,
)

START = datetime.datetime(2026, 3, 1, 2, 0, tzinfo=datetime.UTC)
FACTS: dict[str, str | int | float | bool] = {
    "kubernetes.kube-apiserver": "v1.37.2",
    "machine.cpus": 2,
    "load.rate": 20.0,
}


def histogram(seconds: Sequence[float], censored: Sequence[float] = ()) -> LatencyHistogram:
    """A histogram of these latencies."""
    made = LatencyHistogram()
    for each in seconds:
        made.record(each)
    for each in censored:
        made.censor(each)
    return made


def samples(
    stage: Stage,
    seconds: Sequence[float],
    *,
    kind: str = "a",
    window: str = "measured",
    censored: Sequence[float] = (),
) -> StageSamples:
    """What a generator reports of one stage."""
    return histogram(seconds, censored).samples(stage, kind, window)


def worker_report(**changes: Any) -> WorkerReport:
    """Ten pods in ten seconds, all of which completed."""
    values: dict[str, Any] = {
        "intended": 10,
        "causes": {Cause.COMPLETED: 10},
        "causes_by_kind": {"a": {Cause.COMPLETED: 10}},
        "causes_by_namespace": {"n": {Cause.COMPLETED: 10}},
        "samples": [samples(Stage.BOUND, [0.1] * 10)],
        "lateness": Lateness(histogram=histogram([0.001] * 10).encode(), count=10),
        "requests": [
            Requests(verb="create", by_code={"201": 10}),
            Requests(verb="delete", by_code={"200": 10}),
        ],
        "violations": [],
        "gaps": [],
        "timelines": [],
        "claims_seen": 10,
        "seconds": 10.0,
        "cpu_seconds": 0.5,
        "started_at": 1000.0,
        "last_arrival_at": 1010.0,
        "drained_at": 1012.0,
        "flow": Flow(flow_schema_uid="own-schema", priority_level_uid="own-level"),
    }
    return WorkerReport.model_validate({**values, **changes})


def server_books(**changes: Any) -> ServerBooks:
    """Servers that rejected nothing."""
    values: dict[str, Any] = {
        "apf_flows": [ApfFlow(flow_schema="sender", priority_level="load", dispatched=20)],
        "sender_flow_schema": "sender",
        "limiter": [LimiterWait(component="kube-scheduler", calls=100, seconds=5.0)],
        "claim_creates": {"kube-controller-manager": {"success": 10}},
    }
    return ServerBooks.model_validate({**values, **changes})


def row(stage: Stage, p99: float, *, count: int = 100, censored: int = 0, at_least: bool = False) -> StageRow:
    """A stage of which only the p99 matters."""
    figures = {
        key: Figure(value=p99 * factor, unit="s", at_least=at_least)
        for key, factor in (("p50", 0.5), ("p90", 0.8), ("p99", 1.0), ("p999", 1.1), ("max", 1.2))
    }
    values = {"stage": stage, "kind": "", "window": "measured", "count": count, "censored": censored}
    return StageRow.model_validate({**values, "histogram": "", **figures})


def trial(name: str = "main", **changes: Any) -> TrialResult:
    """A trial with which nothing is wrong."""
    report = worker_report()
    server = server_books()
    values: dict[str, Any] = {
        "name": name,
        "seconds": 10.0,
        "intended": report.intended,
        "causes": report.causes,
        "causes_by_kind": report.causes_by_kind,
        "causes_by_namespace": report.causes_by_namespace,
        "rates": Rates(offered=20.0, sent=20.0, accepted=20.0, bound=20.0, released=19.5),
        "stages": [
            row(stage, 0.1) for stage in (Stage.ACCEPTED, Stage.ALLOCATED, Stage.BOUND, Stage.RELEASED)
        ],
        "generator": Generator(
            workers=1,
            cpu_seconds=0.5,
            cpu_share=0.05,
            lateness_p50=0.0005,
            lateness_p99=0.004,
            lateness_max=0.008,
            standing=Standing.OWN,
            flow=report.flow,
        ),
        "requests": report.requests,
        "host": Host(cores=2, seconds=10.0, cpu=0.5, cpu_peak=0.7, steal=0.01),
        "server": server,
        "books": balance(report, server, Conduct.COUNT),
        "slowest": [
            Timeline(
                pod="n/p-1",
                kind="a",
                due=1.0,
                stages={Stage.BOUND: 0.1},
                node="sim-1",
                devices=["d/p/gpu-0"],
                cause=Cause.COMPLETED,
            )
        ],
    }
    return TrialResult.model_validate({**values, **changes})


def load_result(
    run_id: str = "r1",
    *,
    minutes: float = 0,
    facts: Mapping[str, Any] | None = None,
    verdict: Verdict = Verdict.PASS,
    **changes: Any,
) -> LoadResult:
    """A run, so many minutes after the first."""
    values: dict[str, Any] = {
        "run_id": run_id,
        "profile": "template-churn",
        "size": "S",
        "limits": "open",
        "seed": 1,
        "command": ["dra-harness", "load", "template-churn"],
        "started_at": START + datetime.timedelta(minutes=minutes),
        "seconds": 75.0,
        "verdict": verdict,
        "reasons": [] if verdict is Verdict.PASS else ["something is wrong"],
        "checks": [
            Check(name="send-lateness", about="validity", ok=True, observed="4.0 ms", limit="< 20 ms"),
            Check(name="bound.p99", about="gate", ok=True, observed="0.1 s", limit="at most 1"),
        ],
        "fingerprint": Fingerprint(facts={**FACTS, **(facts or {})}, notes={"seed": "1"}),
        "trials": [trial()],
    }
    return LoadResult.model_validate({**values, **changes})
