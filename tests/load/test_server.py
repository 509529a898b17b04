"""The servers' side of the books, from metrics as components of 1.36 and 1.37 write them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from clusters.metrics import Sample
from harness.errors import EnvironmentBlocked
from harness.kube import KubeClient
from load import counters, server
from load.backlog import Backlog
from load.books import Component, ServerBooks
from load.server import Reading
from tests.support.paper import paper_cluster

APISERVER = """
process_start_time_seconds 1000
process_cpu_seconds_total {cpu}
process_resident_memory_bytes 5e+08
<apf>_rejected_requests_total{{<flow>,reason="queue-full"}} {full}
<apf>_rejected_requests_total{{<flow>,reason="time-out"}} 2
<apf>_dispatched_requests_total{{<flow>}} {sent}
<apf>_dispatched_requests_total{{flow_schema="idle",priority_level="low"}} 9
<apf>_request_wait_duration_seconds_bucket{{execute="true",<flow>,le="0.1"}} {fast}
<apf>_request_wait_duration_seconds_bucket{{execute="true",<flow>,le="1"}} {sent}
<apf>_request_wait_duration_seconds_bucket{{execute="true",<flow>,le="+Inf"}} {sent}
<apf>_request_wait_duration_seconds_sum{{execute="true",<flow>}} {wait}
<apf>_request_wait_duration_seconds_count{{execute="true",<flow>}} {sent}
<apf>_nominal_limit_seats{{priority_level="low"}} 245
<apf>_nominal_limit_seats{{priority_level="exempt"}} 0
<api>_bucket{{verb="POST",<pods>,scope="resource",le="0.1"}} {sent}
<api>_bucket{{verb="POST",<pods>,scope="resource",le="+Inf"}} {sent}
<api>_count{{verb="POST",<pods>,scope="resource"}} {sent}
<api>_count{{verb="WATCH",<pods>,scope="cluster"}} {sent}
apiserver_request_total{{code="403",dry_run="",scope="resource",verb="POST",<pods>}} {full}
apiserver_request_total{{code="403",dry_run="All",scope="resource",verb="POST",<pods>}} {full}
apiserver_request_total{{code="201",dry_run="",scope="resource",verb="POST",<pods>}} {sent}
apiserver_request_total{{code="403",verb="POST",resource="pods",subresource="binding"}} {sent}
apiserver_request_total{{code="403",verb="GET",<pods>}} {sent}
apiserver_storage_size_bytes{{storage_cluster_id="etcd-0"}} 1.2e+07
"""

MANAGER = """
process_start_time_seconds {started}
process_cpu_seconds_total 3
process_resident_memory_bytes 1e+08
rest_client_rate_limiter_duration_seconds_bucket{{host="h",verb="POST",le="0.005"}} {free}
rest_client_rate_limiter_duration_seconds_bucket{{host="h",verb="POST",le="+Inf"}} {calls}
rest_client_rate_limiter_duration_seconds_sum{{host="h",verb="POST"}} {waited}
rest_client_rate_limiter_duration_seconds_count{{host="h",verb="POST"}} {calls}
rest_client_requests_total{{code="201",host="h",method="POST"}} {calls}
rest_client_requests_total{{code="429",host="h",method="POST"}} {throttled}
rest_client_request_retries_total{{code="429",host="h",verb="POST"}} {throttled}
{creates}
workqueue_adds_total{{name="resource_claim"}} {calls}
workqueue_adds_total{{name="deployment"}} 5
workqueue_retries_total{{name="resource_claim"}} {throttled}
workqueue_depth{{name="resource_claim"}} 4
workqueue_queue_duration_seconds_bucket{{name="resource_claim",le="10"}} 0
workqueue_queue_duration_seconds_bucket{{name="resource_claim",le="+Inf"}} {calls}
workqueue_queue_duration_seconds_sum{{name="resource_claim"}} {queued}
workqueue_queue_duration_seconds_count{{name="resource_claim"}} {calls}
device_taint_eviction_controller_pod_deletions_total {throttled}
"""

SCHEDULER = """
process_start_time_seconds 1000
process_cpu_seconds_total 1
process_resident_memory_bytes 1e+08
{creates}
scheduler_schedule_attempts_total{{profile="default-scheduler",result="scheduled"}} {scheduled}
scheduler_schedule_attempts_total{{profile="default-scheduler",result="unschedulable"}} {failed}
scheduler_pod_scheduling_attempts_sum {attempts}
scheduler_pod_scheduling_attempts_count {scheduled}
scheduler_pending_pods{{queue="backoff"}} {failed}
"""

NEW = (
    'dynamic_resource_allocation_resourceclaim_creates_total{{admin_access="false",owner_api_group="",'
    'owner_api_kind="Pod",status="success"}} {ok}\n'
    'dynamic_resource_allocation_resourceclaim_creates_total{{admin_access="false",owner_api_group="",'
    'owner_api_kind="Pod",status="failure"}} {bad}'
)
OLD_MANAGER = (
    'resourceclaim_controller_creates_total{{admin_access="false",status="success"}} {ok}\n'
    'resourceclaim_controller_creates_total{{admin_access="false",status="failure"}} {bad}'
)
OLD_SCHEDULER = (
    'scheduler_resourceclaim_creates_total{{status="success"}} {ok}\n'
    'scheduler_resourceclaim_creates_total{{status="failure"}} {bad}'
)


SHORT = {
    "<flow>": 'flow_schema="load-x-sender",priority_level="low"',
    "<pods>": 'component="apiserver",group="",version="v1",resource="pods",subresource=""',
    "<apf>": "apiserver_flowcontrol",
    "<api>": "apiserver_request_sli_duration_seconds",
}


def samples(text: str, **values: object) -> list[Sample]:
    for short, long in SHORT.items():
        text = text.replace(short, long)
    families = text_string_to_metric_families(text.format(**values).strip() + "\n")
    return [Sample(s.name, dict(s.labels), s.value) for family in families for s in family.samples]


def reading(
    at: float,
    *,
    manager: str = NEW,
    scheduler: str = NEW,
    started: int = 1000,
    objects: Mapping[str, int] | None = None,
    faults: tuple[str, ...] = (),
) -> Reading:
    """Counters of a cluster that counts `at` in all of them, each in its own measure."""
    n = int(at)
    made = {
        "kube-apiserver": samples(APISERVER, cpu=n, full=n, sent=10 * n, fast=5 * n, wait=2.5 * n),
        "kube-controller-manager": samples(
            MANAGER,
            started=started,
            calls=4 * n,
            free=0,
            waited=8.0 * n,
            throttled=3 * n,
            queued=48.0 * n,
            creates=manager.format(ok=2 * n, bad=n),
        ),
        "kube-scheduler": samples(
            SCHEDULER, creates=scheduler.format(ok=n, bad=0), scheduled=2 * n, failed=n, attempts=3 * n
        ),
    }
    return Reading(at, made, objects or {"pods": 10 + n}, faults)


@pytest.fixture
def book() -> ServerBooks:
    return server.books([reading(1), reading(5)], sender_flow_schema="load-x-sender")


def test_rejections_are_by_flow_and_reason_and_idle_flows_are_left_out(book: ServerBooks) -> None:
    (flow,) = book.apf_flows
    assert (flow.flow_schema, flow.priority_level) == ("load-x-sender", "low")
    assert flow.rejected == {"queue-full": 4}  # of time-outs there were 2 before and after
    assert flow.dispatched == 40
    assert (flow.waited, flow.wait_seconds) == (40, 10.0)
    assert flow.wait_p99 == 1.0
    assert book.sender_flow_schema == "load-x-sender"
    assert {level.name: level.nominal_seats for level in book.apf_levels} == {"low": 245, "exempt": 0}


def test_pod_creates_that_were_forbidden_are_told_from_other_answers(book: ServerBooks) -> None:
    assert book.pod_creates_forbidden == 4
    nothing = Reading(1.0, {}, {})
    assert server.books([nothing, nothing]).pod_creates_forbidden is None


def test_the_limiters_wait_is_per_component(book: ServerBooks) -> None:
    manager, scheduler = book.limiter
    assert (manager.component, manager.calls, manager.seconds) == ("kube-controller-manager", 16, 32.0)
    assert manager.mean == 2.0
    assert manager.p99 is None  # beyond the last bucket
    assert (scheduler.calls, scheduler.seconds, scheduler.mean) == (0, 0.0, 0.0)
    assert book.client_429 == {"kube-controller-manager": 12, "kube-scheduler": 0}
    assert book.client_retries == {"kube-controller-manager": 12, "kube-scheduler": 0}


@pytest.mark.parametrize(
    ("manager", "scheduler", "owners"),
    [(NEW, NEW, {"Pod": 12}), (OLD_MANAGER, OLD_SCHEDULER, {"": 12})],
    ids=["1.37", "1.36"],
)
def test_claims_created_under_the_names_of_both_releases(
    manager: str, scheduler: str, owners: dict[str, int]
) -> None:
    book = server.books([reading(at, manager=manager, scheduler=scheduler) for at in (1, 5)])
    assert book.claim_creates == {
        "kube-controller-manager": {"success": 8, "failure": 4},
        "kube-scheduler": {"success": 4, "failure": 0},
    }
    assert book.claim_owners == owners


def test_the_schedulers_attempts(book: ServerBooks) -> None:
    assert book.attempts == {"scheduled": 8, "unschedulable": 4}
    assert book.attempts_per_pod == 1.5
    assert book.pending == {"backoff": 5}
    assert book.algorithm_p99 is None


def test_the_queue_of_claims(book: ServerBooks) -> None:
    (queue,) = book.workqueues
    assert (queue.name, queue.adds, queue.retries, queue.depth) == ("resource_claim", 16, 12, 4)
    assert queue.queue_mean == 12.0
    assert queue.queue_p99 is None  # more than the 10 s of the last bucket
    assert queue.work_mean is None
    assert book.evictions == 12


def test_the_most_that_waited_is_what_was_seen_meanwhile(book: ServerBooks) -> None:
    assert {each.most_inqueue for each in book.apf_levels} == {None}
    assert {each.deepest for each in book.workqueues} == {None}
    seen = Backlog({"low": 7, "other": 1}, {"resource_claim": 30})
    book = server.books([reading(1), reading(5)], backlog=seen)
    assert {each.name: each.most_inqueue for each in book.apf_levels} == {"low": 7, "exempt": None}
    assert {each.name: each.deepest for each in book.workqueues} == {"resource_claim": 30}


def test_answers_of_the_api_server_without_watches(book: ServerBooks) -> None:
    (answers,) = book.api
    assert (answers.verb, answers.resource, answers.scope) == ("POST", "pods", "resource")
    assert (answers.count, answers.p50, answers.p99) == (40, 0.1, 0.1)


def test_storage_and_objects(book: ServerBooks) -> None:
    assert book.etcd_bytes == 12_000_000
    assert book.objects == {"pods": 4}
    assert (book.seconds, book.faults, book.restarted) == (4.0, [], [])


def test_processes_are_what_their_metrics_say_unless_they_were_sampled(book: ServerBooks) -> None:
    found = {each.name: each for each in book.components}
    assert found["kube-apiserver"].cpu_seconds == 4.0
    assert found["kube-apiserver"].rss_peak == 500_000_000
    sampled = Component(name="etcd", cpu_seconds=1.0, rss_start=1, rss_end=2, rss_peak=3)
    assert server.books([reading(1), reading(5)], components=[sampled]).components == [sampled]


def test_a_component_that_began_again_has_counted_from_zero() -> None:
    first, before = reading(1), reading(5)
    after, last = reading(0, started=2000), reading(3, started=2000)
    book = server.books([first, before, after, last])
    assert book.limiter[0].calls == 4 * (4 + 3)
    assert book.claim_creates["kube-controller-manager"] == {"success": 14, "failure": 7}
    assert book.restarted == ["kube-controller-manager"]
    assert book.faults == []
    assert {each.name: each.restarts for each in book.components}["kube-controller-manager"] == 1
    assert server.books([first, last]).limiter[0].calls == 12


def test_restarts_that_were_planned_are_counted_by_component() -> None:
    manager, scheduler = "kube-controller-manager", "kube-scheduler"
    book = server.books([reading(1), reading(5)], planned=[manager, scheduler, manager])
    assert book.planned_restarts == {manager: 2, scheduler: 1}
    assert server.books([reading(1), reading(5)]).planned_restarts == {}


def test_an_api_server_that_began_again_is_a_fault() -> None:
    last = reading(5)
    changed = [
        Sample(s.name, s.labels, 7.0) if s.name == "process_start_time_seconds" else s
        for s in last.samples["kube-apiserver"]
    ]
    again = Reading(last.at, {**last.samples, "kube-apiserver": changed}, last.objects)
    assert server.books([reading(1), again]).faults == [
        "kube-apiserver began again, and its counters with it"
    ]


def test_what_is_out_of_reach_on_somebody_elses_cluster_is_no_fault() -> None:
    whole = reading(5)
    part = {name: found for name, found in whole.samples.items() if name != "kube-scheduler"}
    readings = [Reading(at, part, {}, unread=["kube-scheduler"]) for at in (1.0, 9.0)]
    book = server.books(readings)
    assert (book.faults, book.unread) == ([], ["kube-scheduler"])
    assert book.attempts == {}


@pytest.mark.parametrize(("provider", "unread"), [("existing", True), ("local", False)])
def test_only_somebody_elses_components_may_be_out_of_reach(
    monkeypatch: pytest.MonkeyPatch, provider: str, unread: bool
) -> None:
    def read(*_: object, **__: object) -> list[Sample]:
        raise EnvironmentBlocked("the cluster doesn't say where")

    monkeypatch.setattr("load.server.metrics.read", read)
    monkeypatch.setattr("load.server.api_servers", lambda _: 1)
    monkeypatch.setattr("load.server.cleanup.counts", lambda _: {})
    found = server.read(paper_cluster(provider=provider, nodes=()), cast("KubeClient", None))
    assert bool(found.unread) is unread
    assert bool(found.faults) is not unread


@pytest.mark.parametrize(
    ("provider", "replicas", "unread"),
    [
        ("existing", 3, ["kube-apiserver"]),
        ("existing", 1, []),
        ("existing", 0, []),
        ("existing", None, []),
        ("local", 3, []),
    ],
)
def test_one_of_several_api_servers_is_not_read(
    monkeypatch: pytest.MonkeyPatch, provider: str, replicas: int | None, unread: list[str]
) -> None:
    monkeypatch.setattr("load.server.metrics.read", lambda *_, **__: [Sample("up")])
    monkeypatch.setattr("load.server.cleanup.counts", lambda _: {})
    monkeypatch.setattr("load.server.api_servers", lambda _: replicas)

    found = server.read(paper_cluster(provider=provider, nodes=()), cast("KubeClient", None))

    assert (found.unread, found.faults) == (unread, [])
    assert ("kube-apiserver" in found.samples) is not bool(unread)
    assert found.api_servers == (3 if unread else 1)


@pytest.mark.parametrize("several", [(True, True), (False, True), (True, False)])
def test_an_api_server_that_is_one_of_several_at_any_time_has_no_books(several: tuple[bool, bool]) -> None:
    """It answered as another one each time: no reason to take it for one that began again."""
    readings = []
    for at, more in zip((1, 5), several, strict=True):
        found = reading(at, started=1000 * at)
        changed = [
            Sample(s.name, s.labels, at) if s.name == "process_start_time_seconds" else s
            for s in found.samples["kube-apiserver"]
        ]
        there = {**found.samples, "kube-apiserver": changed}
        part = {name: each for name, each in there.items() if name != "kube-apiserver"}
        readings.append(
            Reading(at, part, {}, unread=["kube-apiserver"], api_servers=3)
            if more
            else Reading(at, there, {})
        )

    book = server.books(readings)

    assert (book.faults, book.unread, book.api_servers) == ([], ["kube-apiserver"], 3)
    assert (book.apf_flows, book.apf_levels, book.api, book.etcd_bytes) == ([], [], [], None)
    assert book.rejected() is None
    assert book.attempts


def test_metrics_without_anything_in_them_are_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("load.server.metrics.read", lambda *_, **__: [])
    monkeypatch.setattr("load.server.cleanup.counts", lambda _: {})

    found = server.read(paper_cluster(nodes=()), cast("KubeClient", None))

    assert found.samples == {}
    assert "kube-scheduler: its metrics can't be read: there are none" in found.faults


def test_what_was_counted_before_an_empty_reading_is_not_the_trials() -> None:
    empty = Reading(1.0, {"kube-scheduler": []}, {})
    assert server.deltas([empty, reading(5)], "kube-scheduler") == []
    grown = server.deltas([empty, reading(5), reading(6)], "kube-scheduler")
    assert grown == server.deltas([reading(5), reading(6)], "kube-scheduler") != []


def test_what_could_not_be_read_is_said_and_not_counted() -> None:
    whole = reading(5)
    part = {name: found for name, found in whole.samples.items() if name != "kube-scheduler"}
    said = "kube-scheduler: its metrics can't be read: no"
    book = server.books([Reading(1.0, part, {}, [said]), whole, Reading(9.0, part, {}, [said])])
    assert book.faults == [said]
    assert book.attempts == {}
    late = server.books([Reading(1.0, part, {}, [said]), whole, reading(9)])
    assert late.attempts == {"scheduled": 8, "unschedulable": 4}  # from the second reading on
    assert late.objects == {}


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 0.1), (0.51, 1.0), (0.9, 1.0), (0.91, None), (1.0, None)]
)
def test_a_quantile_is_the_upper_edge_of_its_bucket(share: float, expected: float | None) -> None:
    # 10 in all: 5 up to 0.1, 4 more up to 1, one beyond, in two series
    edges = {"0.1": (2, 3), "1": (4, 5), "+Inf": (4, 6)}
    found = [
        Sample("h_bucket", {"le": edge, "series": str(index)}, float(count))
        for edge, counts in edges.items()
        for index, count in enumerate(counts)
    ]
    assert counters.upper_edge(found, "h", share) == expected
    assert counters.upper_edge(found, "h", 0.5, series="none") is None
    assert math.isclose(counters.upper_edge(found, "h", 1.0, series="0") or 0, 1.0)


def test_the_books_survive_their_file(book: ServerBooks) -> None:
    assert ServerBooks.model_validate_json(book.model_dump_json()) == book
