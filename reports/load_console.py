"""A load run, and a comparison, on the terminal; the verdict is the last line."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from reports import load_document as document
from reports.console_summary import plain
from reports.load_document import Json
from reports.text import duration

_STYLES = {"PASS": "bold green", "FAIL": "bold red", "INVALID": "bold yellow"}
_OUTCOMES = {"no regression": "bold green", "regression": "bold red", "too few runs": "bold yellow"}
_ARMS = 40
"""Trials that are listed; of more the rest is in the HTML report."""


def print_run(console: Console, run: Json, run_dir: Path) -> None:
    """Print what a load run found."""
    trials = run["trials"]
    if len(trials) > 1:
        _trials(console, trials)
    _trial(console, trials[0], document.ledger_name(trials, trials[0]))
    _requirements(console, run)
    for note in (*document.trial_notes(run), *run["notes"]):
        _say(console, note, "dim")
    report = run_dir / "report.html"
    if report.exists():
        _say(console, f"\nreport: {report}")
    for check in run["checks"]:
        if check["known"]:
            _say(console, f"  known: {check['message']}: {check['known']}", "yellow")
    for reason in run["reasons"]:
        _say(console, f"  {reason}")
    name = f"{run['profile']} {run['size']}, limits {run['limits']}, in {duration(run['seconds'])}"
    line = Text(run["verdict"], style=_STYLES.get(run["verdict"], "bold"))
    console.print(line.append(plain(console, f" {name}"), style="not bold default"), soft_wrap=True)


def print_comparison(console: Console, comparison: Json) -> None:
    """Print what a comparison found."""
    sides = f"{len(comparison['baseline'])} runs before, {len(comparison['candidate'])} after"
    _heading(console, f"{comparison['profile']}: {sides}")
    for key, (before, after) in comparison["differences"].items():
        _say(console, f"meant to differ: {key}: {before}, {after}", "dim")
    if verdicts := document.verdicts(comparison):
        _say(console, f"verdicts: {verdicts}")
    table = _Table(
        "measure", "before", "after", "change", "95 % interval", "p", "floor", "detectable", "finding"
    )
    for row in comparison["rows"]:
        table.add_row(
            *(plain(console, cell) for cell in _cells(row)), Text(row["finding"], style=_finding(row))
        )
    table.print(console)
    for ground in document.grounds(comparison):
        _say(console, ground, "bold red")
    for note in comparison["notes"]:
        _say(console, f"note: {note}")
    outcome = comparison["outcome"]
    console.print(Text(outcome.upper(), style=_OUTCOMES.get(outcome, "bold")))


def _cells(row: Json) -> list[str]:
    def value(number: float) -> str:
        return document.figure({"value": number, "unit": row["unit"], "at_least": row["at_least"]})

    return [
        row["measure"],
        value(row["baseline_median"]),
        value(row["candidate_median"]),
        document.change(row["change"]),
        f"{document.change(row['low'])} to {document.change(row['high'])}",
        f"{row['p']:.4f}",
        document.share(row["floor"]),
        document.share(row["detectable"]),
    ]


def _finding(row: Json) -> str:
    return {"regression": "bold red", "improvement": "green", "no change": "green"}.get(row["finding"], "dim")


def _trials(console: Console, trials: list[Json]) -> None:
    _heading(console, "Trials")
    table = _Table(
        "trial", "offered/s", "bound/s", "bound p50", "bound p99", "never bound", "completed", "pods"
    )
    for trial in trials[:_ARMS]:
        bound = next((row for row in document.main_rows(trial) if row["stage"] == "bound"), None)
        table.add_row(
            Text(plain(console, trial["name"])),
            f"{trial['rates']['offered']:.1f}",
            f"{trial['rates']['bound']:.1f}",
            document.figure(bound and bound["p50"]),
            document.figure(bound and bound["p99"]),
            str(bound["censored"]) if bound else "-",
            str(trial["causes"].get("completed", 0)),
            str(trial["intended"]),
        )
    table.print(console)
    if len(trials) > _ARMS:
        _say(console, f"and {len(trials) - _ARMS} more in the report", "dim")


def _trial(console: Console, trial: Json, name: str) -> None:
    _heading(console, f"Rates{' of ' + name if name else ''}, pods/s")
    _say(console, ", ".join(f"{key} {value:.1f}" for key, value in trial["rates"].items()))
    generator, host = trial["generator"], trial["host"]
    late = f"sent late p99 {document.time(generator['lateness_p99'])}"
    machine = f", machine {document.share(host['cpu'])} busy" if host else ""
    _say(console, f"{late}, generator {generator['cpu_seconds']:.1f} s of CPU{machine}", "dim")
    _heading(console, "Latency")
    table = _Table("stage", "n", "p50", "p90", "p99", "p99.9", "max", "never came")
    for row in document.main_rows(trial):
        quantiles = [document.figure(row[key]) for key in ("p50", "p90", "p99", "p999", "max")]
        table.add_row(row["stage"], str(row["count"]), *quantiles, str(row["censored"] or ""))
    table.print(console)
    _heading(console, f"Ledger of {trial['intended']} pods")
    for cause, count in document.causes(trial):
        _say(console, f"{count:>8}  {cause}: {document.CAUSES.get(cause, '')}")
    for line in trial["books"]:
        if line["client"] != line["server"] or line["name"] == "answers 429":
            server = "not known" if line["server"] is None else line["server"]
            _say(console, f"{line['client']:>8}  {line['name']}; {server} by {line['source']}", "dim")
    for key, value in trial["figures"].items():
        _say(console, f"{key}: {document.figure(value)}")


def _requirements(console: Console, run: Json) -> None:
    if not run["requirements"]:
        return
    _heading(console, "Requirements")
    for each in run["requirements"]:
        _say(console, f"{each['requirement']:8}{each['result']:10}{each['message']}")


def _heading(console: Console, title: str) -> None:
    console.print()
    console.print(Text(plain(console, title), style="bold underline"))


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(Text(plain(console, text), style=style), soft_wrap=True)


class _Table:
    """Columns as wide as they need to be: lines that are too long are the terminal's to wrap."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._rows: list[list[Text]] = []

    def add_row(self, *cells: str | Text) -> None:
        self._rows.append([cell if isinstance(cell, Text) else Text(cell) for cell in cells])

    def print(self, console: Console) -> None:
        rows = [[Text(name, style="dim") for name in self._names], *self._rows]
        widths = [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = [
                self._padded(cell, width, number)
                for number, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            line = Text("  ").join(cells)
            line.rstrip()
            console.print(line, soft_wrap=True)

    def _padded(self, cell: Text, width: int, number: int) -> Text:
        left = number == 0 or self._names[number] == "finding"
        padded = cell.copy()
        (padded.pad_right if left else padded.pad_left)(width - cell.cell_len)
        return padded
