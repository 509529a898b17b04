"""How a check says that a promise was not kept: always what was expected and what was observed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from harness.errors import EnvironmentBlocked, RequirementFailed
from harness.kube import Object
from harness.waiting import WaitTimeout

SYMPTOM = "symptom_of"
"""Attribute of an exception: the issue whose known deviation it shows."""


def expect_equal(promise: str, observed: Any, expected: Any, obj: Object | None = None) -> None:
    """Require a value.

    Args:
        promise: what is promised, in words.
        observed: what was seen.
        expected: what it has to be.
        obj: the Kubernetes object concerned; it is kept with the diagnostics.

    Raises:
        RequirementFailed: they differ.
    """
    if observed != expected:
        raise RequirementFailed(f"{promise}: {expected!r}", repr(observed), obj)


def expect(promise: str, kept: object, observed: Any, obj: Object | None = None) -> None:
    """Require something of what was observed.

    Raises:
        RequirementFailed: `kept` is falsy.
    """
    if not kept:
        raise RequirementFailed(promise, repr(observed), obj)


def field(obj: Object, *path: str) -> Any:
    """A field that the object is promised to have.

    Raises:
        RequirementFailed: it isn't there.
    """
    value: Any = obj
    for key in path:
        if not isinstance(value, dict) or key not in value:
            name = obj.get("metadata", {}).get("name", "")
            raise RequirementFailed(
                f"{obj.get('kind', 'object')} {name} has {'.'.join(path)}", "it has not", obj
            )
        value = value[key]
    return value


@contextmanager
def symptom(issue: str, *texts: str) -> Iterator[None]:
    """Failures inside whose message has one of the texts are what a known deviation looks like.

    `@deviation(issue)` excuses these and no others: a check that fails in another way fails.
    """
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        if any(text in str(error) for text in texts):
            setattr(error, SYMPTOM, issue)
        raise


@contextmanager
def precondition(what: str) -> Iterator[None]:
    """What a check needs before it can look at its promise: failing here says nothing about that.

    Raises:
        EnvironmentBlocked: a wait inside ran out.
    """
    try:
        yield
    except WaitTimeout as error:
        raise EnvironmentBlocked(f"{what}: {error}") from error
