"""The one way to wait: poll a probe until it holds, within a deadline, and say what was last seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import tenacity

T = TypeVar("T")


class WaitTimeout(AssertionError):
    """The deadline passed. Carries the description and the last observation."""

    def __init__(self, describe: str, seconds: float, last: object) -> None:
        super().__init__(f"waited {seconds:g} s for {describe}; last seen: {last}")
        self.describe = describe
        self.seconds = seconds
        self.last = last


class NotYet(Exception):
    """Raised by a probe to say "not yet", with what it saw."""

    def __init__(self, seen: object) -> None:
        super().__init__(str(seen))
        self.seen = seen


def wait_until(
    probe: Callable[[], T | None],
    deadline: float,
    describe: str,
    *,
    interval: float = 0.1,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Call `probe` until it returns something truthy, and return that.

    Args:
        probe: returns the awaited value, or a falsy value or `NotYet(seen)` while it isn't there.
        deadline: seconds from now; the probe is always called at least once.
        describe: what is awaited, for the error message.
        interval: seconds between two calls.
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
        wait=tenacity.wait_fixed(interval),
        sleep=sleep,
    )
    try:
        return retrying(attempt)
    except tenacity.RetryError:
        raise WaitTimeout(describe, deadline, last) from None
