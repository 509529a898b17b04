"""The result of a load run: `load.json` in the run's folder, all that its reports and `compare` read.

Times are seconds unless a name says otherwise; rates are per second.
"""

from __future__ import annotations

import datetime
import enum
import json
from pathlib import Path
from typing import Literal

import pydantic

from harness.errors import ExitCode, UsageError
from harness.redaction import redact_value
from harness.results import Result
from load.books import BookLine, ServerBooks
from load.fingerprint import Fingerprint
from load.model import Cause, Flow, Gap, Requests, Stage, Timeline, Violation

FILE_NAME = "load.json"
RESULT_VERSION = 1
SLOWEST = 20
"""So many pods are in the result with their whole timeline."""


class _Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="ignore")


class Verdict(enum.StrEnum):
    """What a load run ends in."""

    PASS = "PASS"  # noqa: S105 - a verdict, not a password
    FAIL = "FAIL"
    """The numbers can be trusted, and a gate of the profile was not met."""
    INVALID = "INVALID"
    """The numbers can't be trusted; nothing is said about the cluster."""

    @property
    def exit_code(self) -> ExitCode:
        """0, 1 or 3."""
        codes = {Verdict.PASS: ExitCode.PASSED, Verdict.FAIL: ExitCode.FAILED}
        return codes.get(self, ExitCode.BLOCKED)


class Figure(_Model):
    """A number of a run that a gate or a comparison can name."""

    value: float
    unit: str = ""
    """`s`, `/s`, `%`, `B`, or empty for a count."""
    at_least: bool = False
    """The true value may be larger: work that never finished is in it."""


class StageRow(_Model):
    """The latencies of one stage; of censored samples in it the time that they had waited."""

    stage: Stage
    kind: str
    """The kind of pod, empty for all of them together."""
    window: str
    count: int
    censored: int
    """Samples that never came."""
    p50: Figure | None
    p90: Figure | None
    p99: Figure | None
    p999: Figure | None
    max: Figure | None
    """None, each, where there is no sample."""
    p99_low: float | None = None
    p99_high: float | None = None
    """95 % interval of the p99 from this run's own samples; no upper end where they are too few."""
    histogram: str
    """HDR, encoded: see `model.StageSamples`."""
    censored_histogram: str = ""
    """Of the censored samples alone, which are in `histogram` as well."""


class Rates(_Model):
    """Pods per second while arrivals were measured (for a lone burst: until its last pod was bound)."""

    offered: float
    """What the shape asked for."""
    sent: float
    accepted: float
    bound: float
    released: float


class Standing(enum.StrEnum):
    """Where priority and fairness put the generator, from the headers of its own answers."""

    OWN = "own"
    """In the FlowSchema that the run made for it."""
    EXEMPT = "exempt"
    """Past all limits: nothing that is measured so holds for a real client."""
    OTHER = "other"
    UNKNOWN = "unknown"
    """No answer carried the headers."""


class Generator(_Model):
    """How the generator itself did: its own limits must never look like the cluster's."""

    workers: int
    cpu_seconds: float
    """From the start to the last arrival."""
    cpu_share: float | None
    """Of all CPU that the machine used meanwhile, 0 to 1; None if that isn't known, as on other machines."""
    lateness_p50: float
    lateness_p99: float
    lateness_max: float
    standing: Standing
    flow: Flow | None = None
    faults: list[str] = []
    """Reasons why it, or the scenario beside it, does not trust the numbers."""


class Host(_Model):
    """The machine that the run was on, over the arrivals' time."""

    cores: int
    seconds: float
    cpu: float
    """Mean share of all cores that was busy, 0 to 1."""
    cpu_peak: float
    """The busiest ten seconds."""
    steal: float
    """Share that the hypervisor took, 0 to 1."""


