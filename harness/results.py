"""What a check or a requirement can end in."""

from __future__ import annotations

import enum
from collections.abc import Iterable


class Result(enum.StrEnum):
    """The outcome of one check, and of one requirement (the worst of its checks)."""

    PASS = "pass"  # noqa: S105 - a result, not a password
    FAIL = "fail"
    UNSUPPORTED = "unsupported"
    """The cluster's version or the driver does not claim it."""
    SKIPPED = "skipped"
    """Left out because the user asked for that."""
    BLOCKED = "blocked"
    """The cluster lacks a gate, an API, nodes or hardware; the message names it."""
    ERROR = "error"
    """The harness's own fault: nothing is said about the cluster."""
    EXPECTED_FAIL = "expected-fail"
    """A known deviation with an issue link; it must fail, or the run fails."""
    NOT_COVERED = "not-covered"
    """No check exists for the requirement."""


_WORST_FIRST = (
    Result.FAIL,
    Result.ERROR,
    Result.EXPECTED_FAIL,
    Result.BLOCKED,
    Result.SKIPPED,
    Result.UNSUPPORTED,
    Result.PASS,
)


def worst(results: Iterable[Result]) -> Result:
    """Fold the results of a requirement's checks into one; no check at all is `NOT_COVERED`."""
    seen = set(results)
    return next((result for result in _WORST_FIRST if result in seen), Result.NOT_COVERED)
