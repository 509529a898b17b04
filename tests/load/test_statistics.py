"""Expected values by hand, by enumeration, or from textbooks; never from the code under test."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from load import statistics

FIVE = [1.0, 2.0, 3.0, 4.0, 5.0]


def test_the_shift_is_the_median_of_all_pairs() -> None:
    # 10-1, 10-2, 10-6, 20-1, 20-2, 20-6: 4 8 9 14 18 19
    assert statistics.median_difference(np.array([1.0, 2.0, 6.0]), np.array([10.0, 20.0])) == 11.5


def test_one_wild_run_hardly_moves_it() -> None:
    moved = [11.0, 12.0, 13.0, 14.0, 1000.0]
    assert statistics.median_difference(np.array(FIVE), np.array(moved)) == 10.0


@pytest.mark.parametrize(
    ("candidate", "p"),
    [
        ([6.0, 7.0, 8.0, 9.0, 10.0], 2 / 252),  # U = 0: one way of 252
        ([4.5, 7.0, 8.0, 9.0, 10.0], 4 / 252),  # U = 1: two ways
        ([3.5, 7.0, 8.0, 9.0, 10.0], 8 / 252),  # U = 2: four ways
        ([-1.0, -2.0, -3.0, -4.0, -5.0], 2 / 252),
    ],
)
def test_p_is_exact_for_five_runs_a_side(candidate: list[float], p: float) -> None:
    assert statistics.mann_whitney(np.array(FIVE), np.array(candidate)) == pytest.approx(p)


def test_p_is_exact_with_ties_too() -> None:
    before, after = np.array([1.0, 2.0, 2.0, 3.0]), np.array([2.0, 3.0, 4.0, 4.0])

    def u(first: tuple[float, ...], second: tuple[float, ...]) -> float:
        return sum((b > a) + 0.5 * (b == a) for a in first for b in second)

    everything = [*before, *after]
    dealt = []
    for chosen in itertools.combinations(range(8), 4):
        one = tuple(everything[i] for i in range(8) if i not in chosen)
        dealt.append(u(one, tuple(everything[i] for i in chosen)))
    seen = u(tuple(before), tuple(after))
    upper = sum(each >= seen for each in dealt) / len(dealt)
    lower = sum(each <= seen for each in dealt) / len(dealt)
    assert statistics.mann_whitney(before, after) == pytest.approx(min(1, 2 * min(upper, lower)))


def test_equal_sides_have_no_shift() -> None:
    found = statistics.shift(FIVE, FIVE, level=0.95, seed=1)
    assert (found.estimate, found.p) == (0.0, 1.0)
    assert found.low < 0 < found.high


def test_a_single_run_has_no_interval() -> None:
    found = statistics.shift([1.0], [2.0, 3.0], level=0.95, seed=1)
    assert (found.low, found.high) == (-math.inf, math.inf)


def test_the_same_seed_gives_the_same_interval() -> None:
    one, two, other = (
        statistics.shift(FIVE, [2.0, 4.0, 4.5, 7.0, 9.0], level=0.95, seed=seed) for seed in (3, 3, 4)
    )
    assert one == two
    assert (one.low, one.high) != (other.low, other.high) or one.estimate == other.estimate


def test_an_interval_moves_with_the_values() -> None:
    candidate = [2.0, 4.0, 4.5, 7.0, 9.0]
    there = statistics.shift(FIVE, candidate, level=0.95, seed=3)
    moved = statistics.shift(FIVE, [each + 10 for each in candidate], level=0.95, seed=3)
    assert (moved.low - there.low, moved.high - there.high) == pytest.approx((10.0, 10.0))


@pytest.mark.parametrize("noise", ["normal", "laplace", "lognormal"])
def test_intervals_of_five_runs_a_side_hold_the_truth(noise: str) -> None:
    rng = np.random.default_rng(11)

    def draw(size: int) -> statistics.Array:
        return rng.laplace(size=size) if noise == "laplace" else rng.standard_normal(size)

    held, repetitions = 0, 1500
    for _ in range(repetitions):
        before, after = draw(5), draw(5) + 2.0
        if noise == "lognormal":  # skewed, and still the same shape on both sides
            before, after = np.exp(before * 0.5), np.exp((after - 2.0) * 0.5) + 2.0
        low, high = statistics.interval(before, after, level=0.95, rng=rng, resamples=499)
        held += low <= 2.0 <= high
    assert 0.935 <= held / repetitions <= 0.99


def test_least_p_by_number_of_runs() -> None:
    assert [statistics.smallest_p(n, n) for n in (1, 2, 3, 4, 5)] == [1, 1 / 3, 1 / 10, 1 / 35, 1 / 126]


def test_too_few_runs_detect_nothing() -> None:
    three = [1.0, 1.1, 0.9]
    assert statistics.detectable(three, three, level=0.95, alpha=0.02, floor=0.1) == math.inf
    assert statistics.detectable([1.0], FIVE, level=0.95, alpha=1.0, floor=0.1) == math.inf


def test_without_noise_the_floor_is_what_can_be_detected() -> None:
    assert statistics.detectable([1.0] * 5, [1.0] * 5, level=0.95, alpha=0.02, floor=0.1) == 0.1


def test_what_is_detectable_grows_with_the_noise() -> None:
    noisy = [0.8, 0.9, 1.0, 1.1, 1.2]
    quiet = [0.98, 0.99, 1.0, 1.01, 1.02]
    much, little = (
        statistics.detectable(side, side, level=0.95, alpha=0.02, floor=0.0) for side in (noisy, quiet)
    )
    assert much / little == pytest.approx(10.0)


def test_the_detectable_shift_is_found_four_times_in_five() -> None:
    """By the rule itself, applied to new noise of the size that the shift was worked out for."""
    rng = np.random.default_rng(5)
    sample = rng.standard_normal(5)
    unit = (sample - sample.mean()) / sample.std(ddof=1)  # noise of exactly 1 on both sides
    shift = statistics.detectable(list(unit), list(unit), level=0.95, alpha=0.02, floor=0.0)
    found, repetitions = 0, 1500
    for _ in range(repetitions):
        before, after = rng.standard_normal(5), rng.standard_normal(5) + shift
        low, _ = statistics.interval(before, after, level=0.95, rng=rng, resamples=499)
        inversions = (after[:, None] < before[None, :]).sum()
        found += low > 0 and inversions <= 1  # p <= 0.02 means at most one inversion: 4/252
    assert 0.75 <= found / repetitions <= 0.85
