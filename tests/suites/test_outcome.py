from __future__ import annotations

import datetime
from collections.abc import Callable

import pytest

from harness.errors import EnvironmentBlocked, HarnessError, RequirementFailed, UsageError
from harness.kube import ApiError
from harness.results import Result
from harness.waiting import WaitTimeout
from suites import outcome
from suites.catalogue import Deviation
from suites.expect import symptom
from suites.outcome import Outcome

TODAY = datetime.date(2026, 6, 1)
LATER = TODAY + datetime.timedelta(1)
ISSUE = "k/k#141103"


def known(expires: datetime.date) -> Deviation:
    return Deviation.model_validate(
        {
            "issue": ISSUE,
            "url": "https://example.org/141103",
            "versions": ">=1.36,<1.38",
            "summary": "The name is lost.",
            "expires": expires,
        }
    )


def raised(do: Callable[[], object]) -> pytest.ExceptionInfo[BaseException]:
    try:
        do()
    except BaseException:
        return pytest.ExceptionInfo.from_current()
    raise AssertionError("nothing was raised")


def throw(error: BaseException) -> Callable[[], object]:
    def do() -> object:
        raise error

    return do


def raises_around_nothing() -> None:
    with pytest.raises(ApiError):
        pass


@pytest.mark.parametrize("when", ["setup", "call", "teardown"])
def test_a_phase_without_an_exception_passes(when: str) -> None:
    assert outcome.classify(when, None) == Outcome(result=Result.PASS)


CASES: list[tuple[Callable[[], object], str, str]] = [
    (throw(AssertionError("a is b")), "fail", "error"),
    (throw(RequirementFailed("x", "y")), "fail", "error"),
    (throw(WaitTimeout("pod", 1, "Pending")), "fail", "error"),
    *((throw(ApiError("GET", "/x", status, "{}")), "fail", "error") for status in (400, 403, 404, 422)),
    *((throw(ApiError("GET", "/x", status, "{}")), "error", "error") for status in (0, 409, 429, 500, 503)),
    (lambda: pytest.fail("that was wrong"), "fail", "error"),
    (raises_around_nothing, "fail", "error"),
    (lambda: pytest.fail("Timeout (>240.0s) from pytest-timeout."), "error", "error"),
    (throw(EnvironmentBlocked("no gate DRAFoo")), "blocked", "blocked"),
    (lambda: pytest.skip("not here"), "skipped", "skipped"),
    (throw(HarnessError("disk full")), "error", "error"),
    (throw(UsageError("bad file")), "error", "error"),
    (throw(KeyError("x")), "error", "error"),
    (throw(ConnectionResetError("gone")), "error", "error"),
]


@pytest.mark.parametrize(("do", "in_call", "around"), CASES)
def test_what_an_exception_means(do: Callable[[], object], in_call: str, around: str) -> None:
    excinfo = raised(do)
    assert outcome.classify("call", excinfo).result == in_call
    assert outcome.classify("setup", excinfo).result == around
    assert outcome.classify("teardown", excinfo).result == around


@pytest.mark.parametrize(
    ("when", "error", "message"),
    [
        ("call", RequirementFailed("it runs", "it waits"), "expected: it runs\nobserved: it waits"),
        ("call", AssertionError("a\n\n\nb"), "a\nb"),
        ("call", AssertionError(), "AssertionError"),
        ("setup", AssertionError("a"), "in setup: AssertionError: a"),
        ("teardown", KeyError("x"), "in teardown: KeyError: 'x'"),
        ("call", ValueError(), "in call: ValueError: ValueError"),
        ("setup", EnvironmentBlocked("needs DRAFoo"), "needs DRAFoo"),
    ],
)
def test_the_message_says_what_and_where(when: str, error: Exception, message: str) -> None:
    assert outcome.classify(when, raised(throw(error))).message == message


def failing_in_symptom(error: Exception) -> Outcome:
    """The outcome of a check that fails inside `symptom`."""

    def do() -> None:
        with symptom(ISSUE, "the name is lost"):
            raise error

    return outcome.classify("call", raised(do))


