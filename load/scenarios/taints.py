"""DeviceTaintRules that come and go under the churn, and one mass eviction.

A rule stands for the devices of one node's pool; all devices at once are one rule for the driver. While a
share of the devices is tainted, no pod may get one of them unless its claim tolerates that, and no tolerating
pod may be evicted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import pydantic

from clusters.metrics import CONTROLLER_MANAGER
from harness.errors import EnvironmentBlocked, UsageError
from harness.kube import DEVICE_TAINT_RULES, PODS, RESOURCE_CLAIMS, ApiError, KubeClient, Object, Resource
from harness.results import Result
from load.model import Burst, Cause
from load.profiles.schema import Tolerance
from load.profiles.trial import Trial
from load.scenarios.follow import Follower
from load.scenarios.interface import Clock, Done, Findings, Ground, Scenario, ScenarioSpec, requirement
from load.scenarios.quiet import BaseScenario
from load.scenarios.readings import figure
from load.scenarios.taint_witness import TAINT_KEY, Tainted, Witness, evictions_off

if TYPE_CHECKING:
    from load.profiles.plan import Plan

_MASS = "mass-eviction"
_VERSIONS = ("v1", "v1beta2", "v1alpha3")
_MASS_DEADLINE = 120.0


class TaintToggles(ScenarioSpec):
    """NoSchedule, then NoExecute, on ever more devices; and a mass of pods that is evicted at once."""

    taints: ClassVar[bool] = True

    kind: Literal["taint-toggles"]
    shares: list[float] = pydantic.Field(default=[0.1, 0.3, 1.0], min_length=1)
    """Shares of the simulated nodes whose devices are tainted, one after the other."""
    on: float = pydantic.Field(default=10.0, gt=0)
    """Seconds that a taint stays."""
    off: float = pydantic.Field(default=10.0, gt=0)
    """Seconds between two taints."""
    settle: float = pydantic.Field(default=2.0, gt=0)
    """Seconds that the scheduler has to see a rule, before an allocation counts as wrong."""
    evict: int = pydantic.Field(default=100, ge=0, le=10_000)
    """Pods that are evicted at once, in a trial of their own; 0 leaves it out."""

    def check(self, plan: Plan) -> None:
        """The taints fit into the time, and the mass on the nodes."""
        for share in self.shares:
            if not 0 < share <= 1:
                raise UsageError(
                    f"{plan.source}: scenario.shares: expected shares above 0 up to 1, not {share:g}"
                )
        if self.evict > plan.free_devices:
            raise UsageError(
                f"{plan.source}: scenario.evict: {self.evict} pods need a device each; "
                f"{plan.free_devices} are free"
            )
        if not any(shape.tolerance is Tolerance.NONE and shape.claims_per_pod for shape in plan.main.pods):
            raise UsageError(f"{plan.source}: pods: expected one whose claims don't tolerate the taints")

    def make(self) -> Scenario:
        """One run's."""
        return _Toggling(self)


@dataclass(frozen=True)
class Step:
    """One taint: for so long after the start."""

    effect: str
    share: float
    begin: float
    end: float


def steps(spec: TaintToggles, trial: Trial) -> list[Step]:
    """When which taints are in force, in seconds from the start; times shrink with the trial."""
    effects = [(effect, share) for effect in ("NoSchedule", "NoExecute") for share in spec.shares]
    whole = len(effects) * (spec.on + spec.off)
    factor = trial.seconds / whole
    made = []
    for index, (effect, share) in enumerate(effects):
        begin = trial.warm_up + factor * (index * (spec.on + spec.off) + spec.off / 2)
        made.append(Step(effect, share, begin, begin + factor * spec.on))
    return made


