"""Progress of a bring-up that nobody watches."""

from __future__ import annotations


class Silent:
    """Shows nothing."""

    def components(self, phase: str, done: int, total: int, text: str) -> None:
        """Nothing is shown."""

    def reached(self, phase: str, seconds: float) -> None:
        """Nothing is shown."""
