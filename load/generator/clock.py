"""Seconds since the epoch that never jump."""

from __future__ import annotations

import time
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
