from __future__ import annotations

import collections
import itertools
import math
import re

import pytest
import scipy.stats

from harness.errors import UsageError
from load import arrivals
from load.model import Arrivals, Burst, Segment
from tests.load.world import kind, orders


def _dues(**more: object) -> list[float]:
    return [each.due for each in arrivals.schedule(orders(**more), started_at=0.0)]


def test_a_fixed_rate_is_evenly_spaced() -> None:
    dues = _dues(arrivals=Arrivals.FIXED, segments=[Segment(seconds=2, start=10, end=10)])

    assert dues == pytest.approx([0.1 * number for number in range(1, 21)])


def test_due_times_count_from_the_start_given() -> None:
    plan = orders(arrivals=Arrivals.FIXED, segments=[Segment(seconds=1, start=2, end=2)])

    assert [each.due for each in arrivals.schedule(plan, started_at=1000.0)] == [1000.5, 1001.0]


def test_a_ramp_up_has_its_nth_pod_where_the_area_below_the_rate_is_n() -> None:
    dues = _dues(arrivals=Arrivals.FIXED, segments=[Segment(seconds=10, start=0, end=10)])

    # the rate is t, its integral t*t/2
    assert dues == pytest.approx([math.sqrt(2 * number) for number in range(1, 51)])


def test_a_ramp_down_ends_with_its_last_pod_at_its_end() -> None:
    dues = _dues(arrivals=Arrivals.FIXED, segments=[Segment(seconds=10, start=10, end=0)])

    # the rate is 10-t, its integral 10t - t*t/2
    assert dues == pytest.approx([10 - math.sqrt(100 - 2 * number) for number in range(1, 51)])


def test_steps_follow_each_other_and_a_rest_has_no_arrivals() -> None:
    steps = [
        Segment(seconds=1, start=2, end=2),
        Segment(seconds=5, start=0, end=0),
        Segment(seconds=1, start=4, end=4),
    ]

    dues = _dues(arrivals=Arrivals.FIXED, segments=steps)

    assert dues == pytest.approx([0.5, 1.0, 6.25, 6.5, 6.75, 7.0])


def test_part_of_a_pod_is_carried_into_the_next_segment() -> None:
    steps = [Segment(seconds=0.25, start=2, end=2), Segment(seconds=1, start=1, end=1)]

    assert _dues(arrivals=Arrivals.FIXED, segments=steps) == pytest.approx([0.75])


def test_the_last_of_very_many_is_still_on_time() -> None:
    plan = orders(arrivals=Arrivals.FIXED, segments=[Segment(seconds=3600, start=10, end=10)])

    dues = [each.due for each in arrivals.schedule(plan, started_at=0.0)]

    assert len(dues) == 36_000
    assert dues[-1] == pytest.approx(3600, abs=1e-6)


def test_poisson_gaps_are_exponential_and_counts_disperse_like_their_mean() -> None:
    dues = _dues(segments=[Segment(seconds=500, start=20, end=20)])

    gaps = [later - earlier for earlier, later in itertools.pairwise([0.0, *dues])]
    by_second = collections.Counter(int(due) for due in dues)
    counts = [by_second[second] for second in range(500)]
    mean = sum(counts) / len(counts)
    variance = sum((count - mean) ** 2 for count in counts) / len(counts)
    assert dues == sorted(dues)
    assert scipy.stats.kstest(gaps, "expon", args=(0, 1 / 20)).pvalue > 0.01
    assert 20 - 4 * math.sqrt(20 / 500) < mean < 20 + 4 * math.sqrt(20 / 500)
    assert 0.75 < variance / mean < 1.25


def test_poisson_follows_a_ramp() -> None:
    dues = _dues(segments=[Segment(seconds=100, start=0, end=40)])

    # the area: a quarter of all arrivals in the first half
    early = sum(due < 50 for due in dues)
    assert 2000 - 4 * math.sqrt(2000) < len(dues) < 2000 + 4 * math.sqrt(2000)
    assert 500 - 4 * math.sqrt(500) < early < 500 + 4 * math.sqrt(500)


