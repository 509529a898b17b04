"""The plan of a run: for each requirement its checks, or why they are not run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from clusters.driver_host import why_no_driver
from clusters.interface import Cluster, Profile
from harness.events import PlannedRequirement
from harness.results import Result
from suites.catalogue import Catalogue, Requirement
from suites.checks import Check


@dataclass(frozen=True)
class Target:
    """What the plan is made for: a cluster that is up, or one that would be brought up."""

    kubernetes: str
    profile: Profile | None
    """None if the run brings up a cluster of each profile that checks need."""
    nodes: int
    gates: Mapping[str, bool] | None = None
    """Gates that a cluster which is up was made with; None if the run makes clusters as checks need."""
    no_driver: str = ""
    """Why no driver can be started there; empty if it can."""

    @classmethod
    def of(cls, cluster: Cluster) -> Target:
        """A cluster that is up."""
        nodes = len(cluster.nodes) + len(cluster.nodes_elsewhere)
        return cls(cluster.kubernetes, cluster.profile, nodes, cluster.gates, why_no_driver(cluster))


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
        terms: areas and requirement IDs; everything, if empty.
        target: the cluster.
        skip: areas and IDs to leave out.

    Raises:
        UsageError: a term is neither an area nor an ID.
    """
    selected = catalogue.select(terms)
    skipped = {requirement.id for requirement in catalogue.select(skip)} if (skip := list(skip)) else set()
    usable = {check.id for check in checks if _is_usable(check, catalogue, target, skipped)}
    return [_plan(requirement, checks, usable, target, requirement.id in skipped) for requirement in selected]


def _is_usable(check: Check, catalogue: Catalogue, target: Target, skipped: Collection[str]) -> bool:
    """A check of several requirements is judged by all of them, so all have to be promised and wanted."""
    return all(
        name not in skipped and catalogue.get(name).holds_on(target.kubernetes) for name in check.requirements
    )


def _plan(
    requirement: Requirement,
    checks: Sequence[Check],
    usable: Collection[str],
    target: Target,
    skipped: bool,
) -> PlannedRequirement:
    existing = [check for check in checks if requirement.id in check.requirements]
    own = [check for check in existing if check.id in usable]
    decision, reason = _decide(requirement, own, target, skipped)
    if decision is Result.NOT_COVERED and existing:
        decision, reason = Result.SKIPPED, "its checks are for requirements too that are left out here"
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
    alpha = requirement.profile is Profile.ALPHA or any(check.profile is Profile.ALPHA for check in checks)
    if alpha and target.profile is Profile.GA and not _has_gates(requirement, target):
        gates = ", ".join(requirement.gates) or "of its checks"
        return Result.BLOCKED, f"needs the gates {gates}: profile {Profile.ALPHA}"
    if off := _turned_off(requirement, checks, target):
        return Result.BLOCKED, f"needs the gates {off}, which the cluster has off"
    if target.no_driver and all(check.driver for check in checks):
        return Result.BLOCKED, target.no_driver
    if missing := _missing_gates(checks, target):
        return Result.BLOCKED, f"needs a cluster made with {missing}"
    nodes = max(check.nodes for check in checks)
    if nodes > target.nodes:
        return Result.BLOCKED, f"needs {nodes} real nodes; the cluster has {target.nodes}"
    return None, ""


def _has_gates(requirement: Requirement, target: Target) -> bool:
    """Whether a cluster that is no `alpha` one is known to have every gate that a requirement is about."""
    on = {gate for gate, is_on in (target.gates or {}).items() if is_on}
    return bool(requirement.gates) and on >= set(requirement.gates)


def _turned_off(requirement: Requirement, checks: Sequence[Check], target: Target) -> str:
    """Gates of a requirement that a cluster is known to have off, but for those that its checks want so."""
    wanted = {gate for check in checks for gate, _ in check.gates}
    known = target.gates or {}
    return ", ".join(gate for gate in requirement.gates if known.get(gate) is False and gate not in wanted)


def _missing_gates(checks: Sequence[Check], target: Target) -> str:
    if target.gates is None:
        return ""
    needed = {gate for check in checks for gate in check.gates}
    missing = sorted(needed - set(target.gates.items()))
    return ", ".join(f"{gate}={str(on).lower()}" for gate, on in missing)


def to_run(plan: Sequence[PlannedRequirement]) -> list[str]:
    """The node ids to run: those of every requirement that is to be run."""
    return sorted({check for planned in plan if planned.decision is None for check in planned.checks})


@dataclass(frozen=True)
class Group:
    """Checks that share a cluster."""

    profile: Profile
    gates: tuple[tuple[str, bool], ...]
    together: tuple[str, ...]
    """Node ids of checks that may run side by side."""
    alone: tuple[str, ...]
    """Node ids of checks that run one at a time, after the others."""


def groups(ids: Sequence[str], checks: Sequence[Check], target: Target) -> list[Group]:
    """Share checks out to clusters: one for each profile and set of gates, or the target if it is one."""
    by_need: dict[tuple[Profile, tuple[tuple[str, bool], ...]], list[Check]] = {}
    for check in checks:
        if check.id in ids:
            gates = () if target.gates is not None else check.gates
            by_need.setdefault((target.profile or check.profile, gates), []).append(check)
    return [
        Group(
            profile,
            gates,
            together=tuple(check.id for check in members if not check.exclusive),
            alone=tuple(check.id for check in members if check.exclusive),
        )
        for (profile, gates), members in sorted(by_need.items())
    ]
