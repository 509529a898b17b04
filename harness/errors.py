"""The three ways a run can go wrong, and the exit codes they end in."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """What the process says to its caller; fixed, documented in the README."""

    PASSED = 0
    FAILED = 1
    USAGE = 2
    BLOCKED = 3
    HARNESS_ERROR = 4


class HarnessError(Exception):
    """The harness itself failed: its own process, file or assumption."""

    exit_code = ExitCode.HARNESS_ERROR


class UsageError(HarnessError):
    """The user asked for something that can't be: a bad flag, file, name or machine.

    The message names the file and key (where there is one) and what was expected. Nothing was changed.
    """

    exit_code = ExitCode.USAGE


class EnvironmentBlocked(HarnessError):
    """The cluster or machine lacks something that a check needs; the message names it."""

    exit_code = ExitCode.BLOCKED


class RequirementFailed(AssertionError):
    """A promise was not kept.

    Args:
        expected: what the promise says, in words.
        observed: what was seen instead.
        obj: the Kubernetes object concerned, as JSON, if there is one.
    """

    def __init__(self, expected: str, observed: str, obj: object | None = None) -> None:
        super().__init__(f"expected: {expected}\nobserved: {observed}")
        self.expected = expected
        self.observed = observed
        self.obj = obj
