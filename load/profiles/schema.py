"""The one schema of load profiles; `load/README.md` explains it with an example.

Durations are seconds, rates pods per second. A key that is not here is an error.
"""

from __future__ import annotations

import enum
import math
from typing import Annotated, Any, Self

import pydantic

from load.model import Arrivals, Burst, Conduct, Stage
from load.request import LimitSet, Size

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
MAX_RATE = 5_000.0
"""Pods/s: more than any control plane takes, and than one generator process sends."""

WINDOWS = ("measured", "warm-up")
"""Those that every trial has."""

Name = Annotated[str, pydantic.Field(pattern=DNS_LABEL, max_length=30)]
Rate = Annotated[float, pydantic.Field(gt=0, le=MAX_RATE, allow_inf_nan=False)]
Seconds = Annotated[float, pydantic.Field(gt=0, le=7 * 86_400, allow_inf_nan=False)]
Pause = Annotated[float, pydantic.Field(ge=0, le=7 * 86_400, allow_inf_nan=False)]


class _Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")


class Via(enum.StrEnum):
    """How a pod asks for its devices."""

    TEMPLATE = "template"
    """Claims made from a ResourceClaimTemplate by the claim controller."""
    EXPLICIT = "explicit"
    """The extended resource name that the device class carries; the scheduler makes the claim."""
    IMPLICIT = "implicit"
    """`deviceclass.resource.kubernetes.io/<class>`; the scheduler makes the claim."""
    PLUGIN = "plugin"
    """An extended resource that the nodes advertise as if by a device plugin; no claim, no DRA."""
    PLAIN = "plain"
    """No devices at all."""


class Tolerance(enum.StrEnum):
    """What a claim says about tainted devices."""

    NONE = "none"
    ALWAYS = "always"
    """Tolerates the taint for good."""
    SECONDS = "seconds"
    """Tolerates NoExecute for longer than the scenario's taints last."""


class Place(enum.StrEnum):
    """Where a pod may run."""

    SIMULATED = "simulated"
    """Nodes that exist only in the API."""
    REAL = "real"
    """Nodes with a kubelet, where claims are prepared."""


class PodShape(_Strict):
    """One kind of pod."""

    name: Name
    weight: float = pydantic.Field(default=1.0, gt=0, allow_inf_nan=False)
    """Its share of the arrivals, against the others of a trial."""
    via: Via
    devices: int = pydantic.Field(default=1, ge=1, le=32)
    """Devices of each request; of the extended resource, its amount."""
    requests: int = pydantic.Field(default=1, ge=1, le=32)
    """Requests of each claim (templates only)."""
    claims: int = pydantic.Field(default=1, ge=1, le=8)
    """Claims of each pod (templates only)."""
    cel: str = ""
    """A further CEL selector of each request (templates only)."""
    match: str = ""
    """Attribute whose value all devices of a claim have to share (templates only)."""
    tolerance: Tolerance = Tolerance.NONE
    """Towards tainted devices (templates only)."""
    namespaces: list[Name] = pydantic.Field(default=["churn"], min_length=1)
    """Taken in turn; the run's own name is put before each."""
    place: Place = Place.SIMULATED

    @pydantic.model_validator(mode="after")
    def _only_templates_have_claims_to_shape(self) -> Self:
        if self.via is not Via.TEMPLATE:
            fields = type(self).model_fields
            for key in ("requests", "claims", "cel", "match", "tolerance"):
                if getattr(self, key) != fields[key].default:
                    raise ValueError(f"{key}: only pods with `via: template` have claims to shape")
        return self

    @property
    def devices_per_pod(self) -> int:
        """How many devices a pod holds."""
        return 0 if self.via is Via.PLAIN else self.devices * self.requests * self.claims

    @property
    def claims_per_pod(self) -> int:
        """How many ResourceClaims come into being for a pod."""
        if self.via is Via.TEMPLATE:
            return self.claims
        return 1 if self.via in (Via.EXPLICIT, Via.IMPLICIT) else 0


