"""The books: every intended pod ends in exactly one cause, and the causes add up to what was intended."""

from __future__ import annotations

import collections
import heapq
import itertools
from collections.abc import Iterable, Mapping

from harness.errors import HarnessError

from .model import Cause, Stage, Timeline
from .pod import PodRecord

SLOWEST = 20
"""Timelines kept of the pods that took longest to their last stage."""
INCOMPLETE = 200
"""Timelines kept of those that did not complete, from all causes alike."""


def cause_of_answer(status: int, reason: str, message: str, *, apf: bool) -> Cause:
    """What a create came to that was answered with anything but success.

    Quota's two answers are those of pkg/admission/plugin/resourcequota in k8s.io/apiserver: 403 `exceeded
    quota`, and 409 when the quota's usage could not be written for others who write it. A create has no other
    conflict, apart from `AlreadyExists`.
    """
    if status == 0:
        return Cause.UNREACHABLE
    if status == 429 and apf:
        return Cause.APF_REJECTED
    if status == 403 and "exceeded quota" in message:
        return Cause.QUOTA_DENIED
    if status == 409 and reason != "AlreadyExists":
        return Cause.QUOTA_CONFLICT
    return Cause.SERVER_ERROR if status >= 500 else Cause.REFUSED


def is_definite(status: int, reason: str) -> bool:
    """Whether such an answer says that there is no pod. After a server's error or none there may be."""
    return 400 <= status < 500 and reason != "AlreadyExists"


def cause_at_end(pod: PodRecord, last_stage: Stage) -> Cause:
    """What a pod that has not ended comes to when the drain is over."""
    if not pod.accepted:
        return Cause.DROPPED_BY_GENERATOR if pod.sent is None else pod.refusal or Cause.UNREACHABLE
    if pod.taken is not None:
        return pod.taken
    if pod.delete_sent is not None or last_stage in pod.stages:
        return Cause.NOT_RELEASED
    if Stage.BOUND in pod.stages:
        return Cause.NOT_RUNNING
    if pod.expected_claims and not pod.claims_undecided:
        if not pod.claim_names:
            return Cause.NOT_BOUND if pod.kind.claims_by_scheduler else Cause.NO_CLAIM
        if Stage.ALLOCATED not in pod.stages:
            return Cause.NOT_ALLOCATED
    return Cause.NOT_BOUND


class Ledger:
    """Counts of what was intended and how it ended, and the lives of the pods that are worth a look."""

    def __init__(self, last_stage: Stage) -> None:
        self._last_stage = last_stage
        self.intended = 0
        self.causes: collections.Counter[Cause] = collections.Counter()
        self._by_kind: dict[str, collections.Counter[Cause]] = collections.defaultdict(collections.Counter)
        self._by_namespace: dict[str, collections.Counter[Cause]] = collections.defaultdict(
            collections.Counter
        )
        self._slowest: list[tuple[float, int, Timeline]] = []
        self._incomplete: dict[Cause, list[Timeline]] = collections.defaultdict(list)
        self._order = itertools.count()

    def intend(self) -> None:
        """One more pod is due."""
        self.intended += 1

    def close(self, pod: PodRecord, cause: Cause) -> None:
        """The pod has ended."""
        self.causes[cause] += 1
        self._by_kind[pod.kind.name][cause] += 1
        self._by_namespace[pod.namespace][cause] += 1
        if cause is not Cause.COMPLETED:
            if len(self._incomplete[cause]) < INCOMPLETE:
                self._incomplete[cause].append(timeline(pod, cause))
            return
        seconds = pod.stages.get(self._last_stage, pod.due) - pod.due
        if len(self._slowest) < SLOWEST:
            heapq.heappush(self._slowest, (seconds, next(self._order), timeline(pod, cause)))
        elif seconds > self._slowest[0][0]:
            heapq.heapreplace(self._slowest, (seconds, next(self._order), timeline(pod, cause)))

    def by_kind(self) -> dict[str, dict[Cause, int]]:
        """Causes of each kind of pod."""
        return {name: dict(causes) for name, causes in self._by_kind.items()}

    def by_namespace(self) -> dict[str, dict[Cause, int]]:
        """Causes in each namespace."""
        return {name: dict(causes) for name, causes in self._by_namespace.items()}

    def timelines(self) -> list[Timeline]:
        """The slowest first, then those that did not complete."""
        slowest = [entry[2] for entry in sorted(self._slowest, key=lambda entry: (-entry[0], entry[1]))]
        return slowest + in_turn(self._incomplete.values(), INCOMPLETE)

    def check(self) -> None:
        """Raise HarnessError unless every intended pod has ended in exactly one cause."""
        check_closed(self.intended, self.causes, self._by_kind, self._by_namespace)


def check_closed(
    intended: int,
    causes: Mapping[Cause, int],
    by_kind: Mapping[str, Mapping[Cause, int]],
    by_namespace: Mapping[str, Mapping[Cause, int]],
) -> None:
    """Hold a ledger to its promise.

    Raises:
        HarnessError: if the causes don't add up to what was intended, or kinds or namespaces to other causes.
    """
    total = sum(causes.values())
    if total != intended:
        raise HarnessError(f"ledger: {intended} pods were intended, {total} have a cause: {dict(causes)}")
    for what, parts in (("kinds", by_kind), ("namespaces", by_namespace)):
        summed = add(parts.values())
        if {cause: n for cause, n in summed.items() if n} != {cause: n for cause, n in causes.items() if n}:
            raise HarnessError(f"ledger: the {what} add up to {summed}, the causes are {dict(causes)}")


def add(parts: Iterable[Mapping[Cause, int]]) -> dict[Cause, int]:
    """The sum of several counts of causes."""
    total: collections.Counter[Cause] = collections.Counter()
    for part in parts:
        total.update(part)
    return dict(total)


def in_turn(groups: Iterable[Iterable[Timeline]], limit: int) -> list[Timeline]:
    """At most `limit` of all: the first of each group, then the second, so that none crowds out others."""
    rounds = itertools.zip_longest(*groups)
    return list(itertools.islice((each for one in rounds for each in one if each is not None), limit))


def timeline(pod: PodRecord, cause: Cause) -> Timeline:
    """The pod's life as far as it is known."""
    return Timeline(
        pod=pod.key,
        kind=pod.kind.name,
        due=pod.due,
        sent=pod.sent,
        answered=pod.answered,
        status=pod.status,
        stages={stage: at - pod.due for stage, at in pod.stages.items()},
        claims=list(pod.claim_names),
        node=pod.node,
        devices=list(pod.devices),
        cause=cause,
        message=pod.message,
    )
