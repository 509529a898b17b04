"""Compares two sets of runs: is the candidate worse than the baseline, and could these runs have shown it?

A regression meets three conditions. The Mann-Whitney test finds the candidate worse; its level is shared
out among the judged measures, so that a comparison of equal clusters gives a false alarm at most once in
twenty. The bootstrap interval of the change excludes none. And the interval reaches the measure's floor:
what is surely smaller than the floor is no regression, however clearly it is there. (Asking the estimate
itself to exceed the floor would miss a loss of just that size every other time.)

Two things are a regression whatever the measures say. One is an invariant that some run of the candidate
broke and none of the baseline's. That is no noise: a cluster that keeps its invariants breaks none in any
number of runs, and what a known upstream issue explains is left out. So it takes no part of the one in
twenty, and a single run is enough. The other is a gate that every run of the candidate failed and none of
the baseline's, though all were asked it. Were the sides equal, any choice of as many runs could have been the
candidate. So that is a false alarm in at most as many of all choices as there are different sets of runs that
failed some gate: one in 252 for one such set among five runs a side. Where that is more than one in a
hundred, gates are not judged; where it's less, the measures share out what is left of the one in twenty.
Their test, too, holds for any choice of the candidate from given runs, and so do both together.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pydantic

from harness.errors import ExitCode, HarnessError
from load import grounds, statistics
from load.fingerprint import Difference, Fingerprint
from load.measures import measure
from load.result import Figure, LoadResult, Verdict

LEVEL = 0.95
"""Coverage of the intervals."""
FALSE_ALARMS = 0.05
"""At most so many comparisons of equal clusters end in a regression."""
_LEAST = 1e-9
"""Takes the place of 0, which has no logarithm."""


class Better(enum.StrEnum):
    """Which way is good."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True)
class Compared:
    """A measure that is compared."""

    measure: str
    better: Better
    floor: float = 0.0
    """A change smaller than this share is none; judged only where it's more than 0."""


MEASURES = (
    Compared("rate.bound", Better.HIGHER, 0.10),
    Compared("bound.p99", Better.LOWER, 0.20),
    Compared("running.p99", Better.LOWER, 0.20),
    Compared("allocated.p99", Better.LOWER, 0.20),
    Compared("accepted.p99", Better.LOWER, 0.20),
    Compared("released.p99", Better.LOWER, 0.20),
    Compared("bound.p50", Better.LOWER),
    Compared("accepted.p50", Better.LOWER),
    Compared("released.p50", Better.LOWER),
    Compared("claim-created.p99", Better.LOWER),
    Compared("gone.p99", Better.LOWER),
    Compared("share.completed", Better.HIGHER),
    Compared("limiter.kube-controller-manager", Better.LOWER),
    Compared("limiter.kube-scheduler", Better.LOWER),
    Compared("api.single.p99", Better.LOWER),
)
"""Few are judged: with each more, all need more runs to show the same change."""


class Finding(enum.StrEnum):
    """What is said of one measure."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    SAME = "no change"
    """The interval lies within the floor on both sides."""
    UNCLEAR = "not shown"
    """No change was shown; one as large as the floor can't be excluded."""
    SHOWN_ONLY = "not judged"


class _Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)


class Row(_Model):
    """One measure on both sides. Changes are shares of the baseline: 0.1 is 10 % more."""

    measure: str
    unit: str
    better: Better
    judged: bool
    baseline: list[float]
    candidate: list[float]
    baseline_median: float
    candidate_median: float
    at_least: bool
    """Some value is a lower bound: work that never finished is in it."""
    change: float
    low: float | None
    """Interval of the change; None where a side has one run."""
    high: float | None
    p: float
    floor: float | None
    detectable: float | None
    """The smallest worsening that runs as noisy as these show in four of five comparisons; None if none."""
    finding: Finding


class Outcome(enum.StrEnum):
    """What a comparison ends in."""

    NO_REGRESSION = "no regression"
    REGRESSION = "regression"
    TOO_FEW = "too few runs"
    """No change whatever could have been shown."""

    @property
    def exit_code(self) -> ExitCode:
        """0, 1 or 3."""
        codes = {Outcome.NO_REGRESSION: ExitCode.PASSED, Outcome.REGRESSION: ExitCode.FAILED}
        return codes.get(self, ExitCode.BLOCKED)


