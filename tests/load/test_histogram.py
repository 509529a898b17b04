from __future__ import annotations

import math
import random

import pytest
from hdrh.histogram import HdrHistogram

from harness.errors import HarnessError
from load.histogram import LatencyHistogram, Quantile
from load.model import Stage


def _filled(*seconds: float, censored: tuple[float, ...] = ()) -> LatencyHistogram:
    histogram = LatencyHistogram()
    for value in seconds:
        histogram.record(value)
    for value in censored:
        histogram.censor(value)
    return histogram


def _about(quantile: Quantile | None) -> tuple[float, bool]:
    """To three digits, as fine as a histogram is."""
    assert quantile is not None
    return float(f"{quantile.seconds:.3g}"), quantile.at_least


def _exact(values: list[float], q: float) -> float:
    return sorted(values)[max(0, math.ceil(q * len(values)) - 1)]


@pytest.mark.parametrize("q", [0, 0.5, 0.9, 0.99, 0.999, 1])
def test_quantiles_are_those_of_the_sorted_samples_to_a_thousandth(q: float) -> None:
    rng = random.Random(3)
    values = [10 ** rng.uniform(-5, 3) for _ in range(5000)]

    quantile = _filled(*values).quantile(q)

    assert quantile is not None
    assert not quantile.at_least
    assert quantile.seconds == pytest.approx(_exact(values, q), rel=1.1e-3, abs=1e-6)


def test_a_quantile_is_known_while_enough_samples_below_it_came() -> None:
    histogram = _filled(1, 2, 3, 4, 5, 6, 7, 8, 9, censored=(30,))

    known, unknown = histogram.quantile(0.9), histogram.quantile(0.91)

    assert known is not None
    assert not known.at_least
    assert known.seconds == pytest.approx(9, rel=1e-3)
    assert unknown is not None
    assert unknown.at_least
    assert 29.97 < unknown.seconds <= 30
    assert str(unknown).startswith(">= ")


def test_a_sample_censored_early_makes_all_above_it_lower_bounds() -> None:
    histogram = _filled(2, 3, 4, censored=(1,))

    assert _about(histogram.quantile(0.25)) == (1.0, True)
    assert _about(histogram.quantile(0.75)) == (3.0, True)


@pytest.mark.parametrize("seed", range(20))
def test_what_it_says_is_true_of_the_latencies_that_nobody_saw(seed: int) -> None:
    rng = random.Random(seed)
    truth = [rng.expovariate(1 / rng.choice([0.1, 5])) for _ in range(rng.randint(1, 400))]
    limits = [rng.uniform(0.05, 12) for _ in truth]
    histogram = LatencyHistogram()
    for latency, limit in zip(truth, limits, strict=True):
        if latency <= limit:
            histogram.record(latency)
        else:
            histogram.censor(limit)

    for q in (0.01, 0.25, 0.5, 0.9, 0.99, 1):
        quantile, true = histogram.quantile(q), _exact(truth, q)
        assert quantile is not None
        if quantile.at_least:
            assert quantile.seconds <= true * 1.001
        else:
            assert quantile.seconds == pytest.approx(true, rel=2e-3, abs=2e-6)


def test_without_samples_nothing_is_claimed() -> None:
    empty = LatencyHistogram()

    assert empty.quantile(0.5) is None
    assert empty.maximum() is None
    assert empty.mean() is None
    assert empty.share_within(1) == 0
    assert LatencyHistogram.decode(empty.encode()).count == 0


def test_more_than_an_hour_is_only_known_to_be_that() -> None:
    histogram = _filled(1, 4000)

    assert histogram.censored == 1
    assert _about(histogram.maximum()) == (3600.0, True)


def test_the_mean_and_the_share_within_a_limit() -> None:
    histogram = _filled(1, 2, 6, censored=(3,))

    assert _about(histogram.mean()) == (3.0, True)
    assert histogram.share_within(2.5) == 0.5
    assert histogram.share_within(5) == 0.5
    assert histogram.share_within(7) == 0.75


def test_another_hdr_library_reads_the_same() -> None:
    rng = random.Random(5)
    values = [rng.expovariate(2) for _ in range(3000)]

    encoded = _filled(*values).encode()

    theirs = HdrHistogram.decode(encoded)
    own = HdrHistogram(1, 3_600_000_000, 3)
    for value in values:
        own.record_value(max(1, round(value * 1e6)))
    assert theirs.get_total_count() == 3000
    for percentile in (1, 50, 99, 100):
        assert theirs.get_value_at_percentile(percentile) == own.get_value_at_percentile(percentile)


def test_a_report_keeps_everything() -> None:
    rng = random.Random(6)
    histogram = _filled(*(rng.uniform(0, 50) for _ in range(999)), censored=(20.0, 40.0, 60.0))

    samples = histogram.samples(Stage.BOUND, "gpu", "measured")
    back = LatencyHistogram.of(samples)

    assert (samples.count, samples.censored) == (1002, 3)
    assert [back.quantile(q / 100) for q in range(101)] == [histogram.quantile(q / 100) for q in range(101)]


def test_merged_parts_are_the_whole() -> None:
    rng = random.Random(8)
    values = [rng.uniform(0, 9) for _ in range(600)]
    parts = [_filled(*values[start::3], censored=(5.0 + start,)) for start in range(3)]

    merged = LatencyHistogram.of([part.samples(Stage.BOUND, "gpu", "measured") for part in parts])

    whole = _filled(*values, censored=(5, 6, 7))
    assert (merged.count, merged.censored) == (603, 3)
    assert [merged.quantile(q / 50) for q in range(51)] == [whole.quantile(q / 50) for q in range(51)]


@pytest.mark.parametrize("text", ["", "nonsense", "AAAAAAAAAAAA", "é", _filled(1).encode()[:-8]])
def test_what_is_no_histogram_is_refused(text: str) -> None:
    with pytest.raises(HarnessError, match="HDR"):
        LatencyHistogram.decode(text)


def test_a_histogram_of_another_scale_is_refused() -> None:
    other = HdrHistogram(1, 1000, 2)
    other.record_value(5)

    with pytest.raises(HarnessError, match="settings"):
        LatencyHistogram.decode(other.encode().decode())


def test_samples_that_do_not_hold_what_they_say_are_refused() -> None:
    samples = _filled(1, 2).samples(Stage.BOUND, "gpu", "measured")

    with pytest.raises(HarnessError, match="says 3 samples"):
        LatencyHistogram.of(samples.model_copy(update={"count": 3}))


def test_a_share_outside_0_to_1_is_refused() -> None:
    with pytest.raises(ValueError, match="0 to 1"):
        _filled(1).quantile(99)
