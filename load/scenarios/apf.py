"""Priority and fairness as an experiment: one victim at a time gets too few seats, for a while, under load.

Each arm is a trial of its own: the load begins, the victim is squeezed, the squeeze ends, and the load goes
on. The first trial is the control arm, with nobody squeezed.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import pydantic

from clusters.metrics import APISERVER
from harness.errors import UsageError
from harness.kube import EVENTS, KubeClient, Resource
from load.model import Cause, Stage
from load.profiles.schema import Place
from load.profiles.trial import Trial
from load.scenarios import apf_requirements
from load.scenarios.aggressor import Aggressor
from load.scenarios.follow import Backlog, Follower
from load.scenarios.interface import Clock, Done, Findings, Scenario, ScenarioSpec
from load.scenarios.occupant import Occupant
from load.scenarios.quiet import BaseScenario
from load.scenarios.readings import figure, quantile, seconds, unfinished
from load.scenarios.squeeze import USERS, Response, Squeeze, Victim
from load.scenarios.squeeze import Place as SqueezePlace

if TYPE_CHECKING:
    from load.profiles.plan import Plan
    from load.result import Figure

CONTROL = "control"
SQUEEZED = "squeezed"
AFTER = "after"
_SELF_REVIEWS = Resource("authentication.k8s.io/v1", "selfsubjectreviews", namespaced=False)
_LATE_FACTOR = 1.2
_LATE_SECONDS = 0.25
"""A pod is late if it waits longer than the control arm's p99 by this factor, and by this much."""
_STARTED_SECONDS = 5.0
"""By when a pod on a real node is to run: Kubernetes' own objective for the p99. The control arm has none."""
_KNEE_FACTOR = 2.0
"""A setting starves its victim if the p99 is more than so many times the control arm's."""


@dataclass(frozen=True)
class Setting:
    """What an arm does to whom."""

    victim: Victim
    response: Response
    shares: int
    aggressor: bool = False

    @property
    def name(self) -> str:
        """Such as `scheduler-reject-1`; `scheduler-reject-1-list` with the aggressor; `scheduler-shut`."""
        if not self.shares:
            return f"{self.victim}-shut"
        return f"{self.victim}-{self.response}-{self.shares}" + ("-list" if self.aggressor else "")

    @property
    def stage(self) -> Stage:
        """What its pods have to come to: with a node squeezed, to run there."""
        return Stage.RUNNING if self.victim is Victim.KUBELET else Stage.BOUND


class ApfSweep(ScenarioSpec):
    """Shares x response x victim, some with a LIST aggressor in the victim's level."""

    one_rate: ClassVar[bool] = True
    starves: ClassVar[bool] = True

    kind: Literal["apf-sweep"]
    victims: list[Victim] = pydantic.Field(min_length=1)
    responses: list[Response] = pydantic.Field(min_length=1)
    shares: list[int] = pydantic.Field(min_length=1)
    """Nominal concurrency shares of the level; it borrows nothing."""
    aggressed: tuple[Victim, ...] = ()
    """Victims that get one more arm each: the fewest shares, the first response, and the aggressor."""
    shut: tuple[Victim, ...] = ()
    """Victims that get an arm in which no claim that they make gets through, until they give up."""
    shut_seconds: float = pydantic.Field(default=40.0, gt=0)
    """How long that lasts, at the least. Clients repeat a rejected request ten times."""
    shut_rate: float = pydantic.Field(default=0.5, gt=0)
    """Pods/s of these arms. The more requests a level rejects, the longer it asks clients to wait before each
    try, from 1 s to 32 s: so few are given up after ten seconds."""
    aggressor_threads: int = pydantic.Field(default=4, ge=1, le=64)
    squeezed: float = pydantic.Field(default=10.0, gt=0)
    """Seconds that the squeeze lasts."""
    after: float = pydantic.Field(default=10.0, gt=0)
    """Seconds that the load goes on after it."""
    node_rate: float = pydantic.Field(default=2.0, gt=0)
    """Pods/s of the arms whose victim is a real node's kubelet and driver."""

    def settings(self) -> list[Setting]:
        """All arms but the control."""
        made = [
            Setting(victim, response, shares)
            for victim in self.victims
            if victim is not Victim.KUBELET
            for response in self.responses
            for shares in self.shares
        ]
        aggressed = [*self.aggressed, *(each for each in self.victims if each is Victim.KUBELET)]
        made += [Setting(victim, self.responses[0], min(self.shares), True) for victim in aggressed]
        made += [Setting(victim, Response.REJECT, 0) for victim in self.shut]
        return made

    def arm_names(self) -> tuple[str, ...]:
        """The control first."""
        return (CONTROL, *(setting.name for setting in self.settings()))

    def needs_nodes(self, plan: Plan) -> bool:
        """If a kubelet and its driver are to be squeezed."""
        wanted = [each for each in self.settings() if not plan.arms or each.name in plan.arms]
        return any(setting.victim is Victim.KUBELET for setting in wanted)

    def check(self, plan: Plan) -> None:
        """The arms can be."""
        if wrong := [shares for shares in self.shares if not 1 <= shares <= 1000]:
            raise UsageError(f"{plan.source}: scenario.shares: expected 1 to 1000, not {wrong[0]}")
        real = any(shape.place is Place.REAL for shape in plan.profile.pods)
        if Victim.KUBELET in (*self.victims, *self.aggressed) and not real:
            raise UsageError(f"{plan.source}: scenario.victims: kubelet takes pods with `place: real`")
        if never := [each for each in self.shut if each in (Victim.GENERATOR, Victim.KUBELET)]:
            raise UsageError(f"{plan.source}: scenario.shut: expected kcm or scheduler, not {never[0]}")

    def make(self) -> Scenario:
        """One run's."""
        return _Sweep(self)