class Comparison(_Model):
    """The whole comparison."""

    outcome: Outcome
    baseline: list[str]
    """IDs of runs."""
    candidate: list[str]
    profile: str
    differences: dict[str, tuple[str, str]]
    """Keys of the fingerprint that differ as was allowed: the baseline's value, the candidate's."""
    verdicts: dict[str, dict[str, int]]
    """By side, baseline and candidate: how many runs ended in each verdict."""
    broken: dict[str, list[str]]
    """Invariants that only the candidate broke: the IDs of the runs that did."""
    failed: list[str]
    """Gates that every run of the candidate failed, and none of the baseline's."""
    alpha: float
    """The two-sided p up to which a judged change counts."""
    rows: list[Row]
    notes: list[str]


class NotComparable(HarnessError):
    """The runs can't be compared; the message says why."""

    exit_code = ExitCode.BLOCKED


def compare(
    baseline: Sequence[LoadResult],
    candidate: Sequence[LoadResult],
    *,
    allow: Collection[str] = (),
    seed: int = 0,
    measures: Sequence[Compared] = MEASURES,
) -> Comparison:
    """Compare two sets of at least one run each.

    Args:
        baseline: the runs before.
        candidate: the runs after.
        allow: keys of the fingerprint that may differ between the sides; `a` allows `a.b` as well.
        seed: of the bootstrap.
        measures: what to compare, as far as every run has it.

    Raises:
        NotComparable: a run is INVALID or of another profile, or fingerprints differ.
    """
    _require_valid([*baseline, *candidate])
    differences = _differences(baseline, candidate, allow)
    found = [(each, *_values(each, baseline, candidate)) for each in measures]
    present = [(each, before, after) for each, before, after in found if before and after]
    judged = sum(each.floor > 0 for each, _, _ in present)
    broken = grounds.broken(baseline, candidate)
    failed, alarms = grounds.failed(baseline, candidate)
    alpha = 2 * (FALSE_ALARMS - alarms) / max(1, judged)
    rows = [_row(each, before, after, alpha, seed) for each, before, after in present]
    return Comparison(
        outcome=Outcome.REGRESSION if broken or failed else _outcome(rows),
        baseline=[each.run_id for each in baseline],
        candidate=[each.run_id for each in candidate],
        profile=baseline[0].profile,
        differences=differences,
        verdicts={"baseline": grounds.verdicts(baseline), "candidate": grounds.verdicts(candidate)},
        broken=broken,
        failed=failed,
        alpha=alpha,
        rows=rows,
        notes=list(_notes(baseline, candidate, rows, alpha)),
    )


def _require_valid(runs: Sequence[LoadResult]) -> None:
    for run in runs:
        if run.verdict is Verdict.INVALID:
            raise NotComparable(f"run {run.run_id} is INVALID: {'; '.join(run.reasons)}")


def _differences(
    baseline: Sequence[LoadResult], candidate: Sequence[LoadResult], allow: Collection[str]
) -> dict[str, tuple[str, str]]:
    """Where the sides differ, as allowed.

    Raises:
        NotComparable: they differ elsewhere, or the runs of one side differ among themselves.
    """
    for side, runs in (("baseline", baseline), ("candidate", candidate)):
        for run in runs[1:]:
            if found := _facts(runs[0]).differences(_facts(run)):
                raise NotComparable(
                    f"the {side}'s runs {runs[0].run_id} and {run.run_id} differ: {_told(found)}"
                )
    before, after = _facts(baseline[0]), _facts(candidate[0])
    if refused := before.differences(after, allowed=allow):
        keys = ",".join(each.key for each in refused)
        raise NotComparable(f"the fingerprints differ: {_told(refused)}; --allow {keys} if that is meant")
    return {each.key: (str(each.ours), str(each.theirs)) for each in before.differences(after)}


def _told(differences: Sequence[Difference]) -> str:
    return "; ".join(f"{each.key}: {each.ours}, {each.theirs}" for each in differences)


def _facts(run: LoadResult) -> Fingerprint:
    own = {"load.profile": run.profile, "load.size": run.size, "load.limits": run.limits}
    return Fingerprint(facts={**own, **run.fingerprint.facts})


