"""What a sweep says about the requirements APF-01 to APF-06."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.kube import Object
from harness.results import Result, worst
from load.model import Cause
from load.scenarios.interface import Done, requirement
from load.scenarios.readings import figure, unfinished
from load.scenarios.squeeze import Victim

if TYPE_CHECKING:
    from load.result import RequirementResult

SPECIAL_CLAIM = "create claim for extended resources"
"""In the scheduler's FailedScheduling event: KEP-5004."""
_TEMPLATE_CLAIM = "FailedResourceClaimCreation"
_PATIENT = "no client gave up: the server has rejected clients wait longer and longer before each try"
_NOT_KNOWN = "what the API server rejected isn't known"
_INVARIANTS = ("duplicate-claim", "leaked-claim", "leaked-finalizer", "double-allocation")


@dataclass
class Witness:
    """Events about claims that could not be made."""

    special: set[str] = field(default_factory=set)
    """Pods, as namespace/name, whose special claim the scheduler could not create."""
    template: set[str] = field(default_factory=set)
    """Pods whose claims the claim controller could not create."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def event(self, kind: str, obj: Object, at: float) -> None:
        """A watch event of an Event."""
        about = obj.get("involvedObject", {})
        pod = f"{about.get('namespace')}/{about.get('name')}"
        words = obj.get("message", "") or obj.get("note", "")
        with self._lock:
            if obj.get("reason") == "FailedScheduling" and SPECIAL_CLAIM in words:
                self.special.add(pod)
            elif obj.get("reason") == _TEMPLATE_CLAIM:
                self.template.add(pod)


@dataclass(frozen=True)
class _Outcome:
    requirement: str
    result: Result
    message: str
    figures: dict[str, float]


class Outcomes:
    """Gathers results over the arms; the worst of each requirement counts."""

    def __init__(self) -> None:
        self._found: list[_Outcome] = []

    def arm(self, victim: Victim, done: Done, witness: Witness, rejected: int | None) -> None:
        """What one arm says.

        Args:
            victim: who was squeezed.
            done: the trial.
            witness: the events of its time.
            rejected: requests of the victim that the API server rejected; None where that isn't known.
        """
        if victim is Victim.SCHEDULER:
            self._scheduler(done, witness, rejected)
        elif victim is Victim.CONTROLLER_MANAGER:
            self._controller(done, witness, rejected)
        elif victim is Victim.KUBELET:
            self._node(done, rejected)

    def results(self) -> list[RequirementResult]:
        """One result for each requirement that any arm bears on."""
        made = []
        for name in sorted({each.requirement for each in self._found}):
            mine = [each for each in self._found if each.requirement == name]
            told = [each for each in mine if each.result is not Result.SKIPPED]
            # An arm in which nothing was rejected says nothing; only if none did is the requirement skipped.
            result = worst(each.result for each in told) if told else Result.SKIPPED
            shown = next(each for each in (told or mine) if each.result is result)
            sums: dict[str, float] = {}
            for each in mine:
                for key, value in each.figures.items():
                    sums[key] = sums.get(key, 0) + value
            figures = {key: figure(value) for key, value in sums.items()}
            message = "" if result is Result.PASS else shown.message
            made.append(requirement(name, result, message, **figures))
        return made

    def _add(self, name: str, result: Result, message: str = "", **figures: float) -> None:
        self._found.append(_Outcome(name, result, message, figures))

    def _scheduler(self, done: Done, witness: Witness, rejected: int | None) -> None:
        arm = done.trial.name
        lost = [
            f"{each.pod} ({each.cause})"
            for each in done.report.timelines
            if each.pod in witness.special and each.cause in _STUCK
        ]
        if not witness.special:
            self._add("APF-01", Result.SKIPPED, f"{arm}: {_PATIENT}")
        else:
            self._judge(
                "APF-01", not lost, f"{arm}: not bound after the limits were back: {', '.join(lost[:5])}"
            )
        self._count(done, rejected)
        self._exactly_one(done, rejected)

    def _count(self, done: Done, rejected: int | None) -> None:
        """The counters of both sides."""
        arm, component = done.trial.name, "kube-scheduler"
        failures, successes = _creates(done, component)
        if not rejected or done.server is None or failures is None or successes is None:
            counted = f"{rejected} requests were rejected, {failures} failures counted"
            said = _NOT_KNOWN if rejected is None else counted
            self._add("APF-02", Result.SKIPPED, f"{arm}: {said}")
            return
        if failures:
            said = f"{arm}: {failures} failures and {successes} successes are counted"
            self._judge("APF-02", successes > 0, said)
        else:
            self._add("APF-02", Result.SKIPPED, f"{arm}: {_PATIENT}")
        refused = done.server.client_429.get(component, 0)
        # Others may share the level, so the scheduler's answers are at most what was rejected in it.
        said = (
            f"{arm}: {rejected} rejected by the server, {refused} seen by the scheduler, {failures} failures"
        )
        self._judge("APF-04", refused <= rejected and failures <= refused, said)

    def _exactly_one(self, done: Done, rejected: int | None) -> None:
        broken = [each for each in done.report.violations if each.invariant in _INVARIANTS]
        if not rejected:
            said = _NOT_KNOWN if rejected is None else "nothing was rejected"
            self._add("APF-03", Result.SKIPPED, f"{done.trial.name}: {said}")
            return
        first = f": {broken[0].invariant} {broken[0].object}" if broken else ""
        self._judge("APF-03", not broken, f"{done.trial.name}: {len(broken)} broken invariants{first}")

    def _controller(self, done: Done, witness: Witness, rejected: int | None) -> None:
        arm = done.trial.name
        queue = (
            [each for each in done.server.workqueues if each.name == "resource_claim"] if done.server else []
        )
        retries = sum(each.retries for each in queue)
        if not witness.template:
            self._add("APF-05", Result.SKIPPED, f"{arm}: {_PATIENT}")
            return
        if not queue:
            self._add("APF-05", Result.SKIPPED, f"{arm}: what the claim controller retried isn't known")
            return
        missing = done.report.causes.get(Cause.NO_CLAIM, 0)
        fine = retries > 0 and not missing
        message = f"{arm}: {retries} retries are counted, {missing} pods are without their claim at the end"
        self._judge("APF-05", fine, message)

    def _node(self, done: Done, rejected: int | None) -> None:
        lost = unfinished(done.report)
        arm = done.trial.name
        if not rejected:
            nothing = "no request of the kubelet or the driver was rejected"
            said = _NOT_KNOWN if rejected is None else nothing
            self._add("APF-06", Result.SKIPPED, f"{arm}: {said}")
            return
        self._judge("APF-06", not lost, f"{arm}: {lost} pods did not come to run and go again")

    def _judge(self, name: str, fine: bool, message: str) -> None:
        self._add(name, Result.PASS if fine else Result.FAIL, "" if fine else message)


_STUCK = frozenset({Cause.NO_CLAIM, Cause.NOT_ALLOCATED, Cause.NOT_BOUND})


def _creates(done: Done, component: str) -> tuple[int | None, int | None]:
    """Claim creations that a component counts as failed and as done."""
    if done.server is None or component not in done.server.claim_creates:
        return None, None
    counted = done.server.claim_creates[component]
    return counted.get("failure", 0), counted.get("success", 0)
