"""The summary at the end of a run on the terminal; the verdict is its last line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

from rich.console import Console, OverflowMethod
from rich.table import Table
from rich.text import Text

from harness.errors import ExitCode
from harness.events import CheckFinished
from harness.results import Result
from reports.run import UNFINISHED, Requirement, Run
from reports.text import LOOKS, VERDICTS, by_folder, duration, links, printable, short_name, split_message

_SLOWEST = 10
_FILES = 3
"""Files of one folder that are named; for more it is the folder."""
_LONG = 600
"""Characters of one piece of a failure's text; the rest is in the HTML report."""


def plain(console: Console, text: str) -> str:
    """A text without control characters, and only with what the console's encoding has."""
    return printable(text).encode(console.encoding, "replace").decode(console.encoding)


def status_text(console: Console, status: str, *, width: int = 0) -> Text:
    """A status as symbol and word, in ASCII where the console can't show more."""
    look = LOOKS[status]
    symbol = look.ascii if console.options.ascii_only else look.symbol
    return Text(f"{symbol} {status}".ljust(width), style=look.style)


def print_summary(console: Console, run: Run, run_dir: Path) -> None:
    """Print what the run found, from the general to what needs action, and the verdict."""
    _requirements(console, run)
    _failures(console, run)
    _deviations(console, run)
    _reasons(console, run)
    _areas(console, run)
    _slowest(console, run)
    _clusters(console, run)
    _totals(console, run, run_dir)


def _heading(console: Console, title: str) -> None:
    console.print()
    console.print(Text(title, style="bold underline"))


def _line(console: Console, text: str | Text, indent: int = 2, *, whole: bool = False) -> None:
    """Print one paragraph, indented. `whole` ones (paths and links) are never broken by a wrap."""
    content = Text(plain(console, text)) if isinstance(text, str) else text
    lines = [content] if whole else content.wrap(console, max(20, console.width - indent))
    for line in lines:
        console.print(Text(" " * indent) + line, soft_wrap=True)


