"""Follows every intended pod from its due time to its end, from the answers and the watches of one generator.

Answers and watches come in any order among themselves: a pod can be seen before its create is answered, bound
before its claim is seen. Stages are therefore marks that are set once, and a pod ends only when nothing more
can be learnt about it. What has ended is kept as counts and histograms.
"""

from __future__ import annotations

import collections
import heapq
import itertools
from collections.abc import Collection, Iterable

from harness.errors import HarnessError

from .arrivals import name_prefix, windows_at
from .claimbook import ClaimBook
from .findings import Findings
from .invariants import Invariants
from .latencies import Latencies, OnStage, rank
from .ledger import Ledger, cause_at_end, cause_of_answer, is_definite
from .model import Cause, Gap, Orders, PodKind, Requests, Snapshot, Stage
from .pod import Object, PodRecord, claims_named, is_evicted, unscheduled_message

DELETE_AGAIN_SECONDS = 1.0
"""After a delete that was not carried out. Not a retry of what is measured: GONE counts from the first."""

_EVENTS = frozenset({"ADDED", "MODIFIED", "DELETED"})


class Tracker:
    """One generator process's books. All times are seconds on the clock of `time.time()`.

    Args:
        orders: of the run.
        started_at: the moment that counts as 0 for the shape; the same as for `arrivals.schedule`.
        worker: the index of this worker, by which it knows its own pods' names.
        on_stage: told of every stage that a pod comes to, with its latency in seconds.
    """

    def __init__(
        self, orders: Orders, *, started_at: float, worker: int = 0, on_stage: OnStage | None = None
    ) -> None:
        self._orders = orders
        self._started_at = started_at
        self._pods: dict[str, PodRecord] = {}
        self._unbound: dict[str, PodRecord] = {}
        self._ledger = Ledger(orders.last_stage)
        self._latencies = Latencies(orders.last_stage, on_stage)
        self._invariants = Invariants(orders, started_at)
        self._claims = ClaimBook(self._pods, name_prefix(orders.run_id, worker), self._invariants)
        self._requests = {"create": collections.Counter[str](), "delete": collections.Counter[str]()}
        self._gaps: list[Gap] = []
        self._raced_evictions = 0
        self._deletions: list[tuple[float, int, PodRecord]] = []
        self._order = itertools.count()
        self._accepted = self._bound = self._open = 0
        self._finished = False

    # What the generator does

    def intended(self, name: str, namespace: str, kind: PodKind, due: float) -> None:
        """An arrival came due. Call it before `sent` or `dropped`.

        Raises:
            HarnessError: if there is such a pod already, or the books are closed.
        """
        if self._finished or name in self._pods:
            raise HarnessError(f"tracker: {name}: {'the books are closed' if self._finished else 'known'}")
        windows = windows_at(self._orders.segments, due - self._started_at)
        self._pods[name] = PodRecord(name, namespace, kind, due, windows, expected_claims=kind.claims)
        self._ledger.intend()

    def dropped(self, name: str, at: float) -> None:
        """It found no free slot and will never be sent."""
        if pod := self._known(name):
            self._close(pod, Cause.DROPPED_BY_GENERATOR, at)

    def sent(self, name: str, at: float) -> None:
        """The create goes out now. In Conduct.RETRY_AFTER only the first try counts."""
        pod = self._known(name)
        if pod and pod.sent is None:
            pod.sent = at
            self._latencies.sent(pod.due, at)

    def retried(self, name: str, at: float, status: int) -> None:
        """An answer that will be tried again (Conduct.RETRY_AFTER): goes into the requests, nothing else."""
        self._requests["create"][str(status)] += 1

    def answered(
        self, name: str, at: float, status: int, reason: str = "", message: str = "", apf: bool = False
    ) -> None:
        """The last answer to the create.

        Args:
            name: of the pod.
            at: when it came.
            status: HTTP status; 0 for none.
            reason: of the Status object, if it was one.
            message: of the Status object, or what broke the connection.
            apf: whether it carries the headers X-Kubernetes-PF-*.
        """
        self._requests["create"][str(status)] += 1
        pod = self._known(name)
        if pod is None:
            return
        pod.answered, pod.status = at, status
        if 200 <= status < 300:
            self._accept(pod)
            self._mark(pod, Stage.ACCEPTED, at)
        else:
            self._refused(pod, cause_of_answer(status, reason, message, apf=apf), at, reason, message)
        self._end_if_over(pod, at)

    def delete_sent(self, name: str, at: float) -> None:
        """The delete goes out now; call it before the request. GONE and RELEASED count from the first."""
        pod = self._pods.get(name)
        if pod and pod.gone is None and pod.delete_sent is None:
            pod.delete_sent, pod.deleted_by_us = at, not pod.terminating

    def delete_answered(self, name: str, at: float, status: int) -> None:
        """Its answer; after anything but 2xx and 404 the pod is due for another delete a second later."""
        self._requests["delete"][str(status)] += 1
        pod = self._pods.get(name)
        if pod and pod.gone is None and status != 404 and not 200 <= status < 300:
            self._plan_deletion(pod, at + DELETE_AGAIN_SECONDS)

    def take_due_deletions(self, at: float) -> list[tuple[str, str]]:
        """(namespace, name) of pods that came to their last stage and were held long enough, each once."""
        due = []
        while self._deletions and self._deletions[0][0] <= at:
            pod = heapq.heappop(self._deletions)[2]
            if pod.gone is None and not pod.closed:
                due.append((pod.namespace, pod.name))
        return due

    def next_deletion(self) -> float | None:
        """When the next pod will be due for deletion, or None while none is held."""
        return self._deletions[0][0] if self._deletions else None

    # What the watches say

    def pod_event(self, type_: str, obj: Object, at: float) -> None:
        """ADDED, MODIFIED or DELETED, in the order of its watch; other types and strange pods are ignored."""
        metadata = obj["metadata"]
        pod = self._pods.get(metadata.get("name", ""))
        if pod is None or type_ not in _EVENTS or metadata["namespace"] != pod.namespace:
            return
        if pod.gone is not None or (pod.uid and pod.uid != metadata["uid"]):
            return
        pod.uid = metadata["uid"]
        self._accept(pod)
        self._read(pod, obj, at)
        if type_ == "DELETED":
            self._gone(pod, at)

    def claim_event(self, type_: str, obj: Object, at: float) -> None:
        """Like `pod_event`, for all ResourceClaims of the watched namespaces, not only our pods'.

        In a namespace, what has a lower resource version than the last event is old news and is dropped: the
        state at the start of a watch goes to `relisted`.
        """
        if type_ in _EVENTS and (pod := self._claims.event(type_, obj, at)):
            self._claims_changed(pod, at)

    def slice_event(self, type_: str, obj: Object, at: float) -> None:
        """Like `pod_event`, for all ResourceSlices."""
        self._invariants.slices.event(type_, obj, at)

    def relisted(
        self,
        kind: str,
        objects: Iterable[Object],
        at: float,
        namespaces: Collection[str] | None = None,
        began: float | None = None,
    ) -> None:
        """The full state, at the start or after a gap: what is missing is gone.

        Args:
            kind: `pods`, `claims` or `slices`.
            objects: all of them.
            at: when the list came.
            namespaces: which the list covers; None for all.
            began: when the list was asked for; without it, nothing is concluded about what was new then.
        """
        if kind == "pods":
            self._pods_relisted(list(objects), at, namespaces, began)
        elif kind == "claims":
            self._claims_relisted(objects, at, namespaces, began)
        elif kind == "slices":
            self._invariants.slices.relisted(objects, at)
        else:
            raise HarnessError(f"tracker: no list of {kind!r} is known")

    def gap(self, gap: Gap) -> None:
        """A watch was cut; goes into the report."""
        self._gaps.append(gap)

    # What comes of it

    def snapshot(self, at: float, phase: str, offered_rate: float) -> Snapshot:
        """The state of things now, for `progress.ndjson`. Call it about once a second."""
        recent = self._latencies.recent_bound(at, (at - pod.due for pod in self._unbound.values()))
        return Snapshot(
            at=at,
            elapsed=at - self._started_at,
            phase=phase,
            offered_rate=offered_rate,
            intended=self._ledger.intended,
            accepted=self._accepted,
            bound=self._bound,
            completed=self._ledger.causes[Cause.COMPLETED],
            in_flight=self._open,
            causes=dict(self._ledger.causes),
            bound_p50=rank(recent, 0.5),
            bound_p99=rank(recent, 0.99),
            lateness_p99=rank(self._latencies.recent_lateness(at), 0.99),
        )

    def open_pods(self) -> int:
        """Pods that the server accepted and that have not ended."""
        return self._open

    def lingering_claims(self) -> int:
        """Claims of pods that are gone: wait for them, too, before `finish`, or they may count as leaked."""
        return sum(claim.orphaned_since is not None for claim in self._claims.ours())

    def finish(self, at: float) -> Findings:
        """Close the books: what is open is censored now, and every intended pod has one cause.

        Raises:
            HarnessError: if the causes don't add up to `intended`; that would be a defect in here.
        """
        self._finished = True
        still_open = list(self._pods.values())
        self._invariants.leaks(self._claims.ours(), still_open, at, seen=self._claims.seen)
        for pod in still_open:
            if pod.sent is not None and pod.answered is None:
                self._latencies.censored(pod, Stage.ACCEPTED, at)
            if not self._ended(pod, at):
                self._close(pod, cause_at_end(pod, self._orders.last_stage), at)
        self._ledger.check()
        return Findings(
            intended=self._ledger.intended,
            causes=dict(self._ledger.causes),
            causes_by_kind=self._ledger.by_kind(),
            causes_by_namespace=self._ledger.by_namespace(),
            samples=self._latencies.samples(),
            lateness=self._latencies.lateness(),
            requests=[Requests(verb=verb, by_code=dict(codes)) for verb, codes in self._requests.items()],
            violations=self._invariants.finish(),
            gaps=list(self._gaps),
            timelines=self._ledger.timelines(),
            claims_seen=self._claims.seen,
            raced_evictions=self._raced_evictions,
        )

    # How a pod gets on

    def _known(self, name: str) -> PodRecord | None:
        pod = self._pods.get(name)
        if pod is None and not self._finished:
            raise HarnessError(f"tracker: {name} was never intended, or has ended")
        return pod

    def _accept(self, pod: PodRecord) -> None:
        if not pod.accepted:
            pod.accepted = True
            self._accepted += 1
            self._open += 1
            self._unbound[pod.name] = pod

    def _refused(self, pod: PodRecord, cause: Cause, at: float, reason: str, message: str) -> None:
        if pod.status == 0:
            self._latencies.censored(pod, Stage.ACCEPTED, at)
        if pod.accepted:
            return  # the watch has shown the pod: the server made it, whatever became of the answer
        pod.refusal, pod.message = cause, message
        if is_definite(pod.status or 0, reason):
            self._close(pod, cause, at)

    def _mark(self, pod: PodRecord, stage: Stage, at: float) -> None:
        if stage in pod.stages:
            return
        pod.stages[stage] = at
        self._latencies.reached(pod, stage, at)
        if stage is self._orders.last_stage:
            self._plan_deletion(pod, at + self._orders.hold_seconds)

    def _plan_deletion(self, pod: PodRecord, at: float) -> None:
        heapq.heappush(self._deletions, (at, next(self._order), pod))

    def _read(self, pod: PodRecord, obj: Object, at: float) -> None:
        metadata, status = obj["metadata"], obj.get("status") or {}
        node = (obj.get("spec") or {}).get("nodeName", "")
        if "deletionTimestamp" in metadata:
            pod.terminating, pod.finalizers = True, tuple(metadata.get("finalizers", ()))
        pod.condemned = pod.condemned or is_evicted(status)
        if pod.delete_sent is None and (pod.condemned or pod.terminating):
            pod.taken = Cause.EVICTED if pod.condemned else Cause.VANISHED
        if node and Stage.BOUND not in pod.stages:
            self._now_bound(pod, node, status, at)
        elif not node and Stage.BOUND not in pod.stages:
            pod.message = unscheduled_message(status)
        elif status.get("phase") == "Failed":
            pod.message = str(status.get("message") or status.get("reason", ""))
        if Stage.CLAIM_IN_STATUS not in pod.stages and 0 < pod.expected_claims <= claims_named(status):
            self._mark(pod, Stage.CLAIM_IN_STATUS, at)
        if self._orders.last_stage is Stage.RUNNING and status.get("phase") in ("Running", "Succeeded"):
            self._mark(pod, Stage.RUNNING, at)

    def _now_bound(self, pod: PodRecord, node: str, status: Object, at: float) -> None:
        pod.node, pod.message = node, ""
        if pod.kind.claims_by_status:
            pod.expected_claims = claims_named(status)
        self._mark(pod, Stage.BOUND, at)
        self._bound += 1
        self._unbound.pop(pod.name, None)

    def _claims_changed(self, pod: PodRecord, at: float) -> None:
        if pod.claim_names:
            self._mark(pod, Stage.CLAIM_CREATED, at)
        if Stage.ALLOCATED not in pod.stages and pod.all_claims_allocated():
            self._mark(pod, Stage.ALLOCATED, at)
        if pod.delete_sent is not None and pod.claim_names and pod.released():
            self._mark(pod, Stage.RELEASED, at)
        self._end_if_over(pod, at)

    def _gone(self, pod: PodRecord, at: float) -> None:
        if pod.condemned and pod.deleted_by_us and pod.gone is None:
            self._raced_evictions += 1
        pod.gone = at
        if pod.delete_sent is None and pod.taken is None:
            pod.taken = Cause.VANISHED
        if pod.taken is None:
            self._mark(pod, Stage.GONE, at)
        self._end_if_over(pod, at)

    def _end_if_over(self, pod: PodRecord, at: float) -> None:
        if pod.answered is not None:
            self._ended(pod, at)

    def _ended(self, pod: PodRecord, at: float) -> bool:
        """Close the books on a pod that is gone with all that it held."""
        if pod.gone is None:
            return False
        if pod.taken is not None:
            self._close(pod, pod.taken, pod.gone)
        elif pod.released():
            if pod.expected_claims:
                self._mark(pod, Stage.RELEASED, at)
            self._close(pod, Cause.COMPLETED, at)
        return pod.closed

    def _close(self, pod: PodRecord, cause: Cause, at: float) -> None:
        pod.closed = True
        del self._pods[pod.name]
        self._unbound.pop(pod.name, None)
        if pod.accepted:
            self._open -= 1
            if cause is not Cause.COMPLETED:
                self._latencies.give_up(pod, at)
        self._claims.orphan(pod)
        self._ledger.close(pod, cause)

    # What a list shows

    def _pods_relisted(
        self, objects: list[Object], at: float, namespaces: Collection[str] | None, began: float | None
    ) -> None:
        listed = {(obj["metadata"]["namespace"], obj["metadata"]["name"]) for obj in objects}
        for obj in objects:
            self.pod_event("MODIFIED", obj, at)
        for pod in list(self._pods.values()):
            if pod.gone is not None or (namespaces is not None and pod.namespace not in namespaces):
                continue
            accepted_before = began is not None and pod.stages.get(Stage.ACCEPTED, began) < began
            if (pod.namespace, pod.name) not in listed and (pod.uid or accepted_before):
                self._gone(pod, at)

    def _claims_relisted(
        self,
        objects: Iterable[Object],
        at: float,
        namespaces: Collection[str] | None,
        began: float | None,
    ) -> None:
        changed = self._claims.relisted(objects, at, namespaces)
        for pod in self._pods.values():
            if namespaces is not None and pod.namespace not in namespaces:
                continue
            if began is not None and pod.delete_sent is not None and pod.delete_sent < began:
                pod.claims_lost |= len(pod.claim_names) < pod.expected_claims
                changed.add(pod)
        for pod in changed:
            self._claims_changed(pod, at)
