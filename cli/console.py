"""What the commands print, apart from reports: progress, tables, errors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from cli.options import Output
from harness.redaction import redact

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


class BringUpProgress:
    """Shows a bring-up on stderr: a bar while programs are built, a line for each phase."""

    def __init__(self, console: Console = err) -> None:
        self._console = console
        self._bar: Progress | None = None
        self._task: Any = None

    def components(self, phase: str, done: int, total: int, text: str) -> None:
        """A step of getting the programs."""
        if not self._console.is_terminal:
            if done in (0, total):
                self._say(f"{phase}: {text}")
            return
        if phase == "source":
            self._say(f"{phase}: {text}")
            return
        if self._bar is None:
            columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=20))
            self._bar = Progress(
                *columns, MofNCompleteColumn(), TimeElapsedColumn(), console=self._console, transient=True
            )
            self._bar.start()
            self._task = self._bar.add_task(text)
        self._bar.update(self._task, completed=done, total=total or None, description=text[:60])

    def reached(self, phase: str, seconds: float) -> None:
        """A phase of the bring-up."""
        self.close()
        self._say(f"{seconds:6.2f} s  {phase}")

    def warn(self, message: str) -> None:
        """Something is amiss."""
        self._say(f"warning: {redact(message)}")

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, soft_wrap=True)


def fail(message: str) -> None:
    """One clear error on stderr, without secrets."""
    err.print(f"error: {redact(message)}", style="bold red", markup=False, soft_wrap=True)


def show(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], output: Output) -> None:
    """Print rows as a table, JSON or YAML."""
    if output is Output.JSON:
        out.print_json(json.dumps(rows, default=str))
    elif output is Output.YAML:
        text = yaml.safe_dump(json.loads(json.dumps(rows, default=str)), sort_keys=False)
        out.print(text, markup=False, soft_wrap=True)  # a line that is wrapped is no YAML any more
    elif not rows:
        err.print("none")
    else:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column.upper(), overflow="fold")
        for row in rows:
            table.add_row(*(escape(str(row.get(column, ""))) for column in columns))
        out.print(table)