class TrialResult(_Model):
    """One run of the generator. Most profiles have one; a sweep has one for each arm."""

    name: str
    settings: dict[str, str] = {}
    """What distinguishes it from the others."""
    saturates: bool = False
    """It was to ask for more than the machine has: that the machine is busy is no reason to distrust it."""
    seconds: float
    intended: int
    causes: dict[Cause, int]
    causes_by_kind: dict[str, dict[Cause, int]] = {}
    causes_by_namespace: dict[str, dict[Cause, int]] = {}
    rates: Rates
    stages: list[StageRow]
    generator: Generator
    requests: list[Requests] = []
    retry_after: dict[str, int] = {}
    host: Host | None = None
    server: ServerBooks | None = None
    books: list[BookLine] = []
    violations: list[Violation] = []
    gaps: list[Gap] = []
    slowest: list[Timeline] = []
    figures: dict[str, Figure] = {}
    """What the scenario measured beside the churn: `recovery`, `raise-to-schedule`."""
    notes: list[str] = []
    """What happened and when: a component was killed, a quota raised."""

    def stage(self, stage: Stage, kind: str = "", window: str = "measured") -> StageRow | None:
        """The row of one stage, if there is one."""
        wanted = (stage, kind, window)
        return next((row for row in self.stages if (row.stage, row.kind, row.window) == wanted), None)


class Check(_Model):
    """One thing that was asked of the run."""

    name: str
    """Such as `send-lateness` or `bound.p99`."""
    trial: str = ""
    """Whose it is; empty for the run as a whole."""
    about: Literal["validity", "gate"]
    ok: bool
    observed: str
    limit: str
    message: str = ""
    """One sentence on what is wrong, if it isn't ok."""
    known: str = ""
    """The upstream issue that explains it, if it isn't ok: then the verdict does not count it."""
    unknown: str = ""
    """Why nobody could measure it; then it says nothing, and is ok."""


class RequirementResult(_Model):
    """A requirement that the profile measures."""

    requirement: str
    result: Result
    message: str = ""
    figures: dict[str, Figure] = {}


class LoadResult(_Model):
    """Everything about one run."""

    version: int = RESULT_VERSION
    run_id: str
    profile: str
    size: str
    limits: str
    """The limit set that was asked for."""
    observed_limits: dict[str, str | None] = {}
    """By component: the requests/s and burst that it allows itself, such as `20/30`; None where that isn't
    known."""
    seed: int
    command: list[str] = []
    started_at: datetime.datetime
    seconds: float
    """From the plan to the end of the clean-up."""
    interrupted: bool = False
    verdict: Verdict
    reasons: list[str]
    """Why it isn't a PASS: every reason."""
    checks: list[Check]
    fingerprint: Fingerprint
    trials: list[TrialResult] = pydantic.Field(min_length=1)
    """The first is the one that a comparison judges: the control of a sweep."""
    figures: dict[str, Figure] = {}
    """What the scenario measured over several trials."""
    requirements: list[RequirementResult] = []
    notes: list[str] = []

    def write(self, run_dir: Path) -> Path:
        """Write `load.json`, whole or not at all."""
        path = run_dir / FILE_NAME
        part = path.with_suffix(".part")
        document = redact_value(self.model_dump(mode="json"))
        part.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        part.replace(path)
        return path


def read(run_dir: Path) -> LoadResult:
    """The result of a finished run.

    Raises:
        UsageError: if the folder holds none, or one of another version.
    """
    path = run_dir / FILE_NAME
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: not the folder of a load run ({error.strerror})") from error
    try:
        result = LoadResult.model_validate_json(content)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "the file"
        raise UsageError(f"{path}: {key}: {first['msg']}") from error
    if result.version != RESULT_VERSION:
        raise UsageError(f"{path}: version: expected {RESULT_VERSION}, got {result.version}")
    return result


def runs_of(place: str) -> list[LoadResult]:
    """The runs of a path or pattern, in the order in which they began.

    Args:
        place: a run's folder, a folder of runs, or a pattern of such folders.

    Raises:
        UsageError: there is no run, or one that can't be read.
    """
    try:
        inside = _folders_of(Path(place))
    except (OSError, ValueError) as error:
        raise UsageError(f"{place}: no path or pattern that can be looked at: {error}") from error
    if not inside:
        raise UsageError(f"{place}: no load run there; expected folders with a {FILE_NAME}")
    return sorted(map(read, inside), key=lambda run: (run.started_at, run.run_id))


def _folders_of(given: Path) -> list[Path]:
    root = Path(given.anchor or ".")
    folders = [given] if given.exists() else root.glob(str(given.relative_to(given.anchor)))
    return [
        path.parent
        for folder in folders
        for path in ([folder / FILE_NAME] if (folder / FILE_NAME).exists() else folder.glob(f"*/{FILE_NAME}"))
    ]