class Criterion(_Strict):
    """A pass criterion: a measure of the run against a limit. See `load/README.md` for the measures."""

    measure: str = pydantic.Field(pattern=r"^[a-z][a-z0-9.-]*$")
    at_most: float | None = pydantic.Field(default=None, allow_inf_nan=False)
    at_least: float | None = pydantic.Field(default=None, allow_inf_nan=False)
    limits: list[LimitSet] = pydantic.Field(default=list(LimitSet), min_length=1)
    """Limit sets in which it is asked."""
    sizes: list[Size] = pydantic.Field(default=list(Size), min_length=1)
    """Sizes in which it is asked."""
    because: str = ""
    """Where the limit comes from."""
    known: str = pydantic.Field(default="", pattern=r"^(https://.+)?$")
    """An issue upstream that explains why it isn't kept; such a run is no failure."""
    known_until: float | None = pydantic.Field(default=None, allow_inf_nan=False)
    """What the issue explains: no worse values than this one."""

    @pydantic.model_validator(mode="after")
    def _one_limit(self) -> Self:
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError("expected exactly one of at_most and at_least")
        if bool(self.known) != (self.known_until is not None):
            raise ValueError("expected known and known_until together, or neither")
        return self

    def says(self) -> str:
        """The criterion in words."""
        if self.at_most is not None:
            return f"{self.measure} is at most {self.at_most:g}"
        return f"{self.measure} is at least {self.at_least:g}"

    def holds(self, value: float, *, or_more: bool = False) -> bool:
        """Whether a value keeps it; `or_more` says that the true value may be larger than this one."""
        if self.at_most is not None:
            return value <= self.at_most and not or_more
        return self.at_least is not None and value >= self.at_least

    def explained(self, value: float, *, or_more: bool = False) -> bool:
        """Whether a value that doesn't keep it is what the known issue leads to."""
        if self.known_until is None:
            return False
        if self.at_most is not None:
            return value <= self.known_until and not or_more
        return value >= self.known_until


class RateStage(_Strict):
    """A part of the measured time: a step at one rate, or a ramp to it in a straight line."""

    seconds: Seconds
    rate: float = pydantic.Field(ge=0, le=MAX_RATE, allow_inf_nan=False)
    """Pods/s; of a ramp, at its end."""
    start: float | None = pydantic.Field(default=None, ge=0, le=MAX_RATE, allow_inf_nan=False)
    """Pods/s at the beginning of a ramp; a step where it's left out."""
    name: str = pydantic.Field(default="", pattern=rf"{DNS_LABEL}|^$", max_length=30)
    """Of a window of its own, for criteria; stages of one name share it."""

    @pydantic.field_validator("name")
    @classmethod
    def _not_one_that_is_there(cls, name: str) -> str:
        if name in WINDOWS:
            raise ValueError(f"expected another name than those of the windows {' and '.join(WINDOWS)}")
        return name

    @property
    def begins(self) -> float:
        """Pods/s at its beginning."""
        return self.rate if self.start is None else self.start

    def says(self) -> str:
        """The stage in words."""
        rates = f"at {self.rate:g}" if self.start is None else f"from {self.start:g} to {self.rate:g}"
        return f"{self.seconds:g} s {rates} pods/s"


class _Load(_Strict):
    """Pods at some rate, for some time."""

    rate: Rate
    """Offered pods/s; with stages, the highest of them."""
    seconds: Seconds
    """The measured part; with stages, all of them together."""
    stages: list[RateStage] = []
    """What the rate is in the course of the measured part; the same all the time where empty."""

    @pydantic.model_validator(mode="after")
    def _stages_agree(self) -> Self:
        if not self.stages:
            return self
        highest = max(max(stage.begins, stage.rate) for stage in self.stages)
        if not math.isclose(self.rate, highest):
            raise ValueError(f"rate: expected {highest:g}, the highest of its stages, not {self.rate:g}")
        length = sum(stage.seconds for stage in self.stages)
        if not math.isclose(self.seconds, length):
            raise ValueError(f"seconds: expected {length:g}, the length of its stages, not {self.seconds:g}")
        return self


class TrialSpec(_Load):
    """A further, shorter trial after the main one, on the same cluster."""

    name: Name
    pods: list[Name] = pydantic.Field(min_length=1)
    """Names of pod shapes."""
    warm_up: Pause = 2.0
    hold: Pause = 2.0
    drain: Seconds = 30.0


