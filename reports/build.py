"""All file reports of a finished, or killed, run: rebuilt from its `events.ndjson` alone."""

from __future__ import annotations

from pathlib import Path

from harness import journal
from reports.html import HtmlReporter
from reports.interface import Reporter
from reports.junit import JUnitReporter
from reports.run import Run
from reports.summary import SummaryReporter

FILE_REPORTERS: tuple[Reporter, ...] = (JUnitReporter(), HtmlReporter(), SummaryReporter())
"""In this order: the summary comes last, as it holds the checksums of the others."""


def build(run_dir: Path) -> list[Path]:
    """Write every file report of a run into its folder, over any earlier one; return their paths.

    Raises:
        UsageError: if the folder holds no run.
    """
    run = Run.from_events(journal.read(run_dir))
    return [path for reporter in FILE_REPORTERS for path in reporter.write(run, run_dir)]
