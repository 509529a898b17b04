"""The one way to wait: poll a probe until it holds, within a deadline, and say what was last seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import tenacity

T = TypeVar("T")

_FIRST_INTERVAL = 0.1
_LONGEST_INTERVAL = 0.5
_SHARE = 0.1
"""Of the time that was waited already, the interval that is added to it at most."""


class WaitTimeout(AssertionError):
    """The deadline passed. Carries the description and the last observation."""

    def __init__(self, describe: str, seconds: float, last: object) -> None:
        super().__init__(f"waited {seconds:g} s for {describe}; last seen: {last}")
        self.describe = describe
        self.seconds = seconds
        self.last = last


class NotYet(Exception):
    """Raised by a probe to say "not yet", with what it saw.

    Args:
        seen: any value, or a function for what is costly to find out: it is called once the wait ran out.
    """

    def __init__(self, seen: object) -> None:
        super().__init__(str(seen))
        self.seen = seen


def wait_until(
    probe: Callable[[], T | None],
    deadline: float,
    describe: str,
    *,
    interval: float | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Call `probe` until it returns something truthy, and return that.

    Args:
        probe: returns the awaited value, or a falsy value or `NotYet(seen)` while it isn't there.
        deadline: seconds from now; the probe is always called at least once.
        describe: what is awaited, for the error message.
        interval: seconds between two calls; None starts with 0.1 and grows to 0.5 with the time waited.
        sleep: injected by tests.

    Raises:
        WaitTimeout: with the last observation, once the deadline has passed.
        Exception: whatever the probe raises besides `NotYet`.
    """
    last: object = "nothing"

    def attempt() -> T:
        nonlocal last
        try:
            value = probe()
        except NotYet as not_yet:
            last = not_yet.seen
            raise
        if not value:
            last = value
            raise NotYet(value)
        return value

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(NotYet),
        stop=tenacity.stop_after_delay(deadline),
        wait=_growing if interval is None else tenacity.wait_fixed(interval),
        sleep=sleep,
    )
    try:
        return retrying(attempt)
    except tenacity.RetryError:
        raise WaitTimeout(describe, deadline, last() if callable(last) else last) from None


def _growing(state: tenacity.RetryCallState) -> float:
    waited = state.seconds_since_start or 0.0
    return min(_LONGEST_INTERVAL, max(_FIRST_INTERVAL, _SHARE * waited))