class _Toggling(BaseScenario):
    def __init__(self, spec: TaintToggles) -> None:
        self._spec = spec
        self._witness = Witness()
        self._followers: list[Follower] = []
        self._rules: list[str] = []
        self._resource = DEVICE_TAINT_RULES
        self._mass_at: float | None = None

    def prepare(self, ground: Ground) -> None:
        super().prepare(ground)
        self._resource = served(ground.kube)

    def trials(self) -> Sequence[Trial]:
        """The churn under the taints; then the mass eviction."""
        main = self.ground.plan.main
        if not self._spec.evict:
            return (main,)
        intolerant = tuple(
            shape for shape in main.pods if shape.tolerance is Tolerance.NONE and shape.claims_per_pod
        )
        mass = Trial(
            name=_MASS,
            pods=intolerant[:1],
            rate=0.0,
            warm_up=0.0,
            seconds=_mass_seconds(self._spec.evict),
            hold=3600.0,
            drain=main.drain,
            bursts=(Burst(at=0.0, pods=self._spec.evict),),
            saturates=True,
        )
        return (main, mass)

    def before(self, trial: Trial) -> None:
        self._stop_following()
        self._witness = Witness(tolerating=frozenset(_tolerant(trial)))
        namespaces = list(self.ground.namespaces.values())
        self._followers = [
            Follower(self.ground.observer, RESOURCE_CLAIMS, namespaces, self._witness.claim),
            Follower(self.ground.observer, PODS, namespaces, self._witness.pod),
        ]
        for follower in self._followers:
            follower.start()

    def act(self, trial: Trial, clock: Clock) -> None:
        """Taint and untaint, or evict the mass."""
        if trial.name == _MASS:
            self._evict(clock)
            return
        for number, step in enumerate(steps(self._spec, trial)):
            if not clock.until(step.begin):
                break
            span = self._taint(number, step)
            clock.until(step.end)
            span.end = time.time()  # before the rules go: what is allocated after that is right
            self._untaint()
        self._untaint()

    def judge(self, done: Done) -> Findings:
        self._untaint()
        findings = Findings()
        witness = self._witness
        findings.figures["evicted"] = figure(len(witness.evicted))
        findings.figures["wrongly-allocated"] = figure(len(witness.wrong))
        findings.figures["tolerating-evicted"] = figure(self._tolerating_evicted(done))
        findings.notes += witness.wrong[:20]
        findings.notes += [
            f"pod {each} was evicted, and tolerates" for each in witness.tolerating_evicted[:20]
        ]
        for cut in (cut for follower in self._followers for cut in follower.cuts):
            findings.faults.append(f"evictions may have been missed: {cut}")
        counted = done.server.evictions if done.server else None
        if counted is None and not (done.server and CONTROLLER_MANAGER in done.server.unread):
            findings.faults.append("the controller manager's counter of evictions could not be read")
        if counted is not None:
            off = evictions_off(
                counted, len(witness.evicted), done.report.raced_evictions, len(witness.crossed)
            )
            findings.figures["evictions-off"] = figure(off)
        if done.trial.name == _MASS:
            self._judge_mass(findings, counted)
        return findings

    def clean(self) -> None:
        self._stop_following()
        self._untaint()

    def _tolerating_evicted(self, done: Done) -> int:
        """The ledger has those that nobody else deleted; the witness sees the others, too."""
        causes = done.report.causes_by_kind
        ledger = sum(causes.get(name, {}).get(Cause.EVICTED, 0) for name in _tolerant(done.trial))
        return max(ledger, len(self._witness.tolerating_evicted))

    def _judge_mass(self, findings: Findings, counted: int | None) -> None:
        if self._mass_at is None:
            findings.faults.append("the mass of pods was not bound in time: nothing was evicted")
            return
        delays = sorted(at - self._mass_at for at in self._witness.evicted.values())
        size = self._spec.evict
        findings.figures["mass.pods"] = figure(len(delays))
        for share in (50, 99):
            if delays:
                value = delays[math.ceil(len(delays) * share / 100) - 1]
                findings.figures[f"mass.p{share}"] = figure(value, "s", at_least=len(delays) < size)
        right = counted == len(delays) == size
        if counted is None:
            message = f"{len(delays)} of {size} pods were deleted; what the controller counted isn't known"
            findings.requirements.append(requirement("TNT-16", Result.BLOCKED, message))
            return
        findings.requirements.append(
            requirement(
                "TNT-16",
                Result.PASS if right else Result.FAIL,
                ""
                if right
                else f"expected: {size} pods deleted and counted\n"
                f"observed: {len(delays)} deleted, {counted} counted",
                **{name: value for name, value in findings.figures.items() if name.startswith("mass.")},
            )
        )

    def _evict(self, clock: Clock) -> None:
        """Once every pod of the mass has its device, taint all of them."""

        def placed() -> bool:
            pods = self.ground.kube.list(PODS, self._mass_namespace())
            return sum(1 for pod in pods if pod["spec"].get("nodeName")) >= self._spec.evict

        while not placed():
            if not clock.pause(0.5):
                return
        self.ground.say(f"{self._spec.evict} pods are in place: all devices get a NoExecute taint")
        self._mass_at = time.time()
        self._create("mass", {"driver": self.ground.driver}, "NoExecute")
        while len(self._witness.evicted) < self._spec.evict:
            if time.time() > self._mass_at + _MASS_DEADLINE or not clock.pause(0.25):
                return

    def _mass_namespace(self) -> str:
        return self.ground.namespaces[self.trials()[1].pods[0].namespaces[0]]

    def _taint(self, number: int, step: Step) -> Tainted:
        nodes = self.ground.simulated[: max(1, round(step.share * len(self.ground.simulated)))]
        self.ground.say(f"{step.effect} on the devices of {len(nodes)} nodes")
        span = Tainted(frozenset(nodes), evicts=time.time() if step.effect == "NoExecute" else math.inf)
        self._witness.tainted.append(span)
        if step.share == 1:
            self._create(f"{number}-all", {"driver": self.ground.driver}, step.effect)
        else:
            for index, node in enumerate(nodes):
                selector = {"driver": self.ground.driver, "pool": node}
                self._create(f"{number}-{index}", selector, step.effect)
        span.begin = time.time() + self._spec.settle
        return span

    def _create(self, suffix: str, selector: Object, effect: str) -> None:
        name = f"{self.ground.prefix}-taint-{suffix}"
        rule = {
            "apiVersion": self._resource.api_version,
            "kind": "DeviceTaintRule",
            "metadata": {"name": name, "labels": dict(self.ground.labels)},
            "spec": {"deviceSelector": selector, "taint": {"key": TAINT_KEY, "effect": effect}},
        }
        self._rules.append(name)
        self.ground.kube.create(self._resource, rule)

    def _untaint(self) -> None:
        while self._rules:
            self.ground.kube.delete(self._resource, self._rules[-1])
            self._rules.pop()

    def _stop_following(self) -> None:
        for follower in self._followers:
            follower.stop()


def served(kube: KubeClient) -> Resource:
    """DeviceTaintRule in the newest version that the cluster serves.

    Raises:
        EnvironmentBlocked: it serves none.
    """
    for version in _VERSIONS:
        resource = Resource(f"resource.k8s.io/{version}", DEVICE_TAINT_RULES.plural, namespaced=False)
        try:
            kube.list(resource)
        except ApiError as error:
            if error.status != 404:
                raise
        else:
            return resource
    raise EnvironmentBlocked("the cluster serves no DeviceTaintRules; they take the gate DRADeviceTaintRules")


def _tolerant(trial: Trial) -> list[str]:
    """Names of the pods whose claims tolerate the taints, and of the claims' templates."""
    return [shape.name for shape in trial.pods if shape.tolerance is not Tolerance.NONE]


def _mass_seconds(pods: int) -> float:
    """Time for the mass to be bound and evicted; the trial ends before, once it is."""
    return 20.0 + pods / 20
