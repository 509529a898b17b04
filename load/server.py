"""What a cluster's components count, read before and after a run: the servers' side of the books.

Counters are read from the components' own metrics, under the names that releases from 1.35 on have.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import urllib3

from clusters import metrics
from clusters.existing.provider import PROVIDER
from clusters.interface import Cluster
from clusters.metrics import APISERVER, CONTROLLER_MANAGER, SCHEDULER, Sample
from harness.errors import EnvironmentBlocked
from harness.kube import ApiError, KubeClient
from load import cleanup, counters
from load.backlog import NOTHING_SEEN, Backlog
from load.books import (
    ApfFlow,
    ApfLevel,
    ApiLatency,
    Component,
    LimiterWait,
    NodeCalls,
    ServerBooks,
    Workqueue,
)
from load.replicas import api_servers

CREATES = (
    "dynamic_resource_allocation_resourceclaim_creates_total",  # from 1.37 on, of both components
    "resourceclaim_controller_creates_total",
    "scheduler_resourceclaim_creates_total",
)
_APF = "apiserver_flowcontrol_"
_LIMITER = "rest_client_rate_limiter_duration_seconds"
_EVICTION = "device_taint_eviction_controller_pod_deletion"
_API = "apiserver_request_sli_duration_seconds"
_ANSWERS = "apiserver_request_total"
_STORAGE = ("apiserver_storage_size_bytes", "apiserver_storage_db_total_size_in_bytes")
_PREPARE = "dra_operations_duration_seconds"
_PROCESS = ("process_start_time_seconds", "process_cpu_seconds_total", "process_resident_memory_bytes")
_REQUESTS = "rest_client_requests_total"
_RETRIES = "rest_client_request_retries_total"
_CLIENT = (_LIMITER, _REQUESTS, _RETRIES, *CREATES)
_QUEUES = ("resource_claim", "device-taint-eviction-controller")

_PREFIXES: Mapping[str, Sequence[str]] = {
    APISERVER: (
        *_PROCESS,
        f"{_APF}rejected_requests_total",
        f"{_APF}dispatched_requests_total",
        f"{_APF}request_wait_duration_seconds",
        f"{_APF}nominal_limit_seats",
        _API,
        _ANSWERS,
        *_STORAGE,
    ),
    CONTROLLER_MANAGER: (*_PROCESS, *_CLIENT, _EVICTION, "workqueue_"),
    SCHEDULER: (
        *_PROCESS,
        *_CLIENT,
        "scheduler_schedule_attempts_total",
        "scheduler_pod_scheduling_attempts",
        "scheduler_scheduling_algorithm_duration_seconds",
        "scheduler_pending_pods",
    ),
}
_CLIENTS = (CONTROLLER_MANAGER, SCHEDULER)


@dataclass(frozen=True)
class Reading:
    """The counters of all components at a moment."""

    at: float
    """Seconds, of time.time()."""
    samples: Mapping[str, Sequence[Sample]]
    """By component."""
    objects: Mapping[str, int]
    """How many of each kind are stored."""
    faults: Sequence[str] = ()
    """Which components could not be read, and why."""
    unread: Sequence[str] = ()
    """Components of somebody else's cluster that serve their metrics where the harness can't go, and an API
    server of several: nobody knows which one answers."""
    api_servers: int = 1


def read(cluster: Cluster, kube: KubeClient) -> Reading:
    """Read the counters of the API server, the controller manager, the scheduler and all real kubelets.

    Args:
        cluster: where.
        kube: the admin's: what is measured must not hold this up.
    """
    at = time.time()
    samples = {}
    faults = []
    unread = []
    replicas = (api_servers(kube) or 1) if cluster.provider == PROVIDER else 1
    kubelets = [f"kubelet/{node.name}" for node in cluster.nodes]
    for component in (*_PREFIXES, *kubelets):
        if component == APISERVER and replicas > 1:
            unread.append(component)
            continue
        prefixes = _PREFIXES.get(component, (*_PROCESS, _PREPARE))
        try:
            found = metrics.read(cluster, kube, component, prefixes=prefixes)
        except (EnvironmentBlocked, ApiError, OSError, urllib3.exceptions.HTTPError) as error:
            if isinstance(error, EnvironmentBlocked) and cluster.provider == PROVIDER:
                unread.append(component)
                continue
            faults.append(f"{component}: its metrics can't be read: {error}")
            continue
        if found:
            samples[component] = found
        else:
            faults.append(f"{component}: its metrics can't be read: there are none")
    try:
        objects = cleanup.counts(kube)
    except (ApiError, OSError, urllib3.exceptions.HTTPError) as error:
        objects = {}
        faults.append(f"stored objects can't be counted: {error}")
    return Reading(at, samples, objects, faults, unread, replicas)


def books(
    readings: Sequence[Reading],
    *,
    sender_flow_schema: str = "",
    components: Sequence[Component] = (),
    backlog: Backlog = NOTHING_SEEN,
    planned: Sequence[str] = (),
) -> ServerBooks:
    """What was counted from the first reading to the last.

    A component that began again between two readings has counted from zero since. Read before and after
    restarts that are meant, and only the time between these two is lost.

    Args:
        readings: two or more, in order.
        sender_flow_schema: name of the generator's FlowSchema.
        components: what the processes used (`load.usage`); without it, what their own metrics say.
        backlog: the most that waited meanwhile.
        planned: components in the order in which the scenario restarted them.
    """
    last = readings[-1]
    unread = {component for reading in readings for component in reading.unread}
    at_last = {name: samples for name, samples in last.samples.items() if name not in unread}
    counted = {name: deltas(readings, name) for name in at_last}
    began_again = {name for name in at_last if _restarts(readings, name)}
    faults = list(dict.fromkeys(fault for reading in readings for fault in reading.faults))
    if APISERVER in began_again:
        faults.append(f"{APISERVER} began again, and its counters with it")
    apiserver, manager, scheduler = (
        counted.get(name, []) for name in (APISERVER, CONTROLLER_MANAGER, SCHEDULER)
    )
    managers_last = at_last.get(CONTROLLER_MANAGER, ())
    clients = {name: counted[name] for name in _CLIENTS if name in counted}
    return ServerBooks(
        apf_flows=_flows(apiserver),
        apf_levels=_levels(at_last.get(APISERVER, ()), backlog),
        sender_flow_schema=sender_flow_schema,
        limiter=[_limiter(name, samples) for name, samples in clients.items()],
        client_429={
            name: counters.count(samples, _REQUESTS, code="429") for name, samples in clients.items()
        },
        client_retries={name: counters.count(samples, _RETRIES) for name, samples in clients.items()},
        claim_creates={name: _creates(samples) for name, samples in clients.items()},
        claim_owners=_owners([*manager, *scheduler]),
        workqueues=[_queue(manager, managers_last, name, backlog) for name in _queues(manager)],
        attempts=counters.by(scheduler, "scheduler_schedule_attempts_total", "result"),
        attempts_per_pod=counters.mean(scheduler, "scheduler_pod_scheduling_attempts"),
        algorithm_p99=counters.upper_edge(scheduler, "scheduler_scheduling_algorithm_duration_seconds", 0.99),
        pending=counters.by(at_last.get(SCHEDULER, ()), "scheduler_pending_pods", "queue"),
        pod_creates_forbidden=_forbidden(apiserver) if apiserver else None,
        evictions=counters.count(manager, f"{_EVICTION}s_total") if manager else None,
        eviction_p99=counters.upper_edge(manager, f"{_EVICTION}_duration_seconds", 0.99),
        prepares=_prepares(counted),
        seconds=last.at - readings[0].at,
        restarted=sorted(began_again - {APISERVER}),
        planned_restarts=Counter(planned),
        api=_latencies(apiserver),
        components=list(components) or _processes(readings, counted),
        etcd_bytes=_etcd_bytes(at_last.get(APISERVER, ())),
        objects=_more(readings[0].objects, last.objects),
        faults=faults,
        unread=sorted(unread),
        api_servers=max(reading.api_servers for reading in readings),
    )


def deltas(readings: Sequence[Reading], component: str) -> list[Sample]:
    """By how much each counter of a component grew over several readings, also where it began again.

    Nothing where there are no two in which it could be read: what it counted before the first isn't ours.
    """
    grown: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    read_at_all = [found for reading in readings if (found := reading.samples.get(component))]
    for before, after in pairwise(read_at_all):
        known = {} if began_again(before, after) else {_key(sample): sample.value for sample in before}
        for sample in after:
            key = _key(sample)
            grown[key] = grown.get(key, 0.0) + sample.value - known.get(key, 0.0)
    return [Sample(name, dict(labels), value) for (name, labels), value in grown.items()]


def began_again(before: Sequence[Sample], after: Sequence[Sample]) -> bool:
    """Whether a component's process is another one in the later reading."""
    started = [metrics.total(samples, "process_start_time_seconds") for samples in (before, after)]
    return bool(before) and bool(after) and started[0] != started[1]


