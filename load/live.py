"""The live view of a load run: a table that is drawn over on a terminal, else a line every few seconds."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from clusters.interface import Progress as BringUpProgress
from harness.redaction import redact
from load.model import UNFINISHED, Cause, Snapshot

LINE_EVERY = 5.0
"""Seconds between plain lines."""
_RATE_OVER = 5.0
"""Seconds that the achieved rate is taken over."""


class LiveView:
    """Shows a load run while it goes on; a `load.request.Listener`.

    Rich leaves out colour for `NO_COLOR` and where there is no terminal. Without one nothing is drawn over.

    Args:
        console: where to; stderr, so that stdout is the report's.
        bring_up: shows the cluster's bring-up.
    """

    def __init__(self, console: Console, bring_up: BringUpProgress) -> None:
        self._console = console
        self._bring_up = bring_up
        self._recent: deque[Snapshot] = deque()
        self._live: Live | None = None
        self._shown_at = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bring_up(self) -> BringUpProgress:
        """Shows the cluster's bring-up."""
        return self._bring_up

    def said(self, text: str) -> None:
        """A line of its own, above the table."""
        self._console.print(Text(redact(text)), soft_wrap=True)

    def progress(self, snapshot: Snapshot) -> None:
        """Show the latest figures."""
        if self._recent and snapshot.elapsed < self._recent[-1].elapsed:
            self._recent.clear()  # the next trial began
            self._shown_at = float("-inf")
        self._recent.append(snapshot)
        while len(self._recent) > 2 and snapshot.elapsed - self._recent[1].elapsed >= _RATE_OVER:
            self._recent.popleft()
        if self._console.is_terminal:
            self._draw(snapshot)
        elif snapshot.elapsed - self._shown_at >= LINE_EVERY:
            self._shown_at = snapshot.elapsed
            self._console.print(Text(line(snapshot, self.achieved())), soft_wrap=True)

    def achieved(self) -> float:
        """Pods bound per second, over the last seconds."""
        if not self._recent:
            return 0.0
        first, last = self._recent[0], self._recent[-1]
        if first is last:
            return last.bound / last.elapsed if last.elapsed > 0 else 0.0
        return (last.bound - first.bound) / max(last.elapsed - first.elapsed, 1e-9)

    def close(self) -> None:
        """Leave the last state on the terminal, and draw no more."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self, snapshot: Snapshot) -> None:
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(table(snapshot, self.achieved()), refresh=True)


def line(snapshot: Snapshot, achieved: float) -> str:
    """The figures in one line, for logs."""
    figures = ", ".join(f"{name} {value}" for name, value in _figures(snapshot, achieved))
    causes = ", ".join(f"{cause} {count}" for cause, count in _causes(snapshot))
    return f"{snapshot.elapsed:6.0f} s  {snapshot.phase}: {figures}" + (f"; {causes}" if causes else "")


def table(snapshot: Snapshot, achieved: float) -> Table:
    """The figures as a table of two columns, for a terminal."""
    shown = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    shown.add_column(style="dim", no_wrap=True)
    shown.add_column(no_wrap=True)
    shown.add_row(f"{snapshot.elapsed:.0f} s", Text(snapshot.phase, style="bold"))
    for name, value in _figures(snapshot, achieved):
        shown.add_row(name, value)
    for cause, count in _causes(snapshot):
        shown.add_row(cause, Text(str(count), style=_style(cause)))
    return shown


def _figures(snapshot: Snapshot, achieved: float) -> list[tuple[str, str]]:
    return [
        ("offered", f"{snapshot.offered_rate:.1f}/s"),
        ("achieved", f"{achieved:.1f}/s"),
        ("in flight", str(snapshot.in_flight)),
        ("bound p99", _time(snapshot.bound_p99)),
        ("sent late p99", _time(snapshot.lateness_p99)),
        ("pods", f"{snapshot.intended} due, {snapshot.bound} bound, {snapshot.completed} done"),
    ]


def _causes(snapshot: Snapshot) -> list[tuple[Cause, int]]:
    """Everything but success, the most frequent first."""
    found = [
        (cause, count) for cause, count in snapshot.causes.items() if count and cause is not Cause.COMPLETED
    ]
    return sorted(found, key=lambda each: (-each[1], each[0]))


def _style(cause: Cause) -> str:
    if cause in (Cause.DROPPED_BY_GENERATOR, Cause.LOST_WITH_WORKER):
        return "bold magenta"
    return "yellow" if cause in UNFINISHED else "red"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
