"""The seam between a load run and what happens beside its churn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

import pydantic

from clusters.interface import Cluster, ClusterProvider
from harness.kube import KubeClient
from harness.results import Result
from load.model import QuotaChange, Snapshot, WorkerReport
from load.naming import Names
from load.profiles.trial import Trial

if TYPE_CHECKING:
    from load.books import ServerBooks
    from load.profiles.plan import Plan
    from load.result import Figure, RequirementResult


class ScenarioSpec(pydantic.BaseModel):
    """The part `scenario` of a profile; each kind has a model of its own."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    mixed: ClassVar[bool] = False
    """Whether some nodes serve extended resources without a claim."""
    taints: ClassVar[bool] = False
    """Whether devices get taints, which the pods that fill the nodes have to bear."""
    one_rate: ClassVar[bool] = False
    """Whether it divides or compares trials by their one rate, so that their load can't have stages."""

    starves: ClassVar[bool] = False
    """Whether it takes seats away on purpose, so that the API server's own latency is no promise."""

    kind: str
    length: float = pydantic.Field(default=1.0, gt=0)
    """By what factor the user stretches or shortens the run; set by the runner."""

    def arm_names(self) -> tuple[str, ...]:
        """The arms of a sweep, in order, its control first; none if it isn't one."""
        return ()

    def needs_nodes(self, plan: Plan) -> bool:
        """Whether it goes into nodes' own folders, or squeezes what runs on them."""
        return False

    def check(self, plan: Plan) -> None:
        """Refuse what can't be with this plan.

        Raises:
            UsageError: naming the key.
        """

    def make(self) -> Scenario:
        """The scenario itself, for one run."""
        raise NotImplementedError


@dataclass(frozen=True)
class Ground:
    """Where a scenario acts, and as whom."""

    plan: Plan
    cluster: Cluster
    provider: ClusterProvider
    setup: KubeClient
    """The run's set-up identity: makes and changes what the scenario needs."""
    observer: KubeClient
    """The run's observer: watches, in an exempt flow."""
    admin: KubeClient
    """The user's own credentials, for what the run's identities may not do."""
    names: Names
    seed: int
    namespaces: Mapping[str, str]
    """The run's namespaces by the profile's names for them."""
    driver: str
    """Whose devices the pods get."""
    simulated: Sequence[str]
    """Names of the simulated nodes."""
    sender_schema: str
    """Name of the generator's own FlowSchema."""
    restart: Callable[[str], None]
    """Restarts a component as it was started, with the run's client-side limits.

    Raises `EnvironmentBlocked` where the cluster's provider can't.
    """
    say: Callable[[str], None]
    """Tells the person who watches, and the trial's notes."""

    @property
    def kube(self) -> KubeClient:
        """The client for changes."""
        return self.setup

    @property
    def prefix(self) -> str:
        """Begins the name of every object that the run makes; without a hyphen at its end."""
        return self.names.prefix.rstrip("-")

    @property
    def labels(self) -> Mapping[str, str]:
        """On every object that the run makes."""
        return self.names.labels


class Clock(Protocol):
    """A trial's time, for what happens beside it."""

    def elapsed(self) -> float:
        """Seconds since the generator's start; negative before."""
        ...

    def until(self, elapsed: float) -> bool:
        """Wait for that moment; False if the trial is over before."""
        ...

    def pause(self, seconds: float) -> bool:
        """Wait for so long; False if the trial is over before."""
        ...

    @property
    def over(self) -> bool:
        """Whether the generator has ended, or is to."""
        ...


@dataclass(frozen=True)
class Done:
    """A trial that has been, with what was measured."""

    trial: Trial
    report: WorkerReport
    server: ServerBooks | None
    """None if the servers could not be read."""
    snapshots: Sequence[Snapshot]
    folder: Path
    """The trial's own folder."""


@dataclass
class Findings:
    """What a scenario has to say about one trial, or about the whole run."""

    figures: dict[str, Figure] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    """What distinguishes the trial from the others."""
    notes: list[str] = field(default_factory=list)
    requirements: list[RequirementResult] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Reasons why the numbers can't be trusted."""


class Scenario(Protocol):
    """What happens beside the churn. The runner calls the methods in this order; `act` runs in a thread."""

    def prepare(self, ground: Ground) -> None:
        """Make what it needs, once, before the first trial; everything carries the run's labels.

        Raises:
            EnvironmentBlocked: the cluster can't have it.
        """
        ...

    def next_trial(self, done: Sequence[Done]) -> Trial | None:
        """The trial that comes after those that have been; None ends the run."""
        ...

    def before(self, trial: Trial) -> None:
        """Right before a trial's generator starts."""
        ...

    def act(self, trial: Trial, clock: Clock) -> None:
        """Beside the trial's load, in a thread; returns when there is no more to do or `clock.over`."""
        ...

    def quota(self, trial: Trial) -> Mapping[str, int]:
        """By namespace (its full name): the most devices that live claims may hold there at any instant."""
        ...

    def quota_changes(self, trial: Trial) -> Sequence[QuotaChange]:
        """What becomes of `quota` while the trial goes on."""
        ...

    def judge(self, done: Done) -> Findings:
        """What it says about a trial, after its drain."""
        ...

    def conclude(self, done: Sequence[Done]) -> Findings:
        """What it says about all of them together, at the end."""
        ...

    def clean(self) -> None:
        """Take away what it made; called in any case, also half-way."""
        ...


def requirement(name: str, result: Result, message: str = "", **figures: Figure) -> RequirementResult:
    """A requirement's result."""
    from load.result import RequirementResult

    return RequirementResult(requirement=name, result=result, message=message, figures=figures)
