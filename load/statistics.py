"""Statistics for a handful of runs on each side: a shift, whether it is there, what would have been seen.

Everything works on whatever scale it is given; `load.compare` gives logarithms, so that a shift is a ratio.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

Array = npt.NDArray[np.float64]

RESAMPLES = 9_999
POWER = 0.8
"""With this probability the smallest detectable change is found."""
_EXACT = 20_000
"""As many ways to deal the runs to two sides are gone through; with more, p is approximated."""
_LARGEST = 50
"""Up to so many distinct values a side p is exact in any case."""
_SIMULATIONS = 1_000


@dataclass(frozen=True)
class Shift:
    """By how much the candidate lies above the baseline."""

    estimate: float
    """Median of the differences of all pairs (Hodges and Lehmann)."""
    low: float
    high: float
    """The bootstrap interval around it; infinite where a side has a single run."""
    p: float
    """Two-sided, Mann and Whitney; exact for small samples, with ties too."""


def shift(baseline: Sequence[float], candidate: Sequence[float], *, level: float, seed: int) -> Shift:
    """Compare two sides of at least one value each.

    Args:
        baseline: the values before.
        candidate: the values after.
        level: coverage of the interval, such as 0.95.
        seed: of the bootstrap.
    """
    before, after = np.asarray(baseline, float), np.asarray(candidate, float)
    low, high = interval(before, after, level=level, rng=np.random.default_rng(seed))
    return Shift(float(median_difference(before, after)), low, high, mann_whitney(before, after))


def median_difference(baseline: Array, candidate: Array) -> Array:
    """The median of all pairwise differences, along the last axis."""
    differences = candidate[..., None, :] - baseline[..., :, None]
    pairs = differences.reshape(*differences.shape[:-2], -1)
    return np.asarray(np.median(pairs, axis=-1), float)


def mann_whitney(baseline: Array, candidate: Array) -> float:
    """The two-sided p of the Mann-Whitney test."""
    everything = np.concatenate([baseline, candidate])
    ways = math.comb(len(everything), len(candidate))
    if len(np.unique(everything)) < len(everything) and ways <= _EXACT:
        return _with_ties(stats.rankdata(everything), len(candidate))
    method = "exact" if max(len(baseline), len(candidate)) <= _LARGEST else "auto"
    return float(stats.mannwhitneyu(candidate, baseline, alternative="two-sided", method=method).pvalue)


def _with_ties(ranks: Array, size: int) -> float:
    """The same where values are equal: all ways to choose the last `size` of these ranks are gone through."""
    sums = np.array([sum(chosen) for chosen in itertools.combinations(ranks, size)])
    seen = ranks[-size:].sum()
    return float(min(1.0, 2 * min((sums <= seen + 1e-9).mean(), (sums >= seen - 1e-9).mean())))


def smallest_p(baseline: int, candidate: int) -> float:
    """The least two-sided p that so many runs a side can have: all of one side above all of the other."""
    return 2 / math.comb(baseline + candidate, baseline)


def interval(
    baseline: Array,
    candidate: Array,
    *,
    level: float,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> tuple[float, float]:
    """The bootstrap interval of the median difference.

    A plain percentile interval is far too narrow for five values a side: it has the variance of n where n-1
    is due, and the normal's tails where Student's are. Its quantiles are moved outwards by just that: the
    expanded percentile interval (T. Hesterberg, "What Teachers Should Know About the Bootstrap", 2015).
    """
    sizes = len(baseline), len(candidate)
    if min(sizes) < 2:
        return -math.inf, math.inf
    resampled = [side[rng.integers(0, len(side), (resamples, len(side)))] for side in (baseline, candidate)]
    tail = _tail(sizes, level)
    low, high = np.quantile(median_difference(*resampled), [tail, 1 - tail])
    return float(low), float(high)


@functools.cache
def _tail(sizes: tuple[int, int], level: float) -> float:
    freedom = sum(sizes) - 2
    variance = (1 / (sizes[0] - 1) + 1 / (sizes[1] - 1)) / (1 / sizes[0] + 1 / sizes[1])
    return float(stats.norm.cdf(-math.sqrt(variance) * stats.t.isf((1 - level) / 2, freedom)))


def detectable(
    baseline: Sequence[float], candidate: Sequence[float], *, level: float, alpha: float, floor: float
) -> float:
    """The smallest true shift that runs with this much noise show in `POWER` of all comparisons.

    A shift is shown where the two-sided p is at most `alpha`, the interval excludes 0 and reaches `floor`.

    Returns:
        The size of the shift; infinite where so few runs can't show any.
    """
    before, after = np.asarray(baseline, float), np.asarray(candidate, float)
    sizes = len(before), len(after)
    if min(sizes) < 2 or smallest_p(*sizes) > alpha:
        return math.inf
    squares = ((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum()
    noise = math.sqrt(squares / (sum(sizes) - 2))
    if noise == 0:
        return floor
    needed, near, far = _thresholds(sizes, level, alpha)
    shifts = np.maximum.reduce([needed, near, floor / noise - far])
    return float(noise * np.quantile(shifts, POWER))


@functools.cache
def _thresholds(sizes: tuple[int, int], level: float, alpha: float) -> tuple[Array, Array, Array]:
    """For simulated noise of size 1: the shift from which the test shows it, and the interval's two reaches.

    The interval moves with a shift without changing, so no shift needs to be simulated.
    """
    rng = np.random.default_rng(sum(sizes))
    wrong = _allowed_inversions(sizes, alpha)
    rows = []
    for _ in range(_SIMULATIONS):
        before, after = rng.standard_normal(sizes[0]), rng.standard_normal(sizes[1])
        pairs = np.sort((before[:, None] - after[None, :]).ravel())
        low, high = interval(before, after, level=level, rng=rng, resamples=499)
        rows.append((pairs[-1 - wrong], -low, high))
    needed, near, far = np.array(rows).T
    return needed, near, far


def _allowed_inversions(sizes: tuple[int, int], alpha: float) -> int:
    """How many of all pairs may be in the wrong order for p to be at most `alpha`."""
    total, shown = sum(sizes), -1
    values = np.arange(total, dtype=float)
    for inversions in range(sizes[0] * sizes[1] // 2):
        # One arrangement with that many inversions: enough, as the test sees nothing but their number.
        upper = _arrangement(sizes, inversions)
        if mann_whitney(np.delete(values, upper), values[upper]) > alpha:
            break
        shown = inversions
    return shown


def _arrangement(sizes: tuple[int, int], inversions: int) -> list[int]:
    """Ranks of the candidate's values such that so many of its pairs lie below the baseline."""
    lower, upper = sizes
    moves = [min(lower, max(0, inversions - lower * index)) for index in range(upper)]
    return [lower + index - moves[index] for index in range(upper)]
