"""Seconds since the epoch that never jump, and what another machine's clock makes of them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """Says what time it is: seconds since the epoch."""

    def __call__(self) -> float:
        """Now."""
        ...


class SteadyClock:
    """The wall clock, read once, then the monotonic one: a clock set in mid-run must not bend latencies."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        """Now, in seconds since the epoch."""
        return self._offset + time.monotonic()


@dataclass(frozen=True)
class Offset:
    """How another machine's clock differs from ours."""

    seconds: float
    """What it shows beyond ours at the same moment."""
    uncertainty: float
    """Half of the time that the question and the answer were under way: it can't be off by more."""


NO_OFFSET = Offset(0.0, 0.0)


def offset(asked: float, received: float, replied: float, answered: float) -> Offset:
    """Read another clock by one question and its answer, as NTP does (RFC 5905, section 8).

    Args:
        asked: our clock, when we asked.
        received: the other clock, when the question came.
        replied: the other clock, when it answered.
        answered: our clock, when the answer came.
    """
    under_way = (answered - asked) - (replied - received)
    return Offset(((received - asked) + (replied - answered)) / 2, max(0.0, under_way) / 2)
