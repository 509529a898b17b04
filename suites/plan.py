"""The plan of a run: for each requirement its checks, or why they are not run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clusters.interface import Profile
from harness.events import PlannedRequirement
from harness.results import Result
from suites.catalogue import Catalogue, Requirement
from suites.checks import Check


@dataclass(frozen=True)
class Target:
    """What the plan is made for: a cluster that is up, or one that would be brought up."""

    kubernetes: str
    profile: Profile
    nodes: int


def make(
    catalogue: Catalogue,
    checks: Sequence[Check],
    terms: Iterable[str],
    target: Target,
    *,
    skip: Iterable[str] = (),
) -> list[PlannedRequirement]:
    """Decide for each selected requirement whether its checks are run.

    Args:
        catalogue: all requirements.
        checks: all checks.
        terms: areas and requirement IDs; everything that has a check, if empty.
        target: the cluster.
        skip: areas and IDs to leave out.

    Raises:
        UsageError: a term is neither an area nor an ID.
    """
    selected = catalogue.select(terms)
    skipped = {requirement.id for requirement in catalogue.select(skip)} if (skip := list(skip)) else set()
    return [_plan(requirement, checks, target, requirement.id in skipped) for requirement in selected]


def _plan(
    requirement: Requirement, checks: Sequence[Check], target: Target, skipped: bool
) -> PlannedRequirement:
    own = [check for check in checks if requirement.id in check.requirements]
    decision, reason = _decide(requirement, own, target, skipped)
    return PlannedRequirement(
        requirement=requirement.id,
        level=requirement.level,
        owner=requirement.owner_letters,
        text=requirement.text,
        source=requirement.source_line,
        area=requirement.area,
        checks=[check.id for check in own],
        decision=decision,
        reason=reason,
    )


def _decide(
    requirement: Requirement, checks: Sequence[Check], target: Target, skipped: bool
) -> tuple[Result | None, str]:
    if skipped:
        return Result.SKIPPED, "left out by --skip"
    if not requirement.holds_on(target.kubernetes):
        return Result.UNSUPPORTED, f"promised since {requirement.since}; the cluster is {target.kubernetes}"
    if not checks:
        return Result.NOT_COVERED, "no check exists yet"
    if requirement.profile.value == Profile.ALPHA and target.profile is not Profile.ALPHA:
        return Result.BLOCKED, f"needs the gates {', '.join(requirement.gates)}: profile {Profile.ALPHA}"
    nodes = max(check.nodes for check in checks)
    if nodes > target.nodes:
        return Result.BLOCKED, f"needs {nodes} real nodes; the cluster has {target.nodes}"
    return None, ""


def to_run(plan: Sequence[PlannedRequirement]) -> list[str]:
    """The node ids to run. A check of two requirements runs if either is to be run."""
    ids = {check for planned in plan if planned.decision is None for check in planned.checks}
    return sorted(ids)
