from __future__ import annotations

import math

import pytest

from load.assemble import rates, slowest, stage_rows, trial_result
from load.model import Burst, Cause, Flow, Orders, PodKind, Segment, Snapshot, Stage, Timeline, WorkerReport
from load.result import Host, Standing
from tests.support.load_results import samples, server_books, worker_report


def orders(*segments: Segment, bursts: tuple[Burst, ...] = ()) -> Orders:
    kind = PodKind(name="a", weight=1, manifest={}, claims=1, namespaces=["n"])
    return Orders.model_validate(
        {
            "run_id": "r",
            "seed": 1,
            "sender_kubeconfig": "/x",
            "observer_kubeconfig": "/y",
            "expected_flow_schema_uid": "own-schema",
            "exempt_uids": ["exempt-schema", "exempt-level"],
            "observer_flow_schema_uid": "observer-schema",
            "kinds": [kind],
            "segments": list(segments),
            "bursts": list(bursts),
        }
    )


def snapshot(elapsed: float, *, intended: int, bound: int, done: int = 0, dropped: int = 0) -> Snapshot:
    return Snapshot(
        at=1000 + elapsed,
        elapsed=elapsed,
        phase="measured",
        offered_rate=10.0,
        intended=intended,
        accepted=bound,
        bound=bound,
        completed=done,
        in_flight=0,
        causes={Cause.DROPPED_BY_GENERATOR: dropped} if dropped else {},
    )


WARM = Segment(seconds=5, start=10, end=10, measured=False)
MEASURED = Segment(seconds=10, start=10, end=10)


def test_rates_are_of_the_measured_time_and_not_of_the_drain() -> None:
    seen = [
        snapshot(1, intended=10, bound=1),
        snapshot(5, intended=50, bound=10, done=5, dropped=2),
        snapshot(10, intended=100, bound=45, done=30, dropped=2),
        snapshot(15, intended=150, bound=80, done=55, dropped=12),
        snapshot(60, intended=150, bound=138, done=138, dropped=12),  # all is bound in the drain
    ]
    report = worker_report(intended=150, seconds=15.0)
    found = rates(report, [WARM, MEASURED], seen)
    assert (found.offered, found.sent) == (10.0, 9.0)
    assert (found.bound, found.accepted, found.released) == (7.0, 7.0, 5.0)


def test_the_rate_of_a_burst_is_that_until_its_last_pod_is_bound() -> None:
    seen = [
        snapshot(0, intended=100, bound=0),
        snapshot(1, intended=100, bound=40),
        snapshot(4, intended=100, bound=96),
        snapshot(5, intended=100, bound=96),
    ]
    report = worker_report(intended=100, seconds=0.0)
    assert rates(report, [], seen).bound == 24.0


def test_without_snapshots_rates_are_those_of_the_end() -> None:
    report = worker_report(intended=50, causes={Cause.COMPLETED: 40, Cause.DROPPED_BY_GENERATOR: 10})
    found = rates(report, [MEASURED], [])
    assert (found.offered, found.sent, found.released) == (5.0, 4.0, 4.0)


def test_rows_of_a_stage_over_all_kinds_and_of_each() -> None:
    found = stage_rows(
        [
            samples(Stage.BOUND, [0.1] * 98, kind="a"),
            samples(Stage.BOUND, [2.0, 3.0], kind="b"),
            samples(Stage.BOUND, [9.0], kind="a", window="warm-up"),
        ]
    )
    rows = {(row.kind, row.window): row for row in found if row.count}
    assert rows["", "measured"].count == 100
    assert rows["", "measured"].p50
    assert rows["", "measured"].p50.value == pytest.approx(0.1, rel=1e-3)
    assert rows["", "measured"].p99
    assert rows["", "measured"].p99.value == pytest.approx(2.0, rel=1e-3)
    assert rows["b", "measured"].count == 2
    assert rows["", "warm-up"].count == 1


def test_one_kind_has_no_rows_of_its_own() -> None:
    assert [row.kind for row in stage_rows([samples(Stage.BOUND, [0.1])])] == [""]


def test_what_never_came_makes_quantiles_lower_bounds() -> None:
    (row,) = stage_rows([samples(Stage.BOUND, [0.1] * 95, censored=[30.0] * 5)])
    assert (row.count, row.censored) == (100, 5)
    assert row.p90
    assert not row.p90.at_least
    assert row.p90.value == pytest.approx(0.1, rel=1e-3)
    assert row.p99
    assert row.p99.at_least
    assert row.p99.value == pytest.approx(30.0, rel=1e-3)
    assert row.p99_high is None


def test_the_interval_of_a_p99_is_made_of_ranks() -> None:
    thousand = [number / 1000 for number in range(1, 1001)]  # 1 ms to 1 s
    (row,) = stage_rows([samples(Stage.BOUND, thousand)])
    reach = 1.96 * math.sqrt(1000 * 0.99 * 0.01)  # 6.17 ranks about rank 990
    assert row.p99_low == pytest.approx(math.ceil(990 - reach) / 1000, rel=2e-3)
    assert row.p99_high == pytest.approx(math.ceil(990 + reach) / 1000, rel=2e-3)
    (few,) = stage_rows([samples(Stage.BOUND, thousand[:50])])
    assert few.p99_high is None  # 50 samples can't bound a p99 from above


@pytest.mark.parametrize(
    ("flow", "standing"),
    [
        (Flow(flow_schema_uid="own-schema", priority_level_uid="own-level"), Standing.OWN),
        (Flow(flow_schema_uid="exempt-schema", priority_level_uid="exempt-level"), Standing.EXEMPT),
        (Flow(flow_schema_uid="own-schema", priority_level_uid="exempt-level"), Standing.EXEMPT),
        (Flow(flow_schema_uid="global-default", priority_level_uid="global"), Standing.OTHER),
        (None, Standing.UNKNOWN),
    ],
)
def test_where_the_generator_stood(flow: Flow | None, standing: Standing) -> None:
    found = trial_result("main", orders(MEASURED), worker_report(flow=flow), [], None, None)
    assert found.generator.standing is standing


def test_the_generator_is_measured_against_the_machine() -> None:
    host = Host(cores=2, seconds=10.0, cpu=0.5, cpu_peak=0.6, steal=0.0)
    found = trial_result(
        "main", orders(MEASURED), worker_report(cpu_seconds=1.0), [], server_books(), host, faults=["odd"]
    )
    assert found.generator.cpu_share == pytest.approx(0.1)  # of 10 s that two half busy cores had
    assert found.generator.lateness_p99 == pytest.approx(0.001, rel=2e-3)
    assert found.generator.faults == ["odd"]
    assert [line.name for line in found.books if not line.balanced] == []


def test_the_slowest_pods_begin_with_those_that_never_ended() -> None:
    pods = [
        Timeline(
            pod=f"n/{number}", kind="a", due=0, stages={Stage.BOUND: float(number)}, cause=Cause.COMPLETED
        )
        for number in range(30)
    ]
    stuck = Timeline(pod="n/stuck", kind="a", due=0, cause=Cause.NOT_BOUND)
    found = slowest([*pods, stuck])
    assert [pod.pod for pod in found[:3]] == ["n/stuck", "n/29", "n/28"]
    assert len(found) == 20


def test_a_report_survives_json() -> None:
    report = worker_report()
    assert WorkerReport.model_validate_json(report.model_dump_json()) == report
