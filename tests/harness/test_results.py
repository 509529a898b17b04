from __future__ import annotations

import itertools

import pytest

from harness.results import Result, worst

WORST_FIRST = ["fail", "error", "expected-fail", "blocked", "skipped", "unsupported", "pass"]


@pytest.mark.parametrize(("worse", "better"), list(itertools.combinations(WORST_FIRST, 2)))
def test_the_worse_of_two_counts_in_either_order(worse: str, better: str) -> None:
    assert worst([Result(worse), Result(better)]) == worse
    assert worst([Result(better), Result(worse), Result(better)]) == worse


@pytest.mark.parametrize("result", WORST_FIRST)
def test_results_that_agree_are_the_result(result: str) -> None:
    assert worst([Result(result)] * 3) == result


def test_nothing_checked_is_not_covered() -> None:
    assert worst([]) is Result.NOT_COVERED


def test_every_result_has_its_place() -> None:
    assert {result.value for result in Result} == {*WORST_FIRST, "not-covered"}


def test_an_iterator_will_do() -> None:
    assert worst(iter([Result.PASS, Result.BLOCKED])) is Result.BLOCKED
