"""The verdict: first whether the numbers can be trusted, then whether the gates were met."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.results import Result
from load.measures import is_out_of_reach, measure
from load.model import REFUSED, Cause
from load.profiles.schema import Criterion
from load.result import Check, Figure, RequirementResult, Standing, TrialResult, Verdict

MAX_LATENESS = 0.020
"""Seconds from its due time by which 99 % of the pods are sent; else it is the generator that is measured."""
SATURATED_LATENESS = 0.5
"""The same, also of events, for a trial that is meant to saturate the machine: the latencies are seconds."""
MAX_CPU = 0.90
"""Share of the machine: above, generator and control plane take CPU from each other, or others from both."""
_TOLD = 0.005
"""Share of stolen CPU from which on it is named."""

MAX_EVENT_LATENESS = 0.25
"""Seconds by which events may have come late over a gap in a watch: a quarter of the tightest gate, 1 s."""
_API_LATENCY = {"api.single.p99": 1.0, "api.list.p99": 30.0}
"""Seconds, of the API server's SLO: https://github.com/kubernetes/community/tree/master/sig-scalability/slos"""

_FAULTLESS = (*REFUSED, Cause.EVICTED, Cause.VANISHED)
"""No pod of the main trial may end so, unless the profile has a criterion on it."""


@dataclass(frozen=True)
class Judgement:
    """A verdict with its grounds."""

    verdict: Verdict
    reasons: list[str]
    checks: list[Check]


def judge(
    trials: Sequence[TrialResult],
    figures: Mapping[str, Figure],
    criteria: Sequence[Criterion],
    requirements: Sequence[RequirementResult] = (),
    *,
    stated: Collection[str] = (),
    faults: Sequence[str] = (),
    api_latency: bool = False,
) -> Judgement:
    """Come to a verdict.

    Args:
        trials: the first is the main one.
        figures: of the run as a whole.
        criteria: the profile's, for this size and limit set.
        requirements: results that the profile gives.
        stated: measures that the profile has a criterion on, in any size and limit set. What is not stated
            must not happen in the main trial: unfinished pods, refused creates, ...
        faults: reasons of the run as a whole why nothing can be said, such as an interruption.
        api_latency: whether the API server has to keep its SLO in the main trial, unless the profile has
            criteria of its own on that.
    """
    checks = [_fault("run", "", fault) for fault in faults]
    for trial in trials:
        label = trial.name if len(trials) > 1 else ""
        checks += _validity(trial, label)
    stated = {*stated, *(each.measure for each in criteria)}
    criteria = [*_always(stated), *(_slo(stated) if api_latency else ()), *criteria]
    checks += _gates(trials, figures, criteria, stated)
    checks += [_requirement(each) for each in requirements if each.result in (Result.FAIL, Result.ERROR)]
    for about, verdict in (("validity", Verdict.INVALID), ("gate", Verdict.FAIL)):
        reasons = [
            _reason(check) for check in checks if check.about == about and not check.ok and not check.known
        ]
        if reasons:
            return Judgement(verdict, reasons, checks)
    return Judgement(Verdict.PASS, [], checks)


def _reason(check: Check) -> str:
    return f"{check.trial}: {check.message}" if check.trial else check.message


def _fault(name: str, trial: str, message: str) -> Check:
    return Check(
        name=name, trial=trial, about="validity", ok=False, observed=message, limit="", message=message
    )


def _validity(trial: TrialResult, label: str) -> Iterator[Check]:
    """Whether a trial's numbers can be trusted."""
    for name, ok, observed, limit, message in (*_of_generator(trial), *_of_books(trial)):
        said = "" if ok else message
        yield Check(
            name=name, trial=label, about="validity", ok=ok, observed=observed, limit=limit, message=said
        )
    servers = trial.server.faults if trial.server else ["the servers were not read"]
    for fault in (*trial.generator.faults, *servers):
        yield _fault("fault", label, fault)


Tested = tuple[str, bool, str, str, str]
"""Name, whether it's ok, observed, limit, and the message if it isn't."""


def _of_generator(trial: TrialResult) -> Iterator[Tested]:
    generator, host = trial.generator, trial.host
    late = f"{generator.lateness_p99 * 1e3:.1f} ms"
    message = f"the generator sent late: p99 {late} after the due time"
    most = SATURATED_LATENESS if trial.saturates else MAX_LATENESS
    yield "send-lateness", generator.lateness_p99 < most, late, f"< {most * 1e3:.0f} ms", message
    used = host.cpu + host.steal if host else 0.0
    busy = f"{used:.0%}" if host else "not known"
    stolen = f", {host.steal:.0%} by others under its hypervisor" if host and host.steal >= _TOLD else ""
    message = f"the machine was busy: {busy} of its CPU{stolen}"
    message = message if host else "the machine's CPU was not measured"
    limit = 1.01 if trial.saturates else MAX_CPU
    said = "any, it is meant to be busy" if trial.saturates else f"< {MAX_CPU:.0%}"
    yield "host-cpu", host is not None and used < limit, busy, said, message
    dropped = trial.causes.get(Cause.DROPPED_BY_GENERATOR, 0)
    message = f"{dropped} pods were never sent: the generator was at its limit"
    yield "dropped", not dropped, str(dropped), "0", message
    yield "sent", trial.intended > 0, str(trial.intended), "> 0", "no pod came due: nothing was measured"
    standing = generator.standing
    yield "identity", standing is Standing.OWN, standing, Standing.OWN, _STANDINGS[standing]


