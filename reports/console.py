"""The run on the terminal: a line for each check and a progress bar while it goes on, then a summary."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from harness import events
from harness.results import Result
from reports.console_summary import plain, print_summary, status_text
from reports.interface import Reporter
from reports.run import Run
from reports.text import duration, short_name

_TROUBLE = (Result.FAIL, Result.ERROR)


class ConsoleReporter(Reporter):
    """Writes to one Rich console.

    Rich leaves out colour for `NO_COLOR` and where there is no terminal; without a terminal there is no
    progress bar either, only plain lines that are never cut.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._progress = Progress(
            SpinnerColumn("line"),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task("planning", total=None)
        self._total = 0
        self._done: set[str] = set()

    def handle(self, event: events.Event) -> None:
        """Show one event. The progress bar is there while a cluster is."""
        match event:
            case events.RunStarted():
                areas = ", ".join(event.areas) or "all areas"
                self._say(
                    f"dra-harness {event.suite_version}: run {event.run_id}, seed {event.seed}, {areas}"
                )
            case events.PlanMade():
                self._plan(event)
            case events.ClusterReady():
                self._cluster(event)
            case events.CheckStarted():
                self._progress.start()  # again, where the end of another cluster took it away
                self._progress.update(self._task, description=plain(self._console, short_name(event.check)))
            case events.CheckFinished():
                self._check(event)
            case events.ClusterGone():
                self.close()
                self._say(f"cluster {event.name}: taken down in {duration(event.seconds)}")
            case events.HarnessFault():
                self._say(f"harness fault: {event.message}", "bold magenta")
            case events.RunFinished():
                self.close()

    def write(self, run: Run, run_dir: Path) -> list[Path]:
        """Print the summary; writes no file."""
        self.close()
        print_summary(self._console, run, run_dir)
        return []

    def close(self) -> None:
        """Take the progress bar away; needed only where a run ends without its last event."""
        self._progress.stop()

    def _say(self, text: str, style: str = "") -> None:
        self._console.print(Text(plain(self._console, text), style=style), soft_wrap=True)

    def _plan(self, event: events.PlanMade) -> None:
        to_run = {check for item in event.requirements if item.decision is None for check in item.checks}
        self._total = len(to_run)
        self._progress.update(self._task, description="first checks", total=self._total)
        decisions = [item.decision for item in event.requirements if item.decision is not None]
        parts = [f"{decisions.count(kind)} {kind}" for kind in Result if kind in decisions]
        left_out = f" ({', '.join(parts)})" if parts else ""
        self._say(f"plan: {len(event.requirements)} requirements{left_out}, {self._total} checks to run")

    def _cluster(self, event: events.ClusterReady) -> None:
        self._progress.start()
        count = len(event.nodes)
        nodes = f"{count} node" if count == 1 else f"{count} nodes"
        self._say(
            f"cluster {event.name}: {event.kubernetes}, profile {event.profile}, {nodes}, "
            f"ready in {duration(event.seconds)}"
        )

    def _check(self, event: events.CheckFinished) -> None:
        self._done.add(event.check)
        self._progress.update(self._task, completed=len(self._done))
        line = Text()
        if not self._console.is_terminal:
            line.append(f"[{len(self._done)}/{self._total}] ")
        line.append_text(status_text(self._console, event.result, width=15))
        line.append(f"{duration(event.seconds):>9}  ")
        line.append(plain(self._console, " ".join(event.requirements)), style="bold")
        line.append(plain(self._console, f" {short_name(event.check)}"))
        self._console.print(line, soft_wrap=True)
        if event.result in _TROUBLE:
            for text in event.message.strip().splitlines()[:2]:
                self._say(f"    {text}")