def _key(sample: Sample) -> tuple[str, tuple[tuple[str, str], ...]]:
    return sample.name, tuple(sorted(sample.labels.items()))


def _restarts(readings: Sequence[Reading], component: str) -> int:
    seen = [reading.samples.get(component, ()) for reading in readings]
    return sum(began_again(before, after) for before, after in pairwise(seen))


def _flows(samples: Sequence[Sample]) -> list[ApfFlow]:
    rejected, dispatched = f"{_APF}rejected_requests_total", f"{_APF}dispatched_requests_total"
    waiting = f"{_APF}request_wait_duration_seconds"
    labels = ("flow_schema", "priority_level")
    pairs = sorted(
        {*counters.values(samples, rejected, *labels), *counters.values(samples, dispatched, *labels)}
    )
    flows = []
    for schema, level in pairs:
        chosen = {"flow_schema": schema, "priority_level": level}
        of_flow = [sample for sample in samples if chosen.items() <= sample.labels.items()]
        reasons = {
            reason: count for reason, count in counters.by(of_flow, rejected, "reason").items() if count
        }
        flow = ApfFlow(
            flow_schema=schema,
            priority_level=level,
            dispatched=counters.count(of_flow, dispatched),
            rejected=reasons,
            waited=counters.count(of_flow, f"{waiting}_count"),
            wait_seconds=metrics.total(of_flow, f"{waiting}_sum"),
            wait_p99=counters.upper_edge(of_flow, waiting, 0.99),
        )
        if flow.dispatched or flow.rejected:
            flows.append(flow)
    return flows