def _of_books(trial: TrialResult) -> Iterator[Tested]:
    relists = [gap for gap in trial.gaps if gap.relisted]
    message = f"a watch was lost and had to list again: {'; '.join(map(str, relists[:3]))}"
    yield "watch", not relists, f"{len(relists)} relists", "0 relists", message
    most = SATURATED_LATENESS if trial.saturates else MAX_EVENT_LATENESS
    away = [gap for gap in trial.gaps if gap.late > most and not gap.relisted]
    latest = f"{max((gap.late for gap in trial.gaps), default=0.0):.2f} s"
    message = f"a watch was away, and what it missed came late: {'; '.join(map(str, away[:3]))}"
    yield "watch-lateness", not away, latest, f"<= {most:g} s", message
    for line in trial.books:
        if line.binding:
            client, server = _number(line.client), _number(line.server)
            message = f"the books don't balance: {line.name}: {client}, but {server} by {line.source}"
            yield f"books: {line.name}", line.balanced, client, server, message


_STANDINGS = {
    Standing.OWN: "",
    Standing.EXEMPT: "the generator's requests are exempt from priority and fairness",
    Standing.OTHER: "the generator's requests were not in the FlowSchema made for them",
    Standing.UNKNOWN: "no answer said where priority and fairness put the generator's requests",
}


def _number(count: int | None) -> str:
    return "not known" if count is None else str(count)


def _gates(
    trials: Sequence[TrialResult],
    figures: Mapping[str, Figure],
    criteria: Sequence[Criterion],
    stated: Collection[str],
) -> Iterator[Check]:
    for criterion in criteria:
        yield _gate_of(trials, criterion, measure(trials, figures, criterion.measure), "")
    for trial in trials:
        label = trial.name if len(trials) > 1 else ""
        for name in ("violations", "restarts"):
            if not _mentioned(name, stated) or (name == "violations" and trial is not trials[0]):
                criterion = Criterion(measure=name, at_most=0)
                yield _gate_of([trial], criterion, _rest(trial, name, stated), label)


def _rest(trial: TrialResult, name: str, stated: Collection[str]) -> Figure | None:
    """A measure; violations without those of the invariants that have a criterion of their own."""
    if name != "violations":
        return measure([trial], {}, name)
    rest = [each for each in trial.violations if f"{name}.{each.invariant}" not in stated]
    return Figure(value=sum(each.count for each in rest))


def _always(stated: Collection[str]) -> list[Criterion]:
    """What holds for every main trial, as far as the profile does not say otherwise."""
    names = ["unfinished", *(f"causes.{cause}" for cause in _FAULTLESS)]
    return [Criterion(measure=name, at_most=0) for name in names if not _mentioned(name, stated)]


def _slo(stated: Collection[str]) -> list[Criterion]:
    return [
        Criterion(measure=name, at_most=limit, because="the API server's SLO")
        for name, limit in _API_LATENCY.items()
        if not _mentioned(name, stated)
    ]


def _mentioned(name: str, stated: Collection[str]) -> bool:
    cause = name.removeprefix("causes.")
    return any(each == name or each.endswith((f".{name}", f"share.{cause}")) for each in stated)


def _gate_of(trials: Sequence[TrialResult], criterion: Criterion, figure: Figure | None, label: str) -> Check:
    if figure is None and is_out_of_reach(trials, criterion.measure):
        return _out_of_reach(criterion, label)
    return _gate(criterion, figure, label)


def _gate(criterion: Criterion, figure: Figure | None, trial: str) -> Check:
    limit = _limit(criterion)
    name = criterion.measure
    if figure is None:
        return Check(
            name=name,
            trial=trial,
            about="validity",
            ok=False,
            observed="not measured",
            limit=limit,
            message=f"{name} was not measured",
        )
    ok = criterion.holds(figure.value, or_more=figure.at_least)
    observed = (
        f"{'>= ' if figure.at_least else ''}{figure.value:.4g}{' ' if figure.unit else ''}{figure.unit}"
    )
    because = f" ({criterion.because})" if criterion.because else ""
    message = "" if ok else f"{name} is {observed}, expected {limit}{because}"
    explained = not ok and criterion.explained(figure.value, or_more=figure.at_least)
    return Check(
        name=name,
        trial=trial,
        about="gate",
        ok=ok,
        observed=observed,
        limit=limit,
        message=message,
        known=criterion.known if explained else "",
    )


def _out_of_reach(criterion: Criterion, trial: str) -> Check:
    """Where components are somebody else's, what they counted may not be known: no reason for doubt."""
    why = "metrics are out of reach"
    return Check(
        name=criterion.measure,
        trial=trial,
        about="gate",
        ok=True,
        observed=f"not known: {why}",
        limit=_limit(criterion),
        unknown=why,
    )


def _limit(criterion: Criterion) -> str:
    return criterion.says().removeprefix(criterion.measure).removeprefix(" is ")


def _requirement(found: RequirementResult) -> Check:
    failed = found.result is Result.FAIL
    return Check(
        name=found.requirement,
        about="gate" if failed else "validity",
        ok=False,
        observed=found.result,
        limit=Result.PASS,
        message=f"{found.requirement}: {found.message or found.result}",
    )
