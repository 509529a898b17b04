"""What passes between the parts of a load run: the generator's orders, and what it reports.

The generator is a process of its own (Locust patches the world for gevent), so both are JSON. Times are
seconds: on the clock of `time.time()` where they say "at", durations elsewhere.
"""

from __future__ import annotations

import datetime
import enum
import hashlib
import json
from pathlib import Path
from typing import Any

import pydantic


class _Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")


class Stage(enum.StrEnum):
    """What an intended pod comes to, in this order. A stage's latency counts from the pod's due time.

    The exceptions are GONE and RELEASED: they count from the moment the generator sent the delete.
    """

    ACCEPTED = "accepted"
    """The API server answered the create with success."""
    CLAIM_CREATED = "claim-created"
    """The first claim owned by the pod was seen on the watch."""
    CLAIM_IN_STATUS = "claim-in-status"
    """The pod's status names its claims (resourceClaimStatuses or extendedResourceClaimStatus)."""
    ALLOCATED = "allocated"
    """All of the pod's claims were seen allocated."""
    BOUND = "bound"
    """The pod was seen with a node name."""
    RUNNING = "running"
    """The pod was seen in phase Running (kwok's word on simulated nodes, the kubelet's on real ones)."""
    GONE = "gone"
    """The pod was seen deleted, from the generator's delete."""
    RELEASED = "released"
    """The last claim of the pod was seen deleted or without reservation, from the generator's delete."""


class Cause(enum.StrEnum):
    """How an intended pod ended: each in exactly one."""

    COMPLETED = "completed"
    """Came to its last stage, was deleted by the generator, and released its devices."""
    DROPPED_BY_GENERATOR = "dropped-by-generator"
    """Never sent: the generator was at its own limit. Makes the run INVALID."""
    APF_REJECTED = "apf-rejected"
    """The create was answered 429 by priority and fairness (it carries the PF UIDs)."""
    QUOTA_DENIED = "quota-denied"
    """The create was answered 403 for an exceeded quota."""
    QUOTA_CONFLICT = "quota-conflict"
    """The create was answered 409: the quota object was under contention."""
    REFUSED = "refused"
    """Any other 4xx answer."""
    SERVER_ERROR = "server-error"
    """A 5xx answer."""
    UNREACHABLE = "unreachable"
    """No answer: the connection was refused or broken, or the request's own deadline passed."""
    NO_CLAIM = "no-claim"
    """Accepted, but no claim was created from its template by the end of the drain."""
    NOT_ALLOCATED = "not-allocated"
    """A claim was there, but not allocated by the end of the drain."""
    NOT_BOUND = "not-bound"
    """Allocated, or in need of no claim before it has one, but without a node by the end of the drain."""
    NOT_RUNNING = "not-running"
    """Bound, but not Running by the end of the drain, where the profile waits for that."""
    EVICTED = "evicted"
    """Deleted by the device taint eviction before its time."""
    VANISHED = "vanished"
    """Deleted by someone else before its time."""
    LOST_WITH_WORKER = "lost-with-worker"
    """Was a generator worker's that died: never sent, or nobody saw its end. Makes the run INVALID."""
    NOT_RELEASED = "not-released"
    """Came to its last stage, but it or one of its claims was still there at the end of the drain."""


UNFINISHED = frozenset(
    {Cause.NO_CLAIM, Cause.NOT_ALLOCATED, Cause.NOT_BOUND, Cause.NOT_RUNNING, Cause.NOT_RELEASED}
)
"""Causes of pods that the server accepted and that did not end within the drain limit."""


REFUSED = (
    Cause.APF_REJECTED,
    Cause.QUOTA_DENIED,
    Cause.QUOTA_CONFLICT,
    Cause.REFUSED,
    Cause.SERVER_ERROR,
    Cause.UNREACHABLE,
)
"""Causes of pods that were sent, and that the server never accepted."""


class Segment(_Model):
    """A part of the load's shape: the rate goes in a straight line from `start` to `end` pods/s."""

    seconds: float = pydantic.Field(gt=0)
    start: float = pydantic.Field(ge=0)
    end: float = pydantic.Field(ge=0)
    measured: bool = True
    """False for the warm-up: its pods are in the ledger, not in the latencies."""
    phase: str = ""
    """Name of a window of its own that its pods' latencies are in as well; snapshots carry it."""


