from __future__ import annotations

import pytest

from load.books import ApfFlow, ApiLatency, Component, LimiterWait
from load.measures import measure
from load.model import Cause, Stage, Violation
from load.result import Figure
from tests.support.load_results import row, server_books, trial

SERVER = server_books(
    apf_flows=[
        ApfFlow(flow_schema="x", priority_level="y", dispatched=1, rejected={"queue-full": 3, "time-out": 1})
    ],
    limiter=[LimiterWait(component="kube-scheduler", calls=4, seconds=2.0)],
    api=[
        ApiLatency(verb="POST", resource="pods", scope="resource", count=9, p50=0.1, p99=0.4),
        ApiLatency(verb="GET", resource="pods", scope="resource", count=9, p50=0.1, p99=0.2),
        ApiLatency(verb="LIST", resource="pods", scope="cluster", count=2, p50=0.1, p99=None),
    ],
    components=[Component(name="k", cpu_seconds=1, rss_start=1, rss_end=1, rss_peak=1, restarts=2)],
)
MAIN = trial(
    intended=20,
    causes={Cause.COMPLETED: 15, Cause.QUOTA_DENIED: 2, Cause.NO_CLAIM: 1, Cause.NOT_RELEASED: 2},
    causes_by_kind={"big": {}, "small": {}},
    stages=[
        row(Stage.BOUND, 0.5),
        row(Stage.BOUND, 0.7).model_copy(update={"kind": "big"}),
        row(Stage.BOUND, 0.9).model_copy(update={"window": "storm"}),
    ],
    violations=[
        Violation(invariant="over-quota", at=1, object="n", message=""),
        Violation(invariant="duplicate-claim", at=1, object="n", message=""),
        Violation(invariant="duplicate-claim", at=2, object="n", message=""),
        Violation(invariant="duplicate-claim", at=2, object="*", message="17 more", count=17),
    ],
    server=SERVER,
    figures={"knee": Figure(value=5)},
)
OTHER = trial("quiet", stages=[row(Stage.BOUND, 0.2)])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bound.p99", 0.5),
        ("bound.p50", 0.25),
        ("kind.big.bound.p99", 0.7),
        ("window.storm.bound.p99", 0.9),
        ("quiet.bound.p99", 0.2),
        ("rate.bound", 20.0),
        ("unfinished", 3),
        ("causes.quota-denied", 2),
        ("share.quota-denied", 10.0),
        ("causes.evicted", 0),
        ("violations", 20),
        ("violations.duplicate-claim", 19),
        ("restarts", 2),
        ("rejected", 4),
        ("limiter.kube-scheduler", 0.5),
        ("api.single.p99", 0.4),
        ("api.list.p99", 60.0),
        ("knee", 5),
        ("recovery", 31.0),
    ],
)
def test_a_measure_by_its_name(name: str, value: float) -> None:
    found = measure([MAIN, OTHER], {"recovery": Figure(value=31.0, unit="s")}, name)
    assert found
    assert found.value == pytest.approx(value)


@pytest.mark.parametrize(
    "name",
    [
        "recovery",
        "bound.p42",
        "bound",
        "kind.none.bound.p99",
        "kind.big.flown.p99",
        "causes.flu",
        "rate.x",
        "limiter.kubelet",
        "api.x",
        "unfinished.x",
        "other.bound.p99",
    ],
)
def test_what_there_is_not(name: str) -> None:
    assert measure([MAIN, OTHER], {}, name) is None


def test_beyond_the_last_bucket_is_at_least_that() -> None:
    found = measure([MAIN], {}, "api.list.p99")
    assert found
    assert found.at_least


def test_the_only_kind_is_all_of_them() -> None:
    found = measure([trial()], {}, "kind.a.bound.p99")
    assert found
    assert found.value == 0.1
    assert measure([trial()], {}, "kind.b.bound.p99") is None


def test_without_the_servers_their_measures_are_unknown() -> None:
    assert measure([trial(server=None)], {}, "restarts") is None


def component(name: str, restarts: int) -> Component:
    return Component(name=name, cpu_seconds=1, rss_start=1, rss_end=1, rss_peak=1, restarts=restarts)


@pytest.mark.parametrize(
    ("seen", "restarted", "planned", "left"),
    [
        ({"kcm": 1, "etcd": 0}, ["kcm"], {"kcm": 1}, 0),
        ({"kcm": 2}, ["kcm"], {"kcm": 1}, 1),
        ({"kcm": 1, "etcd": 1}, ["kcm"], {"kcm": 1}, 1),
        ({"kcm": 1}, ["kcm", "scheduler"], {"kcm": 2}, 1),
        ({}, ["kcm", "scheduler"], {"kcm": 2, "scheduler": 1}, 0),
        ({"etcd": 2}, [], {}, 2),
    ],
)
def test_restarts_are_those_that_nobody_planned(
    seen: dict[str, int], restarted: list[str], planned: dict[str, int], left: int
) -> None:
    """Where a component's process isn't sampled, all that is known is that it began again."""
    books = server_books(
        components=[component(name, count) for name, count in seen.items()],
        restarted=restarted,
        planned_restarts=planned,
    )
    assert measure([trial(server=books)], {}, "restarts") == Figure(value=left)


@pytest.mark.parametrize("name", ["rejected", "api.single.p99"])
def test_what_one_of_several_api_servers_counted_is_unknown(name: str) -> None:
    assert measure([trial(server=server_books(unread=["kube-apiserver"]))], {}, name) is None
