"""The books of a run: what the servers counted, and whether that agrees with what the client counted."""

from __future__ import annotations

import pydantic

from clusters.metrics import APISERVER, CONTROLLER_MANAGER, SCHEDULER
from load.model import Cause, Conduct, WorkerReport

CREATE = "create"
"""The verb of pod creates in `model.Requests`."""
CANCELLED = "cancelled"
"""The reason of a rejection that nobody was told of: the client had gone."""


class _Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="ignore")


class ApfFlow(_Model):
    """One FlowSchema's traffic over the run, from the API server's counters."""

    flow_schema: str
    priority_level: str
    dispatched: int
    rejected: dict[str, int] = {}
    """By reason: concurrency-limit, queue-full, time-out, cancelled."""
    waited: int = 0
    wait_seconds: float = 0.0
    """Of waiting in queues, over all requests."""
    wait_p99: float | None = None
    """Upper edge of the histogram's bucket; None without requests, or beyond the last bucket."""


class ApfLevel(_Model):
    """One priority level."""

    name: str
    nominal_seats: int | None = None
    most_inqueue: int | None = None
    """Requests that were seen waiting at once; there may have been more in between."""


class LimiterWait(_Model):
    """What a component's own client-side rate limiter cost, `rest_client_rate_limiter_duration_seconds`."""

    component: str
    calls: int
    seconds: float
    """Of waiting, over all calls."""
    p99: float | None = None
    """Upper edge of the histogram's bucket; None without calls, or beyond the last bucket."""

    @pydantic.computed_field  # type: ignore[prop-decorator] # which is how pydantic wants it
    @property
    def mean(self) -> float:
        """Seconds of waiting per call."""
        return self.seconds / self.calls if self.calls else 0.0


class Workqueue(_Model):
    """A controller's queue."""

    component: str
    name: str
    adds: int
    retries: int
    deepest: int | None = None
    """Keys that were seen waiting at once."""
    depth: int | None = None
    """At the end."""
    queue_mean: float | None = None
    """Seconds in the queue; None if nothing was taken out of it."""
    queue_p99: float | None = None
    """Upper edge of the histogram's bucket; None also beyond the last one, of 10 s."""
    work_mean: float | None = None
    work_p99: float | None = None


class ApiLatency(_Model):
    """Answers of the API server to one verb on one resource, WATCH left out."""

    verb: str
    resource: str
    scope: str
    count: int
    p50: float | None
    p99: float | None


class Component(_Model):
    """A process of the control plane over the run."""

    name: str
    cpu_seconds: float
    rss_start: int
    rss_end: int
    rss_peak: int
    restarts: int = 0


class NodeCalls(_Model):
    """What a real node's kubelet did for claims: `dra_operations_duration_seconds`."""

    node: str
    operation: str
    """PrepareResources or UnprepareResources."""
    failed: bool
    count: int
    mean: float
    p99: float | None = None


class ServerBooks(_Model):
    """What the cluster's side counted between the first arrival and the end of the drain."""

    apf_flows: list[ApfFlow] = []
    apf_levels: list[ApfLevel] = []
    sender_flow_schema: str = ""
    limiter: list[LimiterWait] = []
    client_429: dict[str, int] = {}
    """By component: answers 429 that it got."""
    client_retries: dict[str, int] = {}
    claim_creates: dict[str, dict[str, int]] = {}
    """By component, then by status: success or failure."""
    claim_owners: dict[str, int] = {}
    """Claims created with success, by the kind of their owner; unknown (``) before 1.37."""
    workqueues: list[Workqueue] = []
    attempts: dict[str, int] = {}
    """Of the scheduler, by result: scheduled, unschedulable, error."""
    attempts_per_pod: float | None = None
    algorithm_p99: float | None = None
    pending: dict[str, int] = {}
    """Pods that the scheduler has waiting at the end, by its queue: active, backoff, unschedulable, gated."""
    pod_creates_forbidden: int | None = None
    """`apiserver_request_total` of pod creates answered 403, anybody's: quota's denials are among them."""
    evictions: int | None = None
    """`device_taint_eviction_controller_pod_deletions_total`."""
    eviction_p99: float | None = None
    prepares: list[NodeCalls] = []
    seconds: float = 0.0
    """From the first reading to the last."""
    restarted: list[str] = []
    """Components but the API server that began again meanwhile: what they had counted since the reading
    before is lost."""
    planned_restarts: dict[str, int] = {}
    """By component: those that the scenario made."""
    api: list[ApiLatency] = []
    components: list[Component] = []
    etcd_bytes: int | None = None
    objects: dict[str, int] = {}
    """How many more (or fewer) of each resource are stored than before the run."""
    faults: list[str] = []
    """What could not be read or counted, and why: a counter that began again, an endpoint not served."""
    unread: list[str] = []
    """Components of somebody else's cluster whose metrics are out of reach; what they counted isn't known."""
    api_servers: int = 1
    """With several, what kube-apiserver counted isn't known: each counts its own answers only."""

    def unplanned_restarts(self) -> int:
        """Restarts that the scenario did not make, as far as they were seen."""
        seen = dict.fromkeys(self.restarted, 1)
        for each in self.components:
            seen[each.name] = max(each.restarts, seen.get(each.name, 0))
        return sum(max(0, count - self.planned_restarts.get(name, 0)) for name, count in seen.items())

    def rejected(self) -> int | None:
        """Requests that priority and fairness rejected, of anybody; None where that isn't known."""
        if APISERVER in self.unread:
            return None
        return sum(sum(each.rejected.values()) for each in self.apf_flows)


