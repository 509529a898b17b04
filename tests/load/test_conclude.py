"""Results of requirements, from several trials and from a run that can't be trusted."""

from __future__ import annotations

import pytest

from harness.results import Result
from load.conclude import check_finished, merged, trusted
from load.result import Figure, RequirementResult, Verdict
from load.verdict import Judgement


def found(name: str, result: Result, message: str = "") -> RequirementResult:
    return RequirementResult(requirement=name, result=result, message=message)


def test_of_several_trials_the_worst_counts() -> None:
    trials = [
        found("LIF-17", Result.PASS),
        found("MD-10", Result.PASS),
        found("LIF-17", Result.FAIL, "two calls failed"),
        found("LIF-17", Result.PASS),
    ]

    results = merged(trials)

    assert [(each.requirement, each.result, each.message) for each in results] == [
        ("LIF-17", Result.FAIL, "two calls failed"),
        ("MD-10", Result.PASS, ""),
    ]


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.FAIL])
def test_a_run_that_can_be_trusted_says_what_it_found(verdict: Verdict) -> None:
    results = [found("APF-07", Result.FAIL, "slow")]

    assert trusted(results, Judgement(verdict, [], [])) == results


@pytest.mark.parametrize("result", [Result.PASS, Result.FAIL])
def test_an_invalid_run_says_nothing_of_a_requirement(result: Result) -> None:
    judgement = Judgement(Verdict.INVALID, ["the machine was busy"], [])

    (told,) = trusted([found("APF-07", result)], judgement)

    assert told.result is Result.BLOCKED
    assert "the machine was busy" in told.message
    assert f"would be a {result}" in told.message


def test_the_event_of_a_result_carries_its_figures() -> None:
    result = RequirementResult(
        requirement="TNT-16", result=Result.PASS, figures={"p99": Figure(value=0.25, unit="s")}
    )

    event = check_finished("taint-storm", result)

    assert (event.check, event.requirements) == ("load/taint-storm::TNT-16", ["TNT-16"])
    assert [(each.title, each.value) for each in event.evidence] == [("p99", "0.25 s")]