class Burst(_Model):
    """So many pods that are all due at the same moment, `at` seconds after the start."""

    at: float = pydantic.Field(ge=0)
    pods: int = pydantic.Field(gt=0)


class Arrivals(enum.StrEnum):
    """How due times lie around the rate."""

    POISSON = "poisson"
    FIXED = "fixed"


class PodKind(_Model):
    """A pod that the generator makes, with its share of all arrivals."""

    name: str
    weight: float = pydantic.Field(gt=0)
    manifest: dict[str, Any]
    """Without metadata.name and namespace. Labels and annotations are kept."""
    claims: int = pydantic.Field(ge=0)
    """How many ResourceClaims each pod gets: one per template reference, one for extended resources."""
    claims_by_status: bool = False
    """Some get none (extended resources, some nodes with a device plugin): the bound pod's status says."""
    claims_by_scheduler: bool = False
    """The scheduler makes them (extended resources), but not before it has chosen a node."""
    namespaces: list[str] = pydantic.Field(min_length=1)
    """Taken in turn. Over several workers each takes its share of them."""


class QuotaChange(_Model):
    """From `at` seconds after the start, a namespace's claims may hold so many devices.

    Whoever changes the quota does so at that moment or later when he raises it: claims are judged by this.
    """

    at: float = pydantic.Field(ge=0)
    namespace: str
    devices: int = pydantic.Field(ge=0)


class Conduct(enum.StrEnum):
    """What the generator does about a 429."""

    COUNT = "count"
    """Nothing: it is a result."""
    RETRY_AFTER = "retry-after"
    """Waits as the server says and tries again, as a well-behaved client does; at most ten times."""


class Orders(_Model):
    """Everything that the generator process is told; `orders.json` in the run's folder."""

    run_id: str
    """Value of the label `dra-harness.dev/run` on every pod; names are derived from it."""
    seed: int
    sender_kubeconfig: Path
    observer_kubeconfig: Path
    expected_flow_schema_uid: str
    """PF UID that answers to the sender must carry; another at the start ends the run as INVALID."""
    exempt_uids: list[str]
    """UIDs of the exempt priority level and its FlowSchemas: a sender there is refused."""
    observer_flow_schema_uid: str
    kinds: list[PodKind] = pydantic.Field(min_length=1)
    namespace_prefix: str = ""
    """Begins the names of all namespaces whose claims are followed: any of them may hold a device."""
    arrivals: Arrivals = Arrivals.POISSON
    segments: list[Segment] = []
    bursts: list[Burst] = []
    max_in_flight: int = pydantic.Field(default=64, gt=0)
    """Requests of all workers together: each has its share, one at least. An arrival that finds none of its
    worker's free is dropped and counted."""
    conduct: Conduct = Conduct.COUNT
    last_stage: Stage = Stage.BOUND
    """The stage (BOUND or RUNNING) after which a pod is held, then deleted."""
    hold_seconds: float = pydantic.Field(default=2.0, ge=0)
    delete_grace_seconds: int | None = 0
    """None leaves the server's default."""
    drain_seconds: float = pydantic.Field(default=60.0, gt=0)
    """After the last arrival: what is unfinished then is censored."""
    device_quota: dict[str, int] = {}
    """By namespace: the most devices that live claims may hold there at any instant."""
    quota_changes: list[QuotaChange] = []
    """What becomes of `device_quota` while the run goes on."""
    removed_devices: bool = False
    """Whether slices change, so that the watch on slices is needed to judge allocations."""
    settle_seconds: float = pydantic.Field(default=5.0, ge=0)
    """How long after a device left its slice an allocation of it may still appear: it was decided before."""
    seconds_per_claim: float = pydantic.Field(default=0.0, ge=0)
    """What the claim controller may take, under the run's limits, for each claim that it is to let go of."""

    def digest(self) -> str:
        """SHA-256 of what is ordered, in hex; where each worker keeps its credentials is its own affair."""
        content = self.model_dump(mode="json", exclude={"sender_kubeconfig", "observer_kubeconfig"})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class StageSamples(_Model):
    """One histogram: a stage of one kind of pod in one window."""

    stage: Stage
    kind: str
    window: str
    """`measured`, `warm-up`, or the name of a phase."""
    histogram: str
    """HDR, microseconds from 1 to 3.6e9, 3 significant digits, encoded (base64)."""
    count: int
    censored: int = 0
    """Samples that never came; each lies in the histogram at the time that it had waited."""
    censored_histogram: str = ""
    """The censored samples alone, encoded alike: they tell where a quantile is only `>=`."""


