"""The measures of a run by name: what profiles set limits to, and what `compare` compares.

    bound.p99             p50, p90, p99, p999 or max of a stage, in seconds
    kind.<pod>.bound.p99  the same of one kind of pod
    window.<name>.bound.p99  the same of one window (a phase)
    rate.bound            offered, sent, accepted, bound or released pods/s
    unfinished            accepted pods that did not end within the drain limit
    causes.quota-denied   pods that ended so; share.quota-denied: in percent of the intended
    violations            broken invariants; violations.double-allocation: of one kind
    restarts              of components, but those that the scenario planned; unknown if none was seen while
                          some components are out of reach
    api.single.p99        slowest p99 of any verb on single objects; api.list.p99 of lists
    limiter.<component>   mean seconds that a call waited in the component's own rate limiter
    rejected              requests that priority and fairness rejected, of anybody

A name with a trial's name before it means that trial; without, the main one. Scenarios add their own figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clusters.metrics import APISERVER, CONTROLLER_MANAGER, SCHEDULER
from load.books import ServerBooks
from load.model import UNFINISHED, Cause, Stage
from load.result import Figure, StageRow, TrialResult

_QUANTILES = ("p50", "p90", "p99", "p999", "max")
_STAGES = frozenset(Stage)
_COUNTED_BY = {
    "api": APISERVER,
    "rejected": APISERVER,
    "queued": APISERVER,
    "evictions-off": CONTROLLER_MANAGER,
    "special-claims-off": SCHEDULER,
}
"""Measures, also those of scenarios, that come from one component's own metrics."""
_LAST_BUCKET = 60.0
"""Seconds; a p99 beyond the last bucket of apiserver_request_sli_duration_seconds is at least that."""


def measure(trials: Sequence[TrialResult], figures: Mapping[str, Figure], name: str) -> Figure | None:
    """The value of a measure; None where the run has none of that name.

    Args:
        trials: the first is the main one.
        figures: of the run as a whole.
        name: as above.
    """
    if name in figures:
        return figures[name]
    first, _, rest = name.partition(".")
    named = next((each for each in trials if each.name == first), None)
    if named is not None and rest:
        return of_trial(named, rest)
    return of_trial(trials[0], name)


def of_trial(trial: TrialResult, name: str) -> Figure | None:
    """A measure of one trial."""
    if name in trial.figures:
        return trial.figures[name]
    first, _, rest = name.partition(".")
    if first in _STAGES:
        return _quantile(trial.stage(Stage(first)), rest)
    if first in ("kind", "window"):
        return _of_part(trial, first, rest)
    if first == "rate" and rest in type(trial.rates).model_fields:
        return Figure(value=getattr(trial.rates, rest), unit="/s")
    if first in ("api", "limiter", "rejected", "restarts") and trial.server is not None:
        return _of_server(trial.server, first, rest)
    return _count(trial, first, rest)


def is_out_of_reach(trials: Sequence[TrialResult], name: str) -> bool:
    """Whether a measure comes from the metrics of a component that is out of reach in its trial."""
    first, _, rest = name.partition(".")
    named = next((each for each in trials if rest and each.name == first), None)
    if named is not None:
        first, _, rest = rest.partition(".")
    server = (named or trials[0]).server
    if server is None:
        return False
    if first == "restarts":
        return bool(server.unread)
    return (rest if first == "limiter" else _COUNTED_BY.get(first)) in server.unread


def _count(trial: TrialResult, first: str, rest: str) -> Figure | None:
    if first == "unfinished" and not rest:
        return Figure(value=sum(trial.causes.get(cause, 0) for cause in UNFINISHED))
    if first in ("causes", "share") and rest in frozenset(Cause):
        count = trial.causes.get(Cause(rest), 0)
        share = 100 * count / trial.intended if trial.intended else 0.0
        return Figure(value=count) if first == "causes" else Figure(value=share, unit="%")
    if first == "violations":
        return Figure(
            value=sum(each.count for each in trial.violations if not rest or each.invariant == rest)
        )
    return None


def _of_part(trial: TrialResult, what: str, rest: str) -> Figure | None:
    name, _, measured = rest.partition(".")
    stage, _, quantile = measured.partition(".")
    if stage not in _STAGES:
        return None
    part = {"kind": name} if what == "kind" else {"window": name}
    if what == "kind" and list(trial.causes_by_kind) == [name]:
        part = {}  # the only kind has no rows besides those of all
    return _quantile(trial.stage(Stage(stage), **part), quantile)


def _quantile(row: StageRow | None, name: str) -> Figure | None:
    if row is None or name not in _QUANTILES:
        return None
    found: Figure | None = getattr(row, name)
    return found


def _of_server(server: ServerBooks, first: str, rest: str) -> Figure | None:
    if first == "restarts":
        unplanned = server.unplanned_restarts()
        return Figure(value=unplanned) if unplanned or not server.unread else None
    if first == "rejected":
        rejected = server.rejected()
        return None if rejected is None else Figure(value=rejected)
    if first == "limiter":
        waits = [each.mean for each in server.limiter if each.component == rest]
        return Figure(value=waits[0], unit="s") if waits else None
    scopes = {"single.p99": ("resource",), "list.p99": ("namespace", "cluster")}
    found = [each.p99 for each in server.api if each.count and each.scope in scopes.get(rest, ())]
    known = [each for each in found if each is not None]
    beyond = len(known) < len(found)
    return (
        Figure(value=max([*known, _LAST_BUCKET] if beyond else known), unit="s", at_least=beyond)
        if found
        else None
    )