@pytest.mark.parametrize(
    "error",
    [
        RequirementFailed("the pod runs", "it waits: the name is lost"),
        AssertionError("the name is lost"),
        WaitTimeout("pod", 1, "the name is lost"),
        ApiError("POST", "/x", 422, '{"message": "the name is lost"}'),
    ],
)
def test_the_symptom_of_a_known_deviation_makes_a_failure_expected(error: Exception) -> None:
    failed = failing_in_symptom(error)
    assert (failed.result, failed.symptom_of) == (Result.FAIL, ISSUE)
    judged = outcome.with_deviation(failed, known(LATER), TODAY)
    assert judged.result is Result.EXPECTED_FAIL
    assert judged.message == f"known deviation {ISSUE}: The name is lost.\n{failed.message}"


@pytest.mark.parametrize("expires", [TODAY - datetime.timedelta(400), TODAY, LATER])
@pytest.mark.parametrize(
    "error",
    [
        RequirementFailed("the pod runs", "it waits"),
        AssertionError("a is b"),
        WaitTimeout("pod", 1, "Pending"),
        ApiError("POST", "/x", 403, "{}"),
    ],
)
def test_a_deviation_excuses_no_other_failure(error: Exception, expires: datetime.date) -> None:
    for failed in (failing_in_symptom(error), outcome.classify("call", raised(throw(error)))):
        assert failed.symptom_of == ""
        judged = outcome.with_deviation(failed, known(expires), TODAY)
        assert judged.result is Result.FAIL
        assert judged.message == (
            f"{failed.message}\nthis is not what the known deviation {ISSUE} looks like"
        )


def test_the_symptom_of_another_issue_is_no_excuse() -> None:
    failed = Outcome(result=Result.FAIL, message="m", symptom_of="k/k#1")
    judged = outcome.with_deviation(failed, known(LATER), TODAY)
    assert judged.result is Result.FAIL
    assert judged.message == f"m\nthis is not what the known deviation {ISSUE} looks like"


def test_what_goes_wrong_around_a_check_is_no_symptom() -> None:
    error = ApiError("POST", "/x", 503, '{"message": "the name is lost"}')
    failed = failing_in_symptom(error)
    assert (failed.result, failed.symptom_of) == (Result.ERROR, "")
    assert outcome.classify("setup", raised(throw(error))).symptom_of == ""
    assert outcome.with_deviation(failed, known(LATER), TODAY) == failed


@pytest.mark.parametrize("overdue", [0, 1, 400])
def test_an_expired_deviation_is_no_excuse(overdue: int) -> None:
    expires = TODAY - datetime.timedelta(overdue)
    failed = Outcome(result=Result.FAIL, message="m", symptom_of=ISSUE)
    judged = outcome.with_deviation(failed, known(expires), TODAY)
    assert judged.result is Result.FAIL
    assert judged.message == f"m\nthe known deviation {ISSUE} expired on {expires}"


@pytest.mark.parametrize("expires", [TODAY, LATER])
def test_passing_in_spite_of_a_deviation_fails(expires: datetime.date) -> None:
    judged = outcome.with_deviation(Outcome(result=Result.PASS), known(expires), TODAY)
    assert judged.result is Result.FAIL
    assert judged.message == (
        "expected to fail because of k/k#141103, but it passed: The name is lost. Is it fixed here?"
    )


@pytest.mark.parametrize("result", [Result.ERROR, Result.BLOCKED, Result.SKIPPED])
def test_a_deviation_explains_nothing_else(result: Result) -> None:
    judged = Outcome(result=result, message="m", symptom_of=ISSUE)
    assert outcome.with_deviation(judged, known(LATER), TODAY) == judged


@pytest.mark.parametrize("result", list(Result))
def test_without_a_deviation_nothing_changes(result: Result) -> None:
    judged = Outcome(result=result, message="m")
    assert outcome.with_deviation(judged, None, TODAY) is judged
