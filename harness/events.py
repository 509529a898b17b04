"""The typed, versioned events of a run: the only thing that reports read.

A run appends one JSON object per line to `events.ndjson`. Fields are only ever added within a version;
`EVENTS_VERSION` grows when a meaning changes.
"""

from __future__ import annotations

import datetime
from typing import Annotated, Any, Literal

import pydantic

from harness.results import Result

EVENTS_VERSION = 1


class _Event(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="ignore")

    at: datetime.datetime
    """When it happened, UTC."""


class RunStarted(_Event):
    """The first event of every run: what was asked, and by which suite."""

    kind: Literal["run-started"] = "run-started"
    version: int = EVENTS_VERSION
    run_id: str
    suite_version: str
    suite_commit: str | None = None
    suite_dirty: bool = False
    catalogue_digest: str
    """sha256 of the requirement catalogue, hex."""
    command: list[str]
    seed: int
    areas: list[str]


class PlannedRequirement(pydantic.BaseModel):
    """One requirement in the plan. `decision` is None when its checks are to be run."""

    model_config = pydantic.ConfigDict(frozen=True)

    requirement: str
    level: str
    """MUST, MUST NOT, SHOULD or MAY."""
    owner: str
    """Who keeps the promise: letters of requirements (A, S, C, L, D, R, O)."""
    text: str
    source: str
    area: str
    checks: list[str] = []
    """pytest node ids."""
    decision: Result | None = None
    """Why its checks are not run: unsupported, blocked, skipped or not-covered."""
    reason: str = ""


class PlanMade(_Event):
    """Which requirements are in the run, and why each is run or not."""

    kind: Literal["plan-made"] = "plan-made"
    requirements: list[PlannedRequirement]


class ClusterReady(_Event):
    """A cluster is there: brought up by the run, or one that existed."""

    kind: Literal["cluster-ready"] = "cluster-ready"
    name: str
    provider: str
    kubernetes: str
    """Version as the API server says it, such as v1.37.2."""
    profile: str
    nodes: list[str]
    driver: str = ""
    """The driver under test, empty if each check brings its own."""
    programs: str = ""
    """Where Kubernetes' programs came from: build, download or directory; empty if that isn't known."""
    seconds: float
    """From the start of `up` to nodes Ready and slices published; 0 for a cluster that existed."""
    phases: dict[str, float] = {}
    """Seconds of each phase of the bring-up, in order."""


class Evidence(pydantic.BaseModel):
    """One thing that a check saw: any JSON value under a title."""

    model_config = pydantic.ConfigDict(frozen=True)

    title: str
    value: Any


class CheckStarted(_Event):
    """A check began."""

    kind: Literal["check-started"] = "check-started"
    check: str


class CheckFinished(_Event):
    """A check ended, with what was observed on the way."""

    kind: Literal["check-finished"] = "check-finished"
    check: str
    requirements: list[str]
    result: Result
    seconds: float
    message: str = ""
    """Why it isn't a pass: expected and observed, or the missing thing, or the issue link."""
    details: str = ""
    """The traceback, for fail and error."""
    evidence: list[Evidence] = []
    artifacts: list[str] = []
    """Files with diagnostics, relative to the run's folder."""
    worker: str = ""
    created: list[str] = []
    """Objects that the check itself created or was refused, as plural/name or plural/namespace/name."""


class ClusterGone(_Event):
    """The run took its cluster down."""

    kind: Literal["cluster-gone"] = "cluster-gone"
    name: str
    seconds: float


class HarnessFault(_Event):
    """Something of the harness's own went wrong outside any check."""

    kind: Literal["harness-fault"] = "harness-fault"
    message: str


class RunFinished(_Event):
    """The last event: the verdict."""

    kind: Literal["run-finished"] = "run-finished"
    exit_code: int
    seconds: float


Event = Annotated[
    RunStarted
    | PlanMade
    | ClusterReady
    | CheckStarted
    | CheckFinished
    | ClusterGone
    | HarnessFault
    | RunFinished,
    pydantic.Field(discriminator="kind"),
]

_ADAPTER: pydantic.TypeAdapter[Event] = pydantic.TypeAdapter(Event)


def now() -> datetime.datetime:
    """The current time in UTC, as every event carries it."""
    return datetime.datetime.now(datetime.UTC)


def dump(event: Event) -> str:
    """One event as one line of JSON, without the newline."""
    return event.model_dump_json()


def parse(line: str | bytes) -> Event:
    """Read one line of `events.ndjson`.

    Raises:
        pydantic.ValidationError: if the line is no event of this version.
    """
    return _ADAPTER.validate_json(line)