def _requirements(console: Console, run: Run) -> None:
    if not run.requirements:
        return
    _heading(console, "Requirements")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("ID", no_wrap=True)
    table.add_column("level", no_wrap=True)
    table.add_column("result", no_wrap=True)
    table.add_column("checks", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    others = max(len(item.id) for item in run.requirements) + 50
    overflow: OverflowMethod = "crop" if console.options.ascii_only else "ellipsis"
    room = max(10, console.width - others)
    table.add_column("promise", no_wrap=True, overflow=overflow, max_width=room)
    for item in run.requirements:
        table.add_row(
            Text(plain(console, item.id), style="bold"),
            plain(console, item.plan.level),
            status_text(console, item.status),
            f"{item.passed}/{item.total}" if item.total else "",
            duration(item.seconds) if item.checks else "",
            Text(plain(console, item.plan.text), style="dim"),
        )
    console.print(table)


def _failures(console: Console, run: Run) -> None:
    bad = [check for check in run.checks if check.result in (Result.FAIL, Result.ERROR)]
    if not (bad or run.faults or run.unfinished):
        return
    _heading(console, "Failures and errors")
    for check in bad:
        _check_title(console, check)
        message = split_message(check.message)
        for label, text in (
            ("", message.lead),
            ("expected", message.expected),
            ("observed", message.observed),
        ):
            if text:
                _line(console, _labelled(console, label, text), 4)
        _issues(console, check)
        _artifacts(console, check)
    for fault in run.faults:
        _line(console, _labelled(console, "harness fault", fault.message))
    for name in run.unfinished:
        _line(console, status_text(console, UNFINISHED) + Text(plain(console, f" {name}")))


def _check_title(console: Console, check: CheckFinished) -> None:
    title = status_text(console, check.result)
    title.append(f" {' '.join(check.requirements)} ", style="bold")
    title.append(plain(console, check.check))
    _line(console, title)


def _labelled(console: Console, label: str, text: str) -> Text:
    cut = text if len(text) <= _LONG else text[:_LONG] + " [cut; whole in report.html]"
    line = Text(f"{label}: " if label else "", style="bold")
    return line.append(plain(console, cut), style="not bold")


def _artifacts(console: Console, check: CheckFinished) -> None:
    for where, names in by_folder(check.artifacts).items():
        folder = f"{where}/" if where else ""
        if len(names) > _FILES:
            _line(console, f"see: {folder or './'} ({len(names)} files)", 4, whole=True)
        else:
            for name in names:
                _line(console, f"see: {folder}{name}", 4, whole=True)


def _deviations(console: Console, run: Run) -> None:
    known = [check for check in run.checks if check.result == Result.EXPECTED_FAIL]
    if not known:
        return
    _heading(console, "Known deviations (expected-fail)")
    for check in known:
        _check_title(console, check)
        text = check.message
        for address in links(text):
            text = text.replace(address, "")
        if text.strip(" :.,\n"):
            _line(console, _labelled(console, "", text.strip(" :.,\n")), 4)
        _issues(console, check)


def _issues(console: Console, check: CheckFinished) -> None:
    for address in links(check.message):
        _line(console, f"issue: {address}", 4, whole=True)


def _reasons(console: Console, run: Run) -> None:
    """Blocked, unsupported and skipped, with all requirements of one reason together."""
    statuses = (Result.BLOCKED, Result.UNSUPPORTED, Result.SKIPPED)
    found = [(item, status, reason) for status in statuses for item, reason in _why(run, status)]
    if not found:
        return
    _heading(console, "Not run")
    ordered = sorted(found, key=lambda entry: (statuses.index(entry[1]), entry[2]))
    for (status, reason), entries in groupby(ordered, key=lambda entry: (entry[1], entry[2])):
        names = list(dict.fromkeys(item.id for item, _, _ in entries))
        line = status_text(console, status).append(f" {_ranges(names)}: ", style="not dim bold")
        _line(console, line.append(plain(console, reason or "no reason given"), style="not bold not dim"))


def _why(run: Run, status: Result) -> list[tuple[Requirement, str]]:
    planned = [(item, item.plan.reason) for item in run.requirements if item.plan.decision == status]
    at_run_time = [
        (item, check.message.strip().partition("\n")[0])
        for item in run.requirements
        for check in item.checks
        if check.result == status and item.plan.decision is None
    ]
    return planned + at_run_time


def _ranges(names: list[str]) -> str:
    """`ER-01..03, ER-07`: runs of three and more consecutive IDs in short."""
    parts: list[str] = []
    index = 0
    while index < len(names):
        end = index
        while end + 1 < len(names) and _follows(names[end], names[end + 1]):
            end += 1
        if end - index >= 2:
            parts.append(f"{names[index]}..{re.sub(r'^.*[^0-9]', '', names[end])}")
        else:
            parts += names[index : end + 1]
        index = end + 1
    return ", ".join(parts)


def _follows(first: str, second: str) -> bool:
    one, two = (re.fullmatch(r"(.*?)(\d+)", name) for name in (first, second))
    return one is not None and two is not None and one[1] == two[1] and int(two[2]) == int(one[2]) + 1


def _areas(console: Console, run: Run) -> None:
    if len(run.areas) < 2:
        return
    _heading(console, "Time per area")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("area", no_wrap=True)
    for title in ("checks", "time in checks", "first to last"):
        table.add_column(title, justify="right", no_wrap=True)
    for area in run.areas:
        times = (duration(area.seconds), duration(area.elapsed))
        table.add_row(plain(console, area.name), str(len(area.checks)), *times)
    console.print(table)


def _slowest(console: Console, run: Run) -> None:
    if not run.checks:
        return
    _heading(console, "Slowest checks")
    for check in sorted(run.checks, key=lambda check: -check.seconds)[:_SLOWEST]:
        name = f"{' '.join(check.requirements)} {short_name(check.check)}"
        _line(console, f"{duration(check.seconds):>12}  {name}", 0, whole=True)


def _clusters(console: Console, run: Run) -> None:
    if not run.clusters:
        return
    _heading(console, "Clusters")
    for cluster in run.clusters:
        ready = cluster.ready
        down = f", down in {duration(cluster.gone.seconds)}" if cluster.gone else ""
        up = f"up in {duration(ready.seconds)}" if ready.seconds else "existed before"
        _line(console, f"{ready.name}: {ready.provider} {ready.kubernetes}, {ready.profile}, {up}{down}")
        if ready.phases:
            phases = ", ".join(f"{name} {duration(seconds)}" for name, seconds in ready.phases.items())
            _line(console, Text(plain(console, phases), style="dim"), 4)


def _totals(console: Console, run: Run, run_dir: Path) -> None:
    console.print()
    _count_line(console, "requirements", run.requirement_counts)
    _count_line(console, "checks", run.check_counts)
    report = run_dir / "report.html"
    if report.exists():
        _line(console, f"report: {report}", 0, whole=True)
    color = "green" if run.exit_code is ExitCode.PASSED else "red"
    word = VERDICTS[run.exit_code].upper()
    text = Text(word, style=f"bold {color}")
    text.append(
        plain(console, f" in {duration(run.seconds)}: {'; '.join(run.reasons())}"), style="not bold default"
    )
    _line(console, text, 0)


def _count_line(console: Console, what: str, counts: Mapping[str, int]) -> None:
    line = Text(f"{sum(counts.values())} {what}: ")
    for index, (status, count) in enumerate(counts.items()):
        line.append(", " if index else "")
        line.append(f"{count} {status}", style=LOOKS[status].style)
    _line(console, line, 0)