class _Sweep(BaseScenario):
    def __init__(self, spec: ApfSweep) -> None:
        self._spec = spec
        self._settings = {setting.name: setting for setting in spec.settings()}
        self._squeeze: Squeeze | None = None
        self._aggressor: Aggressor | None = None
        self._backlog: Backlog | None = None
        self._events: Follower | None = None
        self._witness = apf_requirements.Witness()
        self._released_at: float | None = None
        self._recovered_at: float | None = None
        self._normal = 1.0
        self._outcomes = apf_requirements.Outcomes()
        self._recoveries: list[Figure] = []

    def trials(self) -> Sequence[Trial]:
        """The control arm, and those of the others that are wanted."""
        length = min(1.0, self._spec.length)
        squeezed, after = (max(4.0, each * length) for each in (self._spec.squeezed, self._spec.after))
        phases = ((SQUEEZED, squeezed), (AFTER, after))
        longer = ((SQUEEZED, max(self._spec.shut_seconds, squeezed)), (AFTER, after))
        main = self.ground.plan.main
        trials = [main.again(CONTROL, phases=phases)]
        for name, setting in self._settings.items():
            if self.ground.plan.arms and name not in self.ground.plan.arms:
                continue
            arm = main.again(name, phases=phases if setting.shares else longer)
            if not setting.shares:
                arm = dataclasses.replace(arm, rate=self._spec.shut_rate)
            trials.append(self._on_real_nodes(arm) if setting.victim is Victim.KUBELET else arm)
        return trials

    def _on_real_nodes(self, arm: Trial) -> Trial:
        real = tuple(shape for shape in self.ground.plan.profile.pods if shape.place is Place.REAL)
        return Trial(
            name=arm.name,
            pods=real,
            rate=self._spec.node_rate,
            warm_up=arm.warm_up,
            seconds=arm.seconds,
            hold=arm.hold,
            drain=arm.drain,
            phases=arm.phases,
            last_stage=Stage.RUNNING,
        )

    def before(self, trial: Trial) -> None:
        """Make the arm's level, and look for what the scheduler and the controller say."""
        namespaces = list(self.ground.namespaces.values())
        self._witness = apf_requirements.Witness()
        self._released_at = self._recovered_at = None
        setting = self._settings.get(trial.name)
        running = setting is not None and setting.stage is Stage.RUNNING
        self._backlog = Backlog(self.ground.observer, namespaces, running=running)
        self._events = Follower(self.ground.admin, EVENTS, namespaces, self._witness.event)
        for follower in (self._backlog, self._events):
            follower.start()
        if setting is None:
            return
        place = SqueezePlace(
            self.ground.admin,
            f"{self.ground.prefix}-{trial.name}",
            self.ground.labels,
            namespaces,
            self.ground.sender_schema,
        )
        self._aggressor = Aggressor(place, self._spec.aggressor_threads) if setting.aggressor else None
        occupant = Occupant(place.kube, f"{place.name}-occupant") if not setting.shares else None
        self._squeeze = Squeeze(place, setting.victim, self._users(setting.victim), occupant=occupant)
        self._squeeze.create_level(setting.shares, setting.response)

    def act(self, trial: Trial, clock: Clock) -> None:
        """Squeeze, release, and see how long the backlog takes."""
        if self._squeeze is None or not clock.until(trial.warm_up):
            return
        if self._aggressor:
            self._aggressor.start()
        self._squeeze.on()
        clock.until(trial.warm_up + trial.phases[0][1])
        self._squeeze.off()
        if self._aggressor:
            self._aggressor.stop()
        self._released_at = time.time()
        self._await_recovery(clock, self._settings[trial.name].stage)

    def judge(self, done: Done) -> Findings:
        findings = Findings()
        self._stop_following()
        setting = self._settings.get(done.trial.name)
        if setting is None:
            p99 = quantile(done.report, Stage.BOUND, 0.99)
            self._normal = p99.seconds if p99 else self._normal
            return findings
        findings.settings.update(
            victim=setting.victim,
            response=setting.response,
            shares=str(setting.shares),
            aggressor="yes" if setting.aggressor else "no",
        )
        assert self._squeeze is not None, "before() made it"
        self._note_books(done, findings, self._squeeze.schema, setting)
        for window in (SQUEEZED, AFTER):
            if p99 := quantile(done.report, setting.stage, 0.99, window=window):
                findings.figures[f"{window}.p99"] = seconds(p99)
        self._note_recovery(done, findings)
        self._remove_squeeze()
        return findings

    def conclude(self, done: Sequence[Done]) -> Findings:
        """The knee of each victim and response, and the requirements."""
        findings = Findings()
        findings.requirements += self._outcomes.results()
        if self._recoveries:
            findings.figures["recovery"] = max(self._recoveries, key=lambda each: each.value)
        by_setting = {each.trial.name: each for each in done if each.trial.name in self._settings}
        for victim in self._spec.victims:
            for response in self._spec.responses:
                tried = [
                    (setting.shares, self._starved(by_setting[name]))
                    for name, setting in self._settings.items()
                    if name in by_setting
                    and setting.shares
                    and (setting.victim, setting.response, setting.aggressor) == (victim, response, False)
                ]
                if tried:
                    findings.notes.append(f"{victim}, {response}: {knee(tried)}")
        return findings

    def clean(self) -> None:
        self._stop_following()
        if self._aggressor:
            self._aggressor.stop()
        self._remove_squeeze()

    def _users(self, victim: Victim) -> list[str]:
        if victim is Victim.KUBELET:
            nodes = [f"system:node:{node.name}" for node in self.ground.cluster.nodes]
            return [*nodes, _user_of(KubeClient.from_kubeconfig(self.ground.cluster.driver_kubeconfig))]
        return list(USERS.get(victim, ()))

    def _await_recovery(self, clock: Clock, stage: Stage) -> None:
        """Until no pod from before the release, and none that is later than normal, has yet to come there."""
        assert self._backlog is not None, "before() made it"
        assert self._released_at is not None, "act() set it"
        normal = _STARTED_SECONDS if stage is Stage.RUNNING else self._normal
        late = max(_LATE_FACTOR * normal, normal + _LATE_SECONDS)
        while clock.pause(0.1):
            now = time.time()
            if not self._backlog.waiting(since=max(self._released_at, now - late)):
                self._recovered_at = now
                return

    def _note_books(self, done: Done, findings: Findings, schema: str, setting: Setting) -> None:
        server = done.server
        flows = [each for each in server.apf_flows if each.flow_schema == schema] if server else []
        rejected = None
        if server is None or APISERVER not in server.unread:
            rejected = sum(sum(each.rejected.values()) for each in flows)
            findings.figures["rejected"] = figure(rejected)
            findings.figures["queued"] = figure(sum(each.waited for each in flows))
        findings.figures["unfinished"] = figure(unfinished(done.report))
        refused = done.report.causes.get(Cause.APF_REJECTED, 0)
        findings.figures["generator-429"] = figure(refused)
        if self._aggressor:
            findings.figures["aggressor-429"] = figure(self._aggressor.rejected)
            findings.figures["aggressor-lists"] = figure(self._aggressor.listed)
            if server is not None and rejected is not None:
                findings.faults += self._aggressor.doubts(server.apf_flows)
        self._outcomes.arm(setting.victim, done, self._witness, rejected)

    def _note_recovery(self, done: Done, findings: Findings) -> None:
        if self._released_at is None:
            findings.faults.append("the trial ended before the squeeze did")
        elif self._recovered_at is not None:
            findings.figures["recovery"] = figure(self._recovered_at - self._released_at, "s")
        else:
            waited = done.report.drained_at - self._released_at
            findings.figures["recovery"] = figure(max(0.0, waited), "s", at_least=True)
        if "recovery" in findings.figures:
            self._recoveries.append(findings.figures["recovery"])

    def _starved(self, done: Done) -> bool:
        p99 = quantile(done.report, Stage.BOUND, 0.99, window=SQUEEZED)
        refused = done.report.causes.get(Cause.APF_REJECTED, 0)
        if refused or p99 is None or p99.at_least:
            return True
        return p99.seconds > max(_KNEE_FACTOR * self._normal, self._normal + _LATE_SECONDS)

    def _remove_squeeze(self) -> None:
        if self._squeeze:
            self._squeeze.remove()
        self._squeeze = self._aggressor = None

    def _stop_following(self) -> None:
        for follower in (self._backlog, self._events):
            if follower:
                follower.stop()


def knee(tried: Sequence[tuple[int, bool]]) -> str:
    """In words: the fewest shares that were enough, from shares and whether they starved the victim."""
    enough = [shares for shares, starved in tried if not starved]
    starved = [shares for shares, starved in tried if starved]
    if not enough:
        return f"starved with up to {max(starved)} shares"
    above = [shares for shares in enough if shares > max(starved, default=0)]
    if not above:
        return f"no clear knee: starved with {max(starved)} shares, though not with {max(enough)}"
    least = min(above)
    return f"{least} shares are enough" + (
        f", {max(starved)} are not" if starved else "; none fewer was tried"
    )


def _user_of(client: KubeClient) -> str:
    review = {"apiVersion": _SELF_REVIEWS.api_version, "kind": "SelfSubjectReview"}
    user: str = client.create(_SELF_REVIEWS, review)["status"]["userInfo"]["username"]
    return user