class BookLine(_Model):
    """The same thing as the client and as the server counted it."""

    name: str
    client: int | None
    server: int | None
    binding: bool
    """Whether the run is INVALID where they differ; else it's there to be seen."""
    source: str
    """The server's metric, or the other side of the sum."""

    @property
    def balanced(self) -> bool:
        """Whether both sides are known and equal."""
        return self.client is not None and self.client == self.server


def balance(report: WorkerReport, server: ServerBooks | None, conduct: Conduct) -> list[BookLine]:
    """Every pair of numbers that should be equal.

    Lines don't bind where others may have a part in the server's number: a scenario's own pods, and those of
    somebody else, have claims and are evicted, too.
    """
    ledger = sum(report.causes.values())
    kinds = sum(sum(causes.values()) for causes in report.causes_by_kind.values())
    creates = next((each.by_code for each in report.requests if each.verb == CREATE), {})
    refused = sum(each.by_code.get("429", 0) for each in report.requests)
    counts = server is None or APISERVER not in server.unread
    metric = "apiserver_flowcontrol_rejected_requests_total"
    lines = [
        _line("pods that came due", report.intended, ledger, "the ledger"),
        _line("pods of all kinds", ledger, kinds, "the ledger by kind"),
        _line("answers 429", refused, _rejected(server), metric, binding=counts),
    ]
    if conduct is Conduct.COUNT:
        unseen = (Cause.DROPPED_BY_GENERATOR, Cause.LOST_WITH_WORKER)
        sent = report.intended - sum(report.causes.get(cause, 0) for cause in unseen)
        rejected = report.causes.get(Cause.APF_REJECTED, 0)
        lines += [
            _line("creates answered", sum(creates.values()), sent, "the ledger but the dropped and lost"),
            _line("creates answered 429", creates.get("429", 0), rejected, "the ledger"),
        ]
    if server is not None:
        # Of two components; without one of them the sum says nothing.
        made = sum(each.get("success", 0) for each in server.claim_creates.values())
        created = None if {CONTROLLER_MANAGER, SCHEDULER} & set(server.unread) else made
        evicted = report.causes.get(Cause.EVICTED, 0)
        lines.append(
            _line("claims", report.claims_seen, created, "resourceclaim_creates_total", binding=False)
        )
        forbidden = creates.get("403", 0)
        if server.pod_creates_forbidden or forbidden:
            counted = None if APISERVER in server.unread else server.pod_creates_forbidden
            source = "apiserver_request_total"
            lines.append(_line("creates answered 403", forbidden, counted, source, binding=False))
        if server.evictions is not None or evicted:
            source = "device_taint_eviction_controller_pod_deletions_total"
            lines.append(_line("evicted pods", evicted, server.evictions, source, binding=False))
    return lines


def _rejected(server: ServerBooks | None) -> int | None:
    """Answers 429 that the sender's FlowSchema was given, None where the server's side is not known."""
    if server is None or not server.sender_flow_schema or not server.apf_flows:
        return None
    mine = [each.rejected for each in server.apf_flows if each.flow_schema == server.sender_flow_schema]
    return sum(count for reasons in mine for reason, count in reasons.items() if reason != CANCELLED)


def _line(
    name: str, client: int | None, server: int | None, source: str, *, binding: bool = True
) -> BookLine:
    return BookLine(name=name, client=client, server=server, binding=binding, source=source)
