"""From the watches to the books."""

from __future__ import annotations

from collections.abc import Callable

from load.generator.watching import Object, Target
from load.model import Gap
from load.tracker import Tracker


class Feed:
    """Passes one watch's news to the tracker; what comes before there is one waits for it.

    The watches have to be open before the start of the load is known, and the tracker counts from that.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._tracker: Tracker | None = None
        self._early: list[Callable[[], None]] = []
        self._on_event: Callable[[str, Object, float], None] = self._wait_with

    def attach(self, tracker: Tracker) -> None:
        """The tracker is there: it hears what came so far, and everything from now on."""
        handlers = {"pods": tracker.pod_event, "claims": tracker.claim_event, "slices": tracker.slice_event}
        self._tracker = tracker
        self._on_event = handlers[self._target.kind]
        for early in self._early:
            early()
        self._early.clear()

    def event(self, type_: str, obj: Object, at: float) -> None:
        """One watch event."""
        self._on_event(type_, obj, at)

    def relisted(self, objects: list[Object], began: float, at: float) -> None:
        """The full state of the target."""
        if self._tracker is None:
            self._early.append(lambda: self.relisted(objects, began, at))
        else:
            self._tracker.relisted(self._target.kind, objects, at, began=began)

    def gap(self, gap: Gap) -> None:
        """The watch was away."""
        if self._tracker is None:
            self._early.append(lambda: self.gap(gap))
        else:
            self._tracker.gap(gap)

    def _wait_with(self, type_: str, obj: Object, at: float) -> None:
        self._early.append(lambda: self.event(type_, obj, at))
