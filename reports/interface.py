"""The seam between a run and its reports. A new report is one file with one `Reporter` in it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from harness.events import Event
from reports.run import Run


class Reporter(Protocol):
    """Consumes the events of a run and nothing else.

    A live reporter overrides `handle`, a file reporter `write`; a subclass inherits the other as a no-op.
    """

    def handle(self, event: Event) -> None:
        """Take one event while the run goes on, in the order of `events.ndjson`."""
        return

    def write(self, run: Run, run_dir: Path) -> list[Path]:
        """Report a run from all of its events and return the files written, all of them in `run_dir`.

        The same run gives the same bytes, however often it is written.
        """
        return []
