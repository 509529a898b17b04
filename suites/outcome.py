"""Turns what happened in a pytest phase into a harness result."""

from __future__ import annotations

import datetime
import re

import pydantic
import pytest

from harness.errors import EnvironmentBlocked
from harness.events import Evidence
from harness.kube import ApiError
from harness.results import Result
from suites.catalogue import Catalogue, Deviation
from suites.expect import SYMPTOM

PROPERTY = "dra-harness-outcome"

_TROUBLE = (409, 429)
"""Refusals that say something about the moment and nothing about the request: conflict, too many requests."""


class Outcome(pydantic.BaseModel):
    """One phase (setup, call or teardown) of one check."""

    model_config = pydantic.ConfigDict(frozen=True)

    result: Result
    message: str = ""
    symptom_of: str = ""
    """The issue of a known deviation that the failure is the symptom of; see `expect.symptom`."""
    details: str = ""
    """The traceback, where pytest's own report doesn't carry it."""
    evidence: list[Evidence] = []
    artifacts: list[str] = []
    created: list[str] = []
    """Objects that the check created or was refused, known when it ends."""


def classify(when: str, excinfo: pytest.ExceptionInfo[BaseException] | None) -> Outcome:
    """Judge one phase.

    A broken promise is an assertion (`pytest.fail` and `pytest.raises` included), or a refusal by the API
    server, in the check itself; what goes wrong around it, a server that is overloaded or broken, and any
    other exception say nothing about the promise.
    """
    if excinfo is None:
        return Outcome(result=Result.PASS)
    error = excinfo.value
    message = _message(error)
    if isinstance(error, EnvironmentBlocked):
        return Outcome(result=Result.BLOCKED, message=message)
    if isinstance(error, pytest.skip.Exception):
        return Outcome(result=Result.SKIPPED, message=message)
    if when == "call" and _is_broken_promise(error):
        return Outcome(result=Result.FAIL, message=message, symptom_of=getattr(error, SYMPTOM, ""))
    return Outcome(result=Result.ERROR, message=f"in {when}: {type(error).__name__}: {message}")


def _is_broken_promise(error: BaseException) -> bool:
    if isinstance(error, ApiError):
        return 400 <= error.status < 500 and error.status not in _TROUBLE
    return isinstance(error, AssertionError) or _is_verdict(error)


def _is_verdict(error: BaseException) -> bool:
    """Whether it is `pytest.fail`, or `pytest.raises` around what was not refused; not pytest-timeout's."""
    return isinstance(error, pytest.fail.Exception) and "from pytest-timeout" not in str(error)


def with_deviation(outcome: Outcome, known: Deviation | None, today: datetime.date) -> Outcome:
    """Apply a known deviation, strictly: it must fail while known, and is no excuse once expired."""
    if known is None:
        return outcome
    link = known.issue
    if outcome.result is Result.PASS:
        message = f"expected to fail because of {link}, but it passed: {known.summary} Is it fixed here?"
        return outcome.model_copy(update={"result": Result.FAIL, "message": message})
    if outcome.result is not Result.FAIL:
        return outcome
    if outcome.symptom_of != known.issue:
        message = f"{outcome.message}\nthis is not what the known deviation {link} looks like"
        return outcome.model_copy(update={"message": message})
    if known.expired(today):
        message = f"{outcome.message}\nthe known deviation {link} expired on {known.expires}"
        return outcome.model_copy(update={"message": message})
    message = f"known deviation {link}: {known.summary}\n{outcome.message}"
    return outcome.model_copy(update={"result": Result.EXPECTED_FAIL, "message": message})


def deviation_of(item: pytest.Item, catalogue: Catalogue, kubernetes: str) -> Deviation | None:
    """The known deviation that the check is marked with, if this version has it.

    Raises:
        pytest.UsageError: no requirement of the check has such a deviation in the catalogue.
    """
    mark = item.get_closest_marker("deviation")
    if mark is None:
        return None
    ids = [name for each in item.iter_markers("requirement") for name in each.args]
    for requirement in (catalogue.get(name) for name in ids):
        if any(known.issue == mark.args[0] for known in requirement.deviations):
            known = requirement.deviation_for(kubernetes)
            return known if known and known.issue == mark.args[0] else None
    raise pytest.UsageError(f"{item.nodeid}: {mark.args[0]} is no deviation of {', '.join(ids)}")


def _message(error: BaseException) -> str:
    # pytest's assertion rewriting puts the expression first; the rest of its explanation is in the details.
    text = str(error).strip() or type(error).__name__
    return re.sub(r"\n{2,}", "\n", text)
