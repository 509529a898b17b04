"""What `dra-harness compare` finds with five runs a side: `python -m benchmarks.compare [--runs 5]`.

Simulated runs: logarithms of their figures are normal around the truth. Prints the share of comparisons that
end in a regression, for changes that are there and for none.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from load import statistics
from load.compare import LEVEL, Better, Compared, Finding, judge

_THROUGHPUT = Compared("rate.bound", Better.HIGHER, 0.10)
_P99 = Compared("bound.p99", Better.LOWER, 0.20)
_P99S = 4
_ALPHA = 2 * 0.05 / (1 + _P99S)
"""As `compare` has it where throughput and the p99 of four stages are judged."""


@dataclass(frozen=True)
class Case:
    """A change, and how much one run differs from the next."""

    name: str
    compared: Compared
    noise: float
    factor: float
    target: str = ""


CASES = (
    Case("throughput -10 %, noise 3 %", _THROUGHPUT, 0.03, 0.90, ">= 90 %"),
    Case("p99 x 2, noise 15 %", _P99, 0.15, 2.0, ">= 90 %"),
    Case("throughput -10 %, noise 2 %", _THROUGHPUT, 0.02, 0.90),
    Case("throughput -10 %, noise 5 %", _THROUGHPUT, 0.05, 0.90),
    Case("throughput -5 %, noise 3 %", _THROUGHPUT, 0.03, 0.95),
    Case("p99 x 1.5, noise 15 %", _P99, 0.15, 1.5),
    Case("p99 x 2, noise 30 %", _P99, 0.30, 2.0),
    Case("throughput as it was, noise 3 %", _THROUGHPUT, 0.03, 1.0),
    Case("p99 as it was, noise 15 %", _P99, 0.15, 1.0),
)


def main() -> None:
    """Simulate, and print each share beside its target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="on each side")
    parser.add_argument("--repetitions", type=int, default=5000)
    options = parser.parse_args()
    print(f"{'change':<34} {'found':>8} {'target':>10}")
    shares = {}
    for case in CASES:
        shares[case] = found(case, options.runs, options.repetitions)
        print(f"{case.name:<34} {shares[case]:>7.1%} {case.target:>10}")
    throughput, p99 = (shares[case] for case in CASES[-2:])
    alarm = 1 - (1 - throughput) * (1 - p99) ** _P99S
    print(f"{'false alarm, all measures':<34} {alarm:>7.1%} {'<= 5 %':>10}")


def found(case: Case, runs: int, repetitions: int) -> float:
    """The share of comparisons that end in a regression."""
    rng = np.random.default_rng(1)
    before = rng.normal(0.0, case.noise, (repetitions, runs))
    after = rng.normal(math.log(case.factor), case.noise, (repetitions, runs))
    estimates = statistics.median_difference(before, after)
    tests = stats.mannwhitneyu(after, before, axis=1, method="exact").pvalue
    regressions = 0
    for one, two, estimate, p in zip(before, after, estimates, tests, strict=True):
        low, high = statistics.interval(one, two, level=LEVEL, rng=rng, resamples=999)
        shift = statistics.Shift(float(estimate), low, high, float(p))
        regressions += judge(case.compared, shift, _ALPHA) is Finding.REGRESSION
    return regressions / repetitions


if __name__ == "__main__":
    main()
