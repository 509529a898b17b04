"""A run as the reports see it: its events folded into requirements, checks, clusters and a verdict."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from harness import events
from harness.errors import ExitCode, UsageError
from harness.results import Result, worst

UNFINISHED = "unfinished"
"""The status of a check, or of a requirement, that was to be run and has no result."""

STATUSES: tuple[str, ...] = (
    Result.FAIL,
    Result.ERROR,
    UNFINISHED,
    Result.EXPECTED_FAIL,
    Result.BLOCKED,
    Result.SKIPPED,
    Result.UNSUPPORTED,
    Result.NOT_COVERED,
    Result.PASS,
)
"""Every status, in the order in which a reader wants to see them."""

_NAMED = 6
"""How many requirements one sentence names."""


def verdict(
    results: Iterable[Result], *, faults: int = 0, blocked_musts: int = 0, unfinished: int = 0
) -> ExitCode:
    """Say what a run comes to. The first rule that holds decides:

    1. `FAILED` (1): a check failed. A broken promise is news even where the harness had trouble as well.
    2. `HARNESS_ERROR` (4): a check ended in error, or there was a fault outside any check.
    3. `BLOCKED` (3), the run is incomplete: no check passed; or a MUST or MUST NOT requirement, or one of
       its checks, is blocked; or a check that was to be run has no result.
    4. `PASSED` (0): at least one check passed, and every other one is a strict expected-fail, blocked for
       a SHOULD or MAY, unsupported or skipped.

    Unsupported, skipped and not-covered never fail a run, and never make it pass either.

    Args:
        results: one for each check that ended.
        faults: how many harness faults there were.
        blocked_musts: how many MUST and MUST NOT requirements are blocked.
        unfinished: how many checks were planned or started and have no result.
    """
    seen = set(results)
    if Result.FAIL in seen:
        return ExitCode.FAILED
    if Result.ERROR in seen or faults:
        return ExitCode.HARNESS_ERROR
    if Result.PASS not in seen or blocked_musts or unfinished:
        return ExitCode.BLOCKED
    return ExitCode.PASSED


@dataclass(frozen=True)
class Cluster:
    """A cluster of the run, and its end if the run took it down."""

    ready: events.ClusterReady
    gone: events.ClusterGone | None = None


@dataclass(frozen=True)
class Requirement:
    """One requirement of the plan with what became of its checks."""

    plan: events.PlannedRequirement
    checks: tuple[events.CheckFinished, ...]
    """In the order in which they ended; a check that ran twice is here twice."""
    unfinished: tuple[str, ...]
    """Node ids that were to be run and have no result."""

    @property
    def id(self) -> str:
        """Such as ER-01."""
        return self.plan.requirement

    @property
    def status(self) -> str:
        """The plan's decision if there is one, else the worst of the checks, else `UNFINISHED`.

        A check without a result can hide anything, so only a fail or an error stands beside it.
        """
        if self.plan.decision is not None:
            return self.plan.decision
        result = worst(check.result for check in self.checks)
        if self.unfinished and result not in (Result.FAIL, Result.ERROR):
            return UNFINISHED
        return result

    @property
    def is_must(self) -> bool:
        """Whether its level is MUST or MUST NOT."""
        return self.plan.level.upper().startswith("MUST")

    @property
    def is_blocked(self) -> bool:
        """Whether the plan, or any one of its checks, says blocked."""
        return Result.BLOCKED in {self.plan.decision, *(check.result for check in self.checks)}

    @property
    def passed(self) -> int:
        """How many of its checks passed."""
        return sum(check.result == Result.PASS for check in self.checks)

    @property
    def total(self) -> int:
        """How many checks ended, were to be run, or (where the plan decided) would have been."""
        return len({*self.plan.checks, *(check.check for check in self.checks)})

    @property
    def seconds(self) -> float:
        """Time spent in its checks."""
        return sum(check.seconds for check in self.checks)


@dataclass(frozen=True)
class Area:
    """The checks of one area, and the time that they took."""

    name: str
    checks: tuple[events.CheckFinished, ...]

    @property
    def seconds(self) -> float:
        """Time spent in its checks; several ran at once."""
        return sum(check.seconds for check in self.checks)

    @property
    def elapsed(self) -> float:
        """From the start of its first check to the end of its last."""
        begun = min(check.at - datetime.timedelta(seconds=check.seconds) for check in self.checks)
        return (max(check.at for check in self.checks) - begun).total_seconds()


@dataclass(frozen=True)
class Run:
    """Everything that a report needs."""

    started: events.RunStarted
    requirements: tuple[Requirement, ...]
    """In the order of the plan."""
    checks: tuple[events.CheckFinished, ...]
    unfinished: tuple[str, ...]
    """Node ids of checks that were planned or started and have no result."""
    clusters: tuple[Cluster, ...]
    faults: tuple[events.HarnessFault, ...]
    finished: events.RunFinished | None
    """None for a run that was killed, or that still goes on."""
    last_at: datetime.datetime

    @classmethod
    def from_events(cls, all_events: Iterable[events.Event]) -> Run:
        """Fold the events of one run, complete or cut off anywhere.

        Raises:
            UsageError: if no event says that a run started.
        """
        log = list(all_events)
        started = next((event for event in log if isinstance(event, events.RunStarted)), None)
        if started is None:
            raise UsageError("the events hold no run-started event: expected it as the first one")
        checks = tuple(event for event in log if isinstance(event, events.CheckFinished))
        requirements = _requirements(log, checks)
        return cls(
            started=started,
            requirements=requirements,
            checks=checks,
            unfinished=_unfinished(log, requirements, checks),
            clusters=_clusters(log),
            faults=tuple(event for event in log if isinstance(event, events.HarnessFault)),
            finished=next((event for event in log if isinstance(event, events.RunFinished)), None),
            last_at=log[-1].at,
        )

    @property
    def seconds(self) -> float:
        """How long the run took, or, for one that was cut off, how far its events reach."""
        if self.finished is not None:
            return self.finished.seconds
        return max(0.0, (self.last_at - self.started.at).total_seconds())

    @property
    def blocked_musts(self) -> tuple[Requirement, ...]:
        """The MUST and MUST NOT requirements that are blocked, wholly or in one of their checks."""
        return tuple(item for item in self.requirements if item.is_must and item.is_blocked)

    @property
    def verdict(self) -> ExitCode:
        """What the events so far come to by the rules of `verdict`; a run ends with this exit code."""
        return verdict(
            (check.result for check in self.checks),
            faults=len(self.faults),
            blocked_musts=len(self.blocked_musts),
            unfinished=len(self.unfinished),
        )

    @property
    def exit_code(self) -> ExitCode:
        """The verdict to report. What the run itself said at its end can only take a pass away.

        A run that never said anything at its end is incomplete.
        """
        if self.verdict is not ExitCode.PASSED:
            return self.verdict
        if self.finished is None:
            return ExitCode.BLOCKED
        recorded = self.finished.exit_code
        return ExitCode(recorded) if recorded in list(ExitCode) else ExitCode.HARNESS_ERROR

    @property
    def requirement_counts(self) -> Mapping[str, int]:
        """How many requirements have each status, in the order of `STATUSES`, without zeros."""
        return _counts(item.status for item in self.requirements)

    @property
    def check_counts(self) -> Mapping[str, int]:
        """How many checks have each status, in the order of `STATUSES`, without zeros."""
        return _counts([*(check.result for check in self.checks), *(UNFINISHED for _ in self.unfinished)])

    def with_status(self, *statuses: str) -> tuple[Requirement, ...]:
        """The requirements that have one of these statuses."""
        return tuple(item for item in self.requirements if item.status in statuses)

    @property
    def areas(self) -> tuple[Area, ...]:
        """The areas of which checks ended, by name."""
        by_name: dict[str, list[events.CheckFinished]] = {}
        for check in self.checks:
            by_name.setdefault(self.area_of(check.check, check.requirements), []).append(check)
        return tuple(Area(name, tuple(by_name[name])) for name in sorted(by_name))

    def area_of(self, check: str, requirements: Sequence[str]) -> str:
        """The area of a check: that of its first known requirement, else the folder of its file."""
        areas = {item.id: item.plan.area for item in self.requirements}
        return next((areas[item] for item in requirements if item in areas), folder(check))

    def reasons(self) -> list[str]:
        """Why the verdict is what it is, one short sentence each."""
        counts = self.check_counts
        names = [item.id for item in self.blocked_musts]
        blocked = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if names[_NAMED:] else "")
        said = [
            (counts.get(Result.FAIL, 0), f"{_many(counts.get(Result.FAIL, 0), 'check')} failed"),
            (counts.get(Result.ERROR, 0), f"{_many(counts.get(Result.ERROR, 0), 'check')} ended in error"),
            (len(self.faults), f"{_many(len(self.faults), 'fault')} of the harness itself"),
            (not counts.get(Result.PASS), "no check passed"),
            (len(names), f"{_many(len(names), 'MUST requirement')} blocked: {blocked}"),
            (len(self.unfinished), f"{_many(len(self.unfinished), 'check')} without a result"),
            (self.finished is None, "the run did not finish"),
        ]
        found = [text for holds, text in said if holds]
        if not found and self.exit_code is not ExitCode.PASSED:
            found.append(f"the run itself ended with exit code {self.exit_code.value}")
        return found or [f"all {_many(counts[Result.PASS], 'passed check')} kept their promise"]


def folder(check: str) -> str:
    """The area folder in a node id: `taints` in `suites/taints/test_rule.py::test_it`."""
    return PurePosixPath(check.partition("::")[0]).parent.name or "other"


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _counts(statuses: Iterable[str]) -> dict[str, int]:
    counted = Counter(str(status) for status in statuses)
    return {str(status): counted[status] for status in STATUSES if counted[status]}


def _requirements(
    log: Sequence[events.Event], checks: Sequence[events.CheckFinished]
) -> tuple[Requirement, ...]:
    planned = {
        item.requirement: item
        for event in log
        if isinstance(event, events.PlanMade)
        for item in event.requirements
    }
    for check in checks:
        for name in check.requirements:
            planned.setdefault(name, _unplanned(name, check))
    ended = {check.check for check in checks}
    return tuple(
        Requirement(
            plan=item,
            checks=tuple(c for c in checks if item.requirement in c.requirements or c.check in item.checks),
            unfinished=() if item.decision else tuple(name for name in item.checks if name not in ended),
        )
        for item in planned.values()
    )


def _unplanned(name: str, check: events.CheckFinished) -> events.PlannedRequirement:
    """A result is never dropped, even where the plan of a cut-off run is missing."""
    return events.PlannedRequirement(
        requirement=name, level="", owner="", text="(not in the plan)", source="", area=folder(check.check)
    )


def _unfinished(
    log: Sequence[events.Event],
    requirements: Sequence[Requirement],
    checks: Sequence[events.CheckFinished],
) -> tuple[str, ...]:
    ended = {check.check for check in checks}
    names = [name for item in requirements for name in item.unfinished]
    names += [event.check for event in log if isinstance(event, events.CheckStarted)]
    return tuple(name for name in dict.fromkeys(names) if name not in ended)


def _clusters(log: Sequence[events.Event]) -> tuple[Cluster, ...]:
    clusters: list[Cluster] = []
    for event in log:
        if isinstance(event, events.ClusterReady):
            clusters.append(Cluster(event))
        elif isinstance(event, events.ClusterGone):
            for index, cluster in enumerate(clusters):
                if cluster.ready.name == event.name and cluster.gone is None:
                    clusters[index] = Cluster(cluster.ready, event)
                    break
    return tuple(clusters)