def _values(
    compared: Compared, baseline: Sequence[LoadResult], candidate: Sequence[LoadResult]
) -> tuple[list[Figure], list[Figure]]:
    """The measure in all runs of both sides; nothing where a run lacks it."""
    sides = [
        [measure(run.trials[:1], {}, compared.measure) for run in runs] for runs in (baseline, candidate)
    ]
    if any(figure is None for side in sides for figure in side):
        return [], []
    before, after = ([figure for figure in side if figure is not None] for side in sides)
    return before, after


def _row(
    compared: Compared, before: Sequence[Figure], after: Sequence[Figure], alpha: float, seed: int
) -> Row:
    sides = [[max(each.value, _LEAST) for each in side] for side in (before, after)]
    logs = [[math.log(value) for value in side] for side in sides]
    found = statistics.shift(logs[0], logs[1], level=LEVEL, seed=seed)
    judged = compared.floor > 0
    least = None
    if judged:
        floor = (
            -math.log1p(-compared.floor) if compared.better is Better.HIGHER else math.log1p(compared.floor)
        )
        size = statistics.detectable(logs[0], logs[1], level=LEVEL, alpha=alpha, floor=floor)
        least = _worsening(size, compared.better) if math.isfinite(size) else None
    return Row(
        measure=compared.measure,
        unit=before[0].unit,
        better=compared.better,
        judged=judged,
        baseline=[each.value for each in before],
        candidate=[each.value for each in after],
        baseline_median=_median([each.value for each in before]),
        candidate_median=_median([each.value for each in after]),
        at_least=any(each.at_least for each in (*before, *after)),
        change=math.expm1(found.estimate),
        low=math.expm1(found.low) if math.isfinite(found.low) else None,
        high=math.expm1(found.high) if math.isfinite(found.high) else None,
        p=found.p,
        floor=compared.floor or None,
        detectable=least,
        finding=judge(compared, found, alpha) if judged else Finding.SHOWN_ONLY,
    )


def _worsening(size: float, better: Better) -> float:
    return -math.expm1(-size) if better is Better.HIGHER else math.expm1(size)


def judge(compared: Compared, found: statistics.Shift, alpha: float) -> Finding:
    """What a shift of logarithms means."""
    low, high = math.expm1(found.low), math.expm1(found.high)
    floor = compared.floor
    up = low > 0 and found.p <= alpha and high >= floor
    down = high < 0 and found.p <= alpha and low <= -floor
    if up or down:
        worse = up if compared.better is Better.LOWER else down
        return Finding.REGRESSION if worse else Finding.IMPROVEMENT
    return Finding.SAME if -floor < low and high < floor else Finding.UNCLEAR


def _outcome(rows: Sequence[Row]) -> Outcome:
    judged = [row for row in rows if row.judged]
    if any(row.finding is Finding.REGRESSION for row in judged):
        return Outcome.REGRESSION
    if not any(row.detectable is not None for row in judged):
        return Outcome.TOO_FEW
    return Outcome.NO_REGRESSION


def _notes(
    baseline: Sequence[LoadResult], candidate: Sequence[LoadResult], rows: Sequence[Row], alpha: float
) -> list[str]:
    notes = []
    sizes = len(baseline), len(candidate)
    if statistics.smallest_p(*sizes) > alpha:
        notes.append(
            f"{sizes[0]} and {sizes[1]} runs can't show any change: it takes five on each side, run in turn"
        )
    ids = {each.run_id for each in baseline} & {each.run_id for each in candidate}
    if ids:
        notes.append(f"on both sides: {', '.join(sorted(ids))}")
    ordered = sorted([(run.started_at, 0) for run in baseline] + [(run.started_at, 1) for run in candidate])
    turns = sum(one[1] != two[1] for one, two in itertools.pairwise(ordered))
    if turns == 1 and sum(sizes) > 2:
        notes.append(
            "all runs of one side came before all of the other: what changed on the machine meanwhile looks "
            "like a change of the cluster; run them in turn"
        )
    if any(row.at_least for row in rows):
        notes.append("values with >= contain work that never finished; the true change may be larger")
    return notes


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