def test_the_seed_decides() -> None:
    segments = [Segment(seconds=10, start=20, end=20)]

    assert _dues(segments=segments, seed=1) == _dues(segments=segments, seed=1)
    assert _dues(segments=segments, seed=1) != _dues(segments=segments, seed=2)


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_workers_deal_out_the_arrivals_of_one(workers: int) -> None:
    kinds = [
        kind("a", weight=3, namespaces=["n1", "n2", "n3"]),
        kind("b", weight=1, namespaces=["n1", "n2", "n3"]),
    ]
    plan = orders(*kinds, segments=[Segment(seconds=20, start=20, end=20)], bursts=[Burst(at=3, pods=11)])

    alone = list(arrivals.schedule(plan, started_at=5.0))
    shares = [
        list(arrivals.schedule(plan, started_at=5.0, worker=worker, workers=workers))
        for worker in range(workers)
    ]

    together = sorted((each for part in shares for each in part), key=lambda each: each.due)
    assert sorted((a.due, a.kind.name) for a in together) == sorted((a.due, a.kind.name) for a in alone)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert len({each.name for each in together}) == len(alone)


def test_workers_take_their_share_of_the_namespaces_in_turn() -> None:
    plan = orders(
        kind(namespaces=["n0", "n1", "n2", "n3"]),
        arrivals=Arrivals.FIXED,
        segments=[Segment(seconds=1, start=8, end=8)],
    )

    first, second = (
        [each.namespace for each in arrivals.schedule(plan, started_at=0, worker=worker, workers=2)]
        for worker in (0, 1)
    )

    assert first == ["n0", "n2", "n0", "n2"]
    assert second == ["n1", "n3", "n1", "n3"]
    assert arrivals.worker_namespaces(["n0", "n1"], 3, 5) == ["n1"]


def test_weights_are_kept() -> None:
    plan = orders(kind("a", weight=3), kind("b", weight=1), segments=[Segment(seconds=100, start=40, end=40)])

    names = [each.kind.name for each in arrivals.schedule(plan, started_at=0)]

    share = names.count("a") / len(names)
    assert abs(share - 0.75) < 4 * math.sqrt(0.75 * 0.25 / len(names))


def test_a_burst_is_due_at_one_moment_beside_the_shape() -> None:
    plan = orders(
        arrivals=Arrivals.FIXED,
        segments=[Segment(seconds=3, start=1, end=1)],
        bursts=[Burst(at=5, pods=2), Burst(at=1.5, pods=3)],
    )

    dues = [each.due for each in arrivals.schedule(plan, started_at=0)]

    assert dues == [1, 1.5, 1.5, 1.5, 2, 3, 5, 5]
    assert arrivals.duration(plan) == 5


def test_the_rate_of_each_moment() -> None:
    segments = [Segment(seconds=10, start=0, end=20), Segment(seconds=5, start=7, end=7)]

    seen = [arrivals.rate_at(segments, moment) for moment in (-1, 0, 5, 10, 14.9, 15)]

    assert seen == [0, 0, 10, 7, 7, 0]


def test_the_windows_of_each_moment() -> None:
    segments = [
        Segment(seconds=10, start=1, end=1, measured=False),
        Segment(seconds=5, start=1, end=1),
        Segment(seconds=5, start=1, end=1, phase="raised"),
    ]

    seen = [arrivals.windows_at(segments, moment) for moment in (0, 9.99, 10, 15, 99)]

    assert seen == [
        ("warm-up",),
        ("warm-up",),
        ("measured",),
        ("measured", "raised"),
        ("measured", "raised"),
    ]
    assert arrivals.windows_at([], 3) == ("measured",)
    assert arrivals.windows_at([Segment(seconds=1, start=1, end=1, phase="measured")], 0) == ("measured",)


def test_things_dealt_out_are_all_dealt_out() -> None:
    assert [arrivals.share(7, worker, 3) for worker in range(3)] == [3, 2, 2]


@pytest.mark.parametrize("run_id", ["r1", "2026-01-02T03:04:05Z_template_churn/size M", "x" * 200, "---"])
def test_names_are_short_and_valid_and_differ_where_runs_do(run_id: str) -> None:
    kinds = [kind("Implicit Class_1"), kind("implicit-class.1"), kind("k" * 99)]
    drawn = [arrivals.Deck(orders(*kinds, run_id=run_id)).arrival(each, 0.0).name for each in kinds]
    other = arrivals.Deck(orders(*kinds, run_id=run_id + "!")).arrival(kinds[0], 0.0).name

    assert len({*drawn, other}) == 4
    for name in drawn:
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name)
        assert len(name) <= 56
        assert name.startswith(arrivals.name_prefix(run_id, 0))


@pytest.mark.parametrize(("worker", "workers"), [(-1, 2), (2, 2), (0, 0)])
def test_a_worker_that_can_not_be_is_refused(worker: int, workers: int) -> None:
    with pytest.raises(UsageError, match="worker"):
        next(arrivals.schedule(orders(), started_at=0, worker=worker, workers=workers))
