"""Makes the result of a run from what its trials came to, also of a run that ended early."""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness import events
from harness.results import Result, worst
from harness.revision import revision
from load.fingerprint import Fact, Fingerprint
from load.limits import Limits
from load.profiles.plan import Plan
from load.request import LoadRequest
from load.result import LoadResult, RequirementResult, TrialResult, Verdict
from load.scenarios.interface import Findings
from load.trials import Finished
from load.verdict import Judgement, judge

_CONTENT = {"pools", "devices_per_node", "fill", "conduct", "last_stage", "max_in_flight"}


@dataclass
class Progress:
    """What there is of a run so far."""

    finished: list[Finished] = field(default_factory=list)
    conclusion: Findings = field(default_factory=Findings)
    fingerprint: Fingerprint | None = None
    limits: Mapping[str, Limits | None] = field(default_factory=dict)
    """By component: what it ran with."""
    faults: list[str] = field(default_factory=list)
    """Why the run ended early, or what else says that nothing is to be said."""
    interrupted: bool = False


def conclude(
    request: LoadRequest, plan: Plan, progress: Progress, started: datetime.datetime, seconds: float
) -> LoadResult:
    """The result of a run, with its verdict.

    Args:
        request: what was asked for.
        plan: what was to be done.
        progress: what was; at least one trial is finished.
        started: when the run began.
        seconds: how long it took in all.
    """
    assert progress.fingerprint is not None, "taken before the first trial"
    findings = [each.findings for each in progress.finished] + [progress.conclusion]
    trials = [each.result for each in progress.finished]
    wanted = plan.profile.requirements
    requirements = merged(
        [found for each in findings for found in each.requirements if found.requirement in wanted]
    )
    faults = [*progress.faults, *progress.conclusion.faults]
    if progress.interrupted:
        faults.insert(0, "the run was interrupted: not all of it was done")
    judgement = judge(
        trials,
        progress.conclusion.figures,
        plan.criteria,
        requirements,
        stated=[each.measure for each in plan.profile.criteria],
        faults=faults,
        api_latency=plan.promises_api_latency,
    )
    return LoadResult(
        run_id=request.run_dir.name,
        profile=plan.profile.name,
        size=plan.size,
        limits=plan.limits,
        observed_limits={
            name: None if limit is None else str(limit) for name, limit in progress.limits.items()
        },
        seed=request.seed,
        command=list(request.command),
        started_at=started,
        seconds=round(seconds, 2),
        interrupted=progress.interrupted,
        verdict=judgement.verdict,
        reasons=judgement.reasons,
        checks=judgement.checks,
        fingerprint=progress.fingerprint,
        trials=trials,
        figures=progress.conclusion.figures,
        requirements=trusted(requirements, judgement),
        notes=[*progress.conclusion.notes, *_left_out(plan), *_unknown_limits(progress), *unknown(trials)],
    )


def _left_out(plan: Plan) -> list[str]:
    if not plan.left_out:
        return []
    return [f"left out, with what is asked of them, for want of nodes here: {', '.join(plan.left_out)}"]


def _unknown_limits(progress: Progress) -> list[str]:
    names = sorted(name for name, limit in progress.limits.items() if limit is None)
    return [f"limits of {', '.join(names)} not known"] if names else []


def unknown(trials: Sequence[TrialResult]) -> list[str]:
    """Notes on what nobody could read, and why."""
    books = [trial.server for trial in trials if trial.server]
    unread = sorted({name for each in books for name in each.unread})
    notes = []
    if unread:
        notes.append(f"metrics out of reach, so what they counted is not known: {', '.join(unread)}")
    replicas = max((each.api_servers for each in books), default=1)
    if replicas > 1:
        notes.append(f"there are {replicas} API servers, and each counts only what it answered itself")
    return notes


def trusted(found: Sequence[RequirementResult], judgement: Judgement) -> list[RequirementResult]:
    """The results as they may be told: an INVALID run says nothing about any requirement."""
    if judgement.verdict is not Verdict.INVALID:
        return list(found)
    told = []
    for each in found:
        message = f"the run is INVALID: {judgement.reasons[0]}; what was seen would be a {each.result}"
        told.append(each.model_copy(update={"result": Result.BLOCKED, "message": message}))
    return told


def merged(found: Sequence[RequirementResult]) -> list[RequirementResult]:
    """One result for each requirement; of several (one a trial) the worst."""
    made = []
    for name in sorted({each.requirement for each in found}):
        mine = [each for each in found if each.requirement == name]
        result = worst(each.result for each in mine)
        made.append(next(each for each in mine if each.result is result))
    return made


def shape(plan: Plan, processes: int, *, elsewhere: bool = False) -> dict[str, Fact]:
    """What the load is, for the fingerprint; `elsewhere` if its processes are on other machines."""
    return {
        **({"elsewhere": True} if elsewhere else {}),
        "profile": plan.profile.name,
        "size": str(plan.size),
        "limits": str(plan.limits),
        "rate": plan.main.rate,
        "seconds": plan.main.seconds,
        "hold": plan.main.hold,
        "prefill": plan.sizing.prefill,
        "arrivals": str(plan.profile.arrivals),
        "processes": processes,
        "warm-up": plan.main.warm_up,
        "content": content(plan),
    }


def content(plan: Plan) -> str:
    """What else is sent, and what happens beside it, as a digest: a profile's name says nothing of its text.

    What is asked of the numbers is left out, so is what comes after the main trial.
    """
    profile, main = plan.profile, plan.main
    stages = [stage.model_dump(mode="json") for stage in main.stages]
    said = {
        **({"stages": stages} if stages else {}),
        "pods": [shape.model_dump(mode="json") for shape in main.pods],
        "bursts": [burst.model_dump(mode="json") for burst in main.bursts],
        "scenario": plan.scenario.model_dump(mode="json", exclude={"length"}),
        "profile": profile.model_dump(mode="json", include=_CONTENT),
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:12]


def run_started(request: LoadRequest, plan: Plan) -> events.RunStarted:
    """The first event of a run."""
    running = revision()
    return events.RunStarted(
        at=events.now(),
        run_id=request.run_dir.name,
        suite_version=importlib.metadata.version("dra-harness"),
        suite_commit=running.commit,
        suite_dirty=running.dirty,
        catalogue_digest="",
        command=list(request.command),
        seed=request.seed,
        areas=[f"load: {plan.profile.name}"],
    )


def check_finished(profile: str, found: RequirementResult) -> events.CheckFinished:
    """The event of a requirement's result."""
    evidence = [
        events.Evidence(title=name, value=f"{value.value:g} {value.unit}".strip())
        for name, value in found.figures.items()
    ]
    return events.CheckFinished(
        at=events.now(),
        check=f"load/{profile}::{found.requirement}",
        requirements=[found.requirement],
        result=found.result,
        seconds=0.0,
        message=found.message,
        evidence=evidence,
    )
