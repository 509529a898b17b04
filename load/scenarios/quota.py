"""Quotas on devices in several namespaces, of which one is raised while pods wait for it.

Every namespace has room for twice what its pods need at a time, and standing claims take a share of that
before the load begins: none, half, or all of it. Pods with claim templates wait in a full namespace; the
claim controller tries their claims again on its exponential queue. Pods with extended resources get a 403.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import pydantic

from harness.errors import EnvironmentBlocked, UsageError
from harness.kube import RESOURCE_CLAIMS, RESOURCE_QUOTAS, Object
from harness.waiting import NotYet, WaitTimeout, wait_until
from load.model import Cause, QuotaChange, Stage
from load.profiles.schema import PodShape
from load.profiles.trial import MAIN, SETTLE_SECONDS, Trial
from load.scenarios.follow import Backlog
from load.scenarios.interface import Clock, Done, Findings, Ground, Scenario, ScenarioSpec
from load.scenarios.quiet import BaseScenario
from load.scenarios.readings import figure, quantile

if TYPE_CHECKING:
    from load.profiles.plan import Plan

_ROOM = 2.0
"""A namespace's quota, in multiples of the devices that its pods hold at a time."""
_MOST_PER_CLAIM = 32
_YOUNG_SECONDS = 10.0
"""Pods that were blocked for less than this are the ones whose recovery is limited."""
_QUIET = "quiet"
_QUOTA = "quota"


class QuotaRaise(ScenarioSpec):
    """Namespaces whose quota is used up to a share; `raised` gets more in the middle of the run."""

    one_rate: ClassVar[bool] = True

    kind: Literal["quota-raise"]
    used: dict[str, float]
    """By the profile's name for a namespace: the share of its quota that is taken from the start, 0 to 1."""
    raised: list[str] = pydantic.Field(min_length=1)
    """Namespaces whose quota is raised."""
    neighbour: str
    """The namespace whose pods must not notice."""
    raise_after: float = pydantic.Field(default=0.4, gt=0, lt=1)
    """When, as a share of the measured time."""

    def check(self, plan: Plan) -> None:
        """All namespaces are there."""
        known = plan.namespaces
        for name in (*self.used, *self.raised, self.neighbour):
            if name not in known:
                raise UsageError(
                    f"{plan.source}: scenario: expected namespaces of pods ({', '.join(known)}), not {name!r}"
                )
        for name, share in self.used.items():
            if not 0 <= share <= 1:
                raise UsageError(
                    f"{plan.source}: scenario.used.{name}: expected a share from 0 to 1, not {share}"
                )

    def make(self) -> Scenario:
        """One run's."""
        return _Quotas(self)


def need(trial: Trial, namespace: str) -> float:
    """Devices that the pods of a namespace hold at a time on average, in a trial."""
    weights = sum(shape.weight for shape in trial.pods)
    devices = 0.0
    for shape in trial.pods:
        share = shape.namespaces.count(namespace) / len(shape.namespaces)
        devices += share * shape.weight / weights * shape.devices_per_pod
    return trial.rate * devices * (trial.hold + SETTLE_SECONDS)


def room(trial: Trial, namespace: str) -> int:
    """The devices of a namespace's quota: twice what its pods need at a time."""
    return max(1, math.ceil(_ROOM * need(trial, namespace)))


def portions(devices: int, most: int = _MOST_PER_CLAIM) -> list[int]:
    """A number of devices in portions that a claim may ask for."""
    return [min(most, devices - start) for start in range(0, devices, most)]


