from __future__ import annotations

import pytest

from harness.errors import EnvironmentBlocked, ExitCode, HarnessError, RequirementFailed, UsageError


def test_exit_codes_are_those_that_callers_rely_on() -> None:
    assert {code.name: int(code) for code in ExitCode} == {
        "PASSED": 0,
        "FAILED": 1,
        "USAGE": 2,
        "BLOCKED": 3,
        "HARNESS_ERROR": 4,
    }


@pytest.mark.parametrize(
    ("error", "code"), [(HarnessError("x"), 4), (UsageError("x"), 2), (EnvironmentBlocked("x"), 3)]
)
def test_an_error_knows_its_exit_code(error: HarnessError, code: int) -> None:
    assert error.exit_code == code
    assert isinstance(error, HarnessError)
    assert str(error) == "x"


def test_a_broken_promise_says_what_was_expected_and_seen() -> None:
    pod = {"metadata": {"name": "p"}}
    failed = RequirementFailed("the pod runs", "it is Pending", pod)
    assert str(failed) == "expected: the pod runs\nobserved: it is Pending"
    assert (failed.expected, failed.observed, failed.obj) == ("the pod runs", "it is Pending", pod)


def test_a_broken_promise_is_an_assertion_and_no_fault_of_the_harness() -> None:
    failed = RequirementFailed("a", "b")
    assert isinstance(failed, AssertionError)
    assert not isinstance(failed, HarnessError)
    assert failed.obj is None
