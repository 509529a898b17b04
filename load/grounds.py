"""What a comparison takes from the runs' verdicts: invariants that were broken, gates that were failed."""

from __future__ import annotations

import collections
import math
from collections.abc import Mapping, Sequence

from load.result import LoadResult, Verdict

MOST = 0.01
"""Gates may give a false alarm in so many comparisons of equal clusters; the measures have the rest."""


def verdicts(runs: Sequence[LoadResult]) -> dict[str, int]:
    """How many runs ended in each verdict."""
    found = collections.Counter(run.verdict for run in runs)
    return {str(verdict): found[verdict] for verdict in Verdict}


def broken(baseline: Sequence[LoadResult], candidate: Sequence[LoadResult]) -> dict[str, list[str]]:
    """Invariants that runs of the candidate broke and none of the baseline's: the IDs of those runs."""
    before = {invariant for run in baseline for invariant in _broken(run)}
    found: dict[str, list[str]] = {}
    for run in candidate:
        for invariant in sorted(_broken(run) - before):
            found.setdefault(invariant, []).append(run.run_id)
    return found


def failed(baseline: Sequence[LoadResult], candidate: Sequence[LoadResult]) -> tuple[list[str], float]:
    """Gates that every run of the candidate failed and none of the baseline's, though they were asked it.

    Returns:
        The gates, none where so few runs can't show it; and the most by which they raise the probability of
        a false alarm. Any choice of runs could have been the candidate, were the sides equal: so it's the
        share of all choices that one of the gates would have named. It depends on no run's side, and it is 0
        where no gate was failed by just as many runs as the candidate has.
    """
    runs = [*baseline, *candidate]
    asked = [_gates(run) for run in runs]
    everywhere = set(asked[0]).intersection(*asked[1:])
    by_runs = collections.defaultdict(list)
    for gate in sorted(everywhere):
        failing = frozenset(number for number, gates in enumerate(asked) if gates[gate])
        if len(failing) == len(candidate):
            by_runs[failing].append(gate)
    alarms = len(by_runs) / math.comb(len(runs), len(candidate))
    if alarms > MOST:
        return [], 0.0
    return by_runs.get(frozenset(range(len(baseline), len(runs))), []), alarms


def _gates(run: LoadResult) -> Mapping[str, bool]:
    """What was asked of a run, and whether it failed that; a known upstream issue is no failure."""
    found = {each.requirement: False for each in run.requirements}
    for check in run.checks:
        if check.about != "gate" or check.unknown:
            continue
        name = check.name if check.name in found else f"{check.name} {check.limit}"
        name = f"{check.trial}: {name}" if check.trial else name
        found[name] = found.get(name, False) or not (check.ok or check.known)
    return found


def _broken(run: LoadResult) -> set[str]:
    """Invariants that any trial broke, but what the profile allows and what a known issue explains."""
    found = set()
    for trial in run.trials:
        mine = ("", trial.name) if trial is run.trials[0] else (trial.name,)
        excused = {
            check.name: check.ok or bool(check.known)
            for check in run.checks
            if check.about == "gate" and check.trial in mine
        }
        rest = excused.get("violations", False)
        found |= {
            each.invariant
            for each in trial.violations
            if not excused.get(f"violations.{each.invariant}", rest)
        }
    return found