class _Quotas(BaseScenario):
    def __init__(self, spec: QuotaRaise) -> None:
        self._spec = spec
        self._backlog: Backlog | None = None
        self._raised_at: float | None = None
        self._hard: dict[str, int] = {}
        self._over: list[str] = []

    def prepare(self, ground: Ground) -> None:
        super().prepare(ground)
        main = ground.plan.main
        for name in self._spec.used:
            self._hard[name] = room(main, name)

    def trials(self) -> Sequence[Trial]:
        """First the same load without any quota, then with them."""
        quiet = self.ground.plan.main.again(_QUIET)
        return (self.ground.plan.main, quiet)

    def before(self, trial: Trial) -> None:
        """Put the quotas up for the main trial only, and fill them."""
        if trial.name != MAIN:
            self._take_quotas_away()
            return
        for name, share in self._spec.used.items():
            namespace = self.ground.namespaces[name]
            for index, devices in enumerate(portions(round(share * self._hard[name]))):
                self.ground.kube.create(RESOURCE_CLAIMS, self._standing(index, devices), namespace)
            self.ground.kube.create(RESOURCE_QUOTAS, self._quota(self._hard[name]), namespace)
        self._wait_counted(self._spec.used)
        raised = [self.ground.namespaces[name] for name in self._spec.raised]
        self._backlog = Backlog(self.ground.observer, raised, keeps_bound=True)
        self._backlog.start()

    def act(self, trial: Trial, clock: Clock) -> None:
        """Raise the quota when it is time."""
        if trial.name != MAIN or not clock.until(self._raise_at(trial)):
            return
        for name in self._spec.raised:
            self._require_within(name)
        raised = {name: self._raised(trial, name) for name in self._spec.raised}
        self._raised_at = time.time()
        for name, limit in raised.items():
            patch = {"spec": {"hard": self._entries(limit)}}
            self.ground.kube.patch(RESOURCE_QUOTAS, _QUOTA, patch, self.ground.namespaces[name])
            self.ground.say(f"quota of {name} raised from {self._hard[name]} to {limit} devices")

    def quota(self, trial: Trial) -> Mapping[str, int]:
        """The limits as they are at first."""
        if trial.name != MAIN:
            return {}
        return {self.ground.namespaces[name]: self._hard[name] for name in self._spec.used}

    def quota_changes(self, trial: Trial) -> Sequence[QuotaChange]:
        """The raise."""
        if trial.name != MAIN:
            return ()
        at = self._raise_at(trial)
        return [
            QuotaChange(at=at, namespace=self.ground.namespaces[name], devices=self._raised(trial, name))
            for name in self._spec.raised
        ]

    def judge(self, done: Done) -> Findings:
        findings = Findings()
        if done.trial.name != MAIN or self._backlog is None:
            return findings
        self._backlog.stop()
        denied = done.report.causes.get(Cause.QUOTA_DENIED, 0)
        answers = sum(each.by_code.get("403", 0) for each in done.report.requests if each.verb == "create")
        findings.figures["denials-off"] = figure(abs(denied - answers))
        findings.figures["over-quota-before-raise"] = figure(len(self._over))
        findings.notes += self._over
        if self._raised_at is None:
            findings.faults.append("the run ended before the quota was raised")
            return findings
        self._judge_raise(findings, self._raised_at, done.report.drained_at)
        return findings

    def _judge_raise(self, findings: Findings, raised: float, end: float) -> None:
        assert self._backlog is not None, "only called once it follows"
        for name, since in (("young", raised - _YOUNG_SECONDS), ("all", 0.0)):
            bound = self._backlog.bound(after=since, before=raised)
            delays = [at - raised for _, at, _, _ in bound if at > raised]
            blocked = self._backlog.seen(after=since, before=raised) - (len(bound) - len(delays))
            missing = blocked - len(delays)
            findings.figures[f"raise.{name}.blocked"] = figure(blocked)
            if blocked:
                worst = max(delays, default=0.0) if not missing else end - raised
                findings.figures[f"raise.{name}.max"] = figure(worst, "s", at_least=bool(missing))

    def conclude(self, done: Sequence[Done]) -> Findings:
        """The neighbour's p99 in the storm against the quiet trial."""
        findings = Findings()
        kinds = [shape.name for shape in self._shapes() if shape.namespaces == [self._spec.neighbour]]
        found = {}
        for each in done:
            if kinds and (p99 := quantile(each.report, Stage.BOUND, 0.99, kind=kinds[0])):
                found[each.trial.name] = p99
        if MAIN in found and _QUIET in found:
            ratio = found[MAIN].seconds / found[_QUIET].seconds
            findings.figures["neighbour-ratio"] = figure(ratio, at_least=found[MAIN].at_least)
        return findings

    def clean(self) -> None:
        if self._backlog:
            self._backlog.stop()

    def _shapes(self) -> tuple[PodShape, ...]:
        return self.ground.plan.main.pods

    def _raise_at(self, trial: Trial) -> float:
        return trial.warm_up + self._spec.raise_after * trial.seconds

    def _raised(self, trial: Trial, name: str) -> int:
        """Room for the standing claims, for all that piled up until then, and for what goes on."""
        piled = need(trial, name) / (trial.hold + SETTLE_SECONDS) * trial.length
        return self._hard[name] + math.ceil(piled) + room(trial, name)

    def _entries(self, devices: int) -> dict[str, str]:
        return {
            f"{self.ground.names.device_class}.deviceclass.resource.k8s.io/devices": str(devices),
            f"requests.{self.ground.names.extended_resource}": str(devices),
        }

    def _quota(self, devices: int) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": _QUOTA, "labels": dict(self.ground.labels)},
            "spec": {"hard": self._entries(devices)},
        }

    def _standing(self, index: int, devices: int) -> Object:
        """A claim that nobody uses: it is charged all the same."""
        request = {
            "name": "devices",
            "exactly": {"deviceClassName": self.ground.names.device_class, "count": devices},
        }
        return {
            "apiVersion": RESOURCE_CLAIMS.api_version,
            "kind": "ResourceClaim",
            "metadata": {"name": f"standing-{index}", "labels": dict(self.ground.labels)},
            "spec": {"devices": {"requests": [request]}},
        }

    def _wait_counted(self, names: Mapping[str, float]) -> None:
        """The quota controller counts what is there; until then nothing is charged."""

        def counted() -> bool:
            for name, share in names.items():
                quota = self.ground.kube.get(RESOURCE_QUOTAS, _QUOTA, self.ground.namespaces[name])
                used = quota.get("status", {}).get("used", {})
                wanted = round(share * self._hard[name])
                entry = next(iter(self._entries(0)))
                if int(used.get(entry, -1)) != wanted:
                    raise NotYet(f"{name}: {used}, expected {wanted} of {entry}")
            return True

        try:
            wait_until(counted, 30, "the quotas to be counted")
        except WaitTimeout as error:
            raise EnvironmentBlocked(str(error)) from error

    def _require_within(self, name: str) -> None:
        """At the moment before the raise: live claims against the limit as it was."""
        claims = self.ground.kube.list(RESOURCE_CLAIMS, self.ground.namespaces[name])
        asked = sum(_devices_asked(claim) for claim in claims)
        if asked > self._hard[name]:
            self._over.append(f"{name}: claims for {asked} devices under a quota of {self._hard[name]}")

    def _take_quotas_away(self) -> None:
        for name in self._spec.used:
            namespace = self.ground.namespaces[name]
            self.ground.kube.delete(RESOURCE_QUOTAS, _QUOTA, namespace)
            for claim in self.ground.kube.list(RESOURCE_CLAIMS, namespace):
                if claim["metadata"]["name"].startswith("standing-"):
                    self.ground.kube.delete(RESOURCE_CLAIMS, claim["metadata"]["name"], namespace)


def _devices_asked(claim: Object) -> int:
    return sum(each.get("exactly", {}).get("count", 1) for each in claim["spec"]["devices"]["requests"])