class Sizing(_Load):
    """A profile's amounts for one size of machine."""

    simulated_nodes: int = pydantic.Field(ge=0, le=10_000)
    nodes: int = pydantic.Field(default=1, ge=1, le=16)
    """Real nodes."""
    rate: float = pydantic.Field(ge=0, le=MAX_RATE, allow_inf_nan=False)
    """0 where there are only bursts."""
    warm_up: Pause = 15.0
    hold: Pause = 2.0
    """From a pod's last stage to its deletion."""
    prefill: float = pydantic.Field(default=0.0, ge=0, le=0.99, allow_inf_nan=False)
    """Share of the simulated nodes' devices that other pods hold all the time."""
    drain: Seconds = 60.0
    """After the last arrival; what is unfinished then is censored."""
    bursts: list[Burst] = []
    trials: list[TrialSpec] = []
    """After the main trial, in this order."""
    scenario: dict[str, Any] = {}
    """Put over the profile's `scenario`."""

    @pydantic.model_validator(mode="after")
    def _something_arrives(self) -> Self:
        if not self.rate and not self.bursts:
            raise ValueError("rate: expected more than 0, or bursts")
        return self


class Pools(enum.StrEnum):
    """Whose devices the pods ask for."""

    BUNDLED = "bundled"
    """Those of the bundled driver, which every local cluster has."""
    OWN = "own"
    """Pools that the run publishes for a driver of its own, since it changes them."""


class Fill(enum.StrEnum):
    """How the devices that are in use beforehand lie."""

    SPREAD = "spread"
    """Evenly over all simulated nodes."""
    NODES = "nodes"
    """Whole nodes; the others are empty, so that pods find several devices on one."""


class Profile(_Strict):
    """A load profile: what is asked of a cluster, and what an answer is."""

    name: Name
    title: str = pydantic.Field(min_length=1, max_length=120)
    asks: str = pydantic.Field(min_length=1)
    """The question, in sentences."""
    reports: str = pydantic.Field(min_length=1)
    """What the report says about it, besides what every report says."""
    requirements: dict[str, str] = {}
    """IDs of the catalogue that the profile gives results for, and how."""
    limits: LimitSet = LimitSet.OPEN
    """Limit set, unless the user names another."""
    pools: Pools = Pools.BUNDLED
    devices_per_node: int = pydantic.Field(default=8, ge=1, le=128)
    """Of own pools; the bundled driver's have 8."""
    fill: Fill = Fill.SPREAD
    pods: list[PodShape] = pydantic.Field(min_length=1)
    churn: list[Name] = []
    """Names of the pods that the main trial consists of; all where empty."""
    arrivals: Arrivals = Arrivals.POISSON
    conduct: Conduct = Conduct.COUNT
    last_stage: Stage = Stage.BOUND
    max_in_flight: int = pydantic.Field(default=256, ge=1, le=4096)
    """Requests at a time, of all generator processes together: each has its share of them."""
    saturates: bool = False
    """The main trial asks for more than the machine has: a busy machine doesn't make it INVALID."""
    scenario: dict[str, Any] = {"kind": "quiet"}
    """What happens beside the churn: `kind`, and the keys of that scenario."""
    criteria: list[Criterion] = pydantic.Field(min_length=1)
    sizes: dict[Size, Sizing]

    @pydantic.field_validator("last_stage")
    @classmethod
    def _held_from_there(cls, stage: Stage) -> Stage:
        if stage not in (Stage.BOUND, Stage.RUNNING):
            raise ValueError("expected bound or running")
        return stage

    @pydantic.model_validator(mode="after")
    def _names_are_known(self) -> Self:
        known = [shape.name for shape in self.pods]
        repeated = sorted({name for name in known if known.count(name) > 1})
        if repeated:
            raise ValueError(f"pods: expected each name once, {repeated[0]!r} is repeated")
        if missing := [str(size) for size in Size if size not in self.sizes]:
            raise ValueError(f"sizes: expected {', '.join(Size)}; {', '.join(missing)} is missing")
        mentioned = [("churn", name) for name in self.churn]
        for size, sizing in self.sizes.items():
            for trial in sizing.trials:
                mentioned += [(f"sizes.{size}.trials.{trial.name}.pods", name) for name in trial.pods]
        for key, name in mentioned:
            if name not in known:
                raise ValueError(f"{key}: expected names of pods ({', '.join(known)}), not {name!r}")
        return self

    def shapes(self, wanted: list[str] | tuple[str, ...]) -> tuple[PodShape, ...]:
        """The pod shapes of these names; those of the main trial if there are none."""
        chosen = wanted or self.churn
        return tuple(shape for shape in self.pods if not chosen or shape.name in chosen)