class Violation(_Model):
    """An invariant that was broken at an instant."""

    invariant: str
    """duplicate-claim, double-allocation, over-quota, removed-device, leaked-claim or leaked-finalizer."""
    at: float
    object: str
    """namespace/name, or driver/pool/device; `*` for those of an invariant beyond the ones that are kept."""
    message: str
    count: int = pydantic.Field(default=1, gt=0)
    """How often it was broken: more than once only for `*`."""


class Gap(_Model):
    """A watch was cut or had to list again; what happened meanwhile was not seen as it happened."""

    kind: str
    at: float
    """When it was seen to be away; if events were late, when it said something for the last time before."""
    seconds: float
    """Until it was back."""
    relisted: bool
    reason: str
    late: float = 0.0
    """By how many seconds events may have been seen late, at most; 0 if none was missed meanwhile."""

    def __str__(self) -> str:
        when = datetime.datetime.fromtimestamp(self.at, datetime.UTC)
        late = f", events up to {self.late:.1f} s late" if self.late else ""
        return f"{self.kind} at {when:%H:%M:%S} for {self.seconds:.1f} s{late} ({self.reason})"


class Timeline(_Model):
    """One pod's life, for the slowest and for every one that did not complete (up to a limit)."""

    pod: str
    """namespace/name."""
    kind: str
    due: float
    sent: float | None = None
    answered: float | None = None
    status: int | None = None
    stages: dict[Stage, float] = {}
    """Seconds from the due time."""
    claims: list[str] = []
    node: str = ""
    devices: list[str] = []
    """driver/pool/device."""
    cause: Cause
    message: str = ""


class Flow(_Model):
    """Where priority and fairness put one of our identities, from the headers of an answer."""

    flow_schema_uid: str
    priority_level_uid: str


class Requests(_Model):
    """The generator's requests of one verb by status code ("0" for none): its side of the books."""

    verb: str
    by_code: dict[str, int]


class Lateness(_Model):
    """How late the generator sent, against the due time: its own fault, never the cluster's."""

    histogram: str
    count: int


class WorkerReport(_Model):
    """What one generator process measured. Reports of several are merged into one of the same shape."""

    workers: int = 1
    intended: int
    """Arrivals that came due."""
    causes: dict[Cause, int]
    causes_by_kind: dict[str, dict[Cause, int]]
    causes_by_namespace: dict[str, dict[Cause, int]]
    samples: list[StageSamples]
    lateness: Lateness
    requests: list[Requests]
    retry_after: dict[str, int] = {}
    """How often each value of the header Retry-After was seen."""
    violations: list[Violation]
    gaps: list[Gap]
    timelines: list[Timeline]
    claims_seen: int
    """Claims of our pods ever seen on the watch."""
    raced_evictions: int = 0
    """Pods that the taint eviction and we deleted: only the cluster knows whose delete came first."""
    seconds: float
    """From the start to the last arrival."""
    cpu_seconds: float
    """Of the generator's processes in that time; what the drain takes is no part of it."""
    started_at: float
    last_arrival_at: float
    drained_at: float
    flow: Flow | None = None
    faults: list[str] = []
    """Reasons why the generator itself does not trust its numbers."""
    stopped: bool = False
    """Somebody ended it early, by a signal or in Locust's web UI."""


class Snapshot(_Model):
    """One line of `progress.ndjson`, about once a second: what the live view shows."""

    at: float
    elapsed: float
    phase: str
    offered_rate: float
    """Pods/s that the shape asks for now."""
    intended: int
    accepted: int
    bound: int
    completed: int
    in_flight: int
    """Pods that were accepted and have not ended."""
    causes: dict[Cause, int]
    bound_p50: float | None = None
    bound_p99: float | None = None
    """Seconds, over the last ten seconds' finishers and those still waiting."""
    lateness_p99: float | None = None
