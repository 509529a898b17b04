"""When a quota is taken to be in force."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.kube import ApiError
from harness.waiting import WaitTimeout
from suites.quotas import wait_refused

COUNTING = ApiError("POST", "/claims", 403, "status unknown for quota: quota, resources: gpu")
OTHER = ApiError("POST", "/claims", 403, "exceeded quota: other, requested: nic=1, limited: nic=0")
BROKEN = ApiError("POST", "/claims", 500, "exceeded quota: gpu=1 in a stack trace")
EXCEEDED = ApiError("POST", "/claims", 403, "exceeded quota: quota, requested: gpu=1, limited: gpu=0")


def answering(*answers: ApiError | None) -> Callable[[], object]:
    """A dry run with these answers, the last one again and again; None accepts."""
    left = list(answers)

    def create() -> object:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if answer is not None:
            raise answer
        return {}

    return create


def test_it_is_once_admission_refuses_for_what_was_to_be_refused() -> None:
    words = wait_refused(answering(COUNTING, None, OTHER, None, EXCEEDED), "gpu=", deadline=20)
    assert words == EXCEEDED.message


@pytest.mark.parametrize("answer", [None, COUNTING, OTHER, BROKEN])
def test_it_is_not_while_admission_accepts_or_refuses_something_else(answer: ApiError | None) -> None:
    with pytest.raises(WaitTimeout, match="quota to refuse a dry run"):
        wait_refused(answering(answer), "gpu=", deadline=0.1)