def _levels(samples: Sequence[Sample], backlog: Backlog) -> list[ApfLevel]:
    seats = counters.by(samples, f"{_APF}nominal_limit_seats", "priority_level")
    most = backlog.inqueue
    return [ApfLevel(name=name, nominal_seats=seats[name], most_inqueue=most.get(name)) for name in seats]


def _limiter(component: str, samples: Sequence[Sample]) -> LimiterWait:
    return LimiterWait(
        component=component,
        calls=counters.count(samples, f"{_LIMITER}_count"),
        seconds=metrics.total(samples, f"{_LIMITER}_sum"),
        p99=counters.upper_edge(samples, _LIMITER, 0.99),
    )


def _creates(samples: Sequence[Sample]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in CREATES:
        for status, count in counters.by(samples, name, "status").items():
            found[status] = found.get(status, 0) + count
    return found


def _owners(samples: Sequence[Sample]) -> dict[str, int]:
    succeeded = [sample for sample in samples if sample.labels.get("status") == "success"]
    found: dict[str, int] = {}
    for name in CREATES:
        for (kind,) in counters.values(succeeded, name, "owner_api_kind"):
            of_kind = [each for each in succeeded if each.labels.get("owner_api_kind", "") == kind]
            if count := counters.count(of_kind, name):
                found[kind] = found.get(kind, 0) + count
    return found


def _queues(samples: Sequence[Sample]) -> list[str]:
    there = {name for (name,) in counters.values(samples, "workqueue_adds_total", "name")}
    return [name for name in _QUEUES if name in there]


def _queue(samples: Sequence[Sample], last: Sequence[Sample], name: str, backlog: Backlog) -> Workqueue:
    queue, work = "workqueue_queue_duration_seconds", "workqueue_work_duration_seconds"
    return Workqueue(
        component=CONTROLLER_MANAGER,
        name=name,
        adds=counters.count(samples, "workqueue_adds_total", name=name),
        retries=counters.count(samples, "workqueue_retries_total", name=name),
        deepest=backlog.depth.get(name),
        depth=counters.count(last, "workqueue_depth", name=name),
        queue_mean=counters.mean(samples, queue, name=name),
        queue_p99=counters.upper_edge(samples, queue, 0.99, name=name),
        work_mean=counters.mean(samples, work, name=name),
        work_p99=counters.upper_edge(samples, work, 0.99, name=name),
    )


def _prepares(counted: Mapping[str, Sequence[Sample]]) -> list[NodeCalls]:
    calls = []
    for component, samples in counted.items():
        program, _, node = component.partition("/")
        if program != "kubelet":
            continue
        for operation, is_error in counters.values(
            samples, f"{_PREPARE}_count", "operation_name", "is_error"
        ):
            labels = {"operation_name": operation, "is_error": is_error}
            count = counters.count(samples, f"{_PREPARE}_count", **labels)
            if not count:
                continue
            calls.append(
                NodeCalls(
                    node=node,
                    operation=operation,
                    failed=is_error == "true",
                    count=count,
                    mean=metrics.total(samples, f"{_PREPARE}_sum", **labels) / count,
                    p99=counters.upper_edge(samples, _PREPARE, 0.99, **labels),
                )
            )
    return calls


def _forbidden(samples: Sequence[Sample]) -> int:
    create = {
        "verb": "POST",
        "resource": "pods",
        "subresource": "",
        "dry_run": "",
    }  # dry: the generator's first
    return counters.count(samples, _ANSWERS, code="403", **create)


def _latencies(samples: Sequence[Sample]) -> list[ApiLatency]:
    series: dict[tuple[str, ...], list[Sample]] = {}
    for sample in samples:
        labels = sample.labels
        if not sample.name.startswith(_API) or labels["verb"] in ("WATCH", "WATCHLIST", "CONNECT"):
            continue
        resource = "/".join(part for part in (labels["resource"], labels["subresource"]) if part)
        series.setdefault((labels["verb"], resource, labels["scope"]), []).append(sample)
    return [
        ApiLatency(
            verb=verb,
            resource=resource,
            scope=scope,
            count=count,
            p50=counters.upper_edge(found, _API, 0.5),
            p99=counters.upper_edge(found, _API, 0.99),
        )
        for (verb, resource, scope), found in sorted(series.items())
        if (count := counters.count(found, f"{_API}_count"))
    ]


def _processes(readings: Sequence[Reading], counted: Mapping[str, Sequence[Sample]]) -> list[Component]:
    found = []
    for name, samples in counted.items():
        resident = [
            round(metrics.total(reading.samples[name], "process_resident_memory_bytes"))
            for reading in readings
            if name in reading.samples
        ]
        found.append(
            Component(
                name=name,
                cpu_seconds=metrics.total(samples, "process_cpu_seconds_total"),
                rss_start=resident[0],
                rss_end=resident[-1],
                rss_peak=max(resident),
                restarts=_restarts(readings, name),
            )
        )
    return found


def _etcd_bytes(samples: Sequence[Sample]) -> int | None:
    sizes = [sample.value for sample in samples if sample.name in _STORAGE and sample.value > 0]
    return round(max(sizes)) if sizes else None


def _more(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    return {kind: count - before[kind] for kind, count in after.items() if kind in before}
