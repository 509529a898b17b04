"""`load.json`, the result of a load run, as plain JSON: reports know no other room."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import UsageError

FILE_NAME = "load.json"
COMPARISON = "comparison.json"
VERSION = 1

Json = Mapping[str, Any]

VERDICTS = {
    "PASS": "every gate was met",
    "FAIL": "a gate was not met",
    "INVALID": "the numbers can't be trusted; nothing is said about the cluster",
}
CAUSES = {
    "completed": "ran its course and released its devices",
    "dropped-by-generator": "never sent: the generator was at its own limit",
    "apf-rejected": "the create was answered 429 by priority and fairness",
    "quota-denied": "the create was answered 403: quota exceeded",
    "quota-conflict": "the create was answered 409: the quota object was contended",
    "refused": "another 4xx answer",
    "server-error": "a 5xx answer",
    "unreachable": "no answer",
    "no-claim": "accepted, but no claim was made from its template",
    "not-allocated": "its claim was not allocated in time",
    "not-bound": "it was not bound in time",
    "not-running": "it was not running in time",
    "evicted": "deleted by the device taint eviction",
    "vanished": "deleted by somebody else",
    "lost-with-worker": "its generator worker died: never sent, or nobody saw its end",
    "not-released": "deleted, but it or a claim of it stayed",
}
"""What each cause says, in the order of the ledger."""


def read(run_dir: Path, name: str = FILE_NAME) -> Json:
    """The document of a run.

    Raises:
        UsageError: if the folder has none, or one of another version.
    """
    path = run_dir / name
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: not the folder of a load run ({error.strerror})") from error
    except ValueError as error:
        raise UsageError(f"{path}: no JSON: {error}") from error
    if not isinstance(document, dict) or document.get("version", VERSION) != VERSION:
        raise UsageError(f"{path}: version: expected {VERSION}")
    return document


def time(seconds: float | None) -> str:
    """A latency for people, with three digits: `870 us`, `12.3 ms`, `1.05 s`."""
    if seconds is None:
        return "-"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 0.9995:
        return f"{_three(seconds * 1e3)} ms"
    return f"{_three(seconds)} s"


def figure(value: Json | None) -> str:
    """A figure with its unit; `>=` where unfinished work is in it."""
    if value is None:
        return "-"
    number, unit = value["value"], value["unit"]
    text = (
        time(number) if unit == "s" else f"{_plain(number)}{' ' if unit not in ('', '/s', '%') else ''}{unit}"
    )
    return f">= {text}" if value["at_least"] else text


def share(value: float | None) -> str:
    """A share of the whole, or a change, in percent."""
    return "-" if value is None else f"{100 * value:.1f} %"


def change(value: float | None) -> str:
    """A change in percent, with its sign."""
    return "-" if value is None else f"{100 * value:+.1f} %"


def causes(trial: Json) -> list[tuple[str, int]]:
    """The ledger, in its own order, without what never happened."""
    counts = trial["causes"]
    order = [*CAUSES, *(cause for cause in counts if cause not in CAUSES)]
    return [(cause, counts[cause]) for cause in order if counts.get(cause)]


def verdicts(comparison: Json) -> str:
    """How the runs of both sides ended; nothing where the comparison doesn't say."""
    sides = comparison.get("verdicts") or {}
    words = (("baseline", "before"), ("candidate", "after"))
    return "; ".join(f"{word} {_counts(sides[side])}" for side, word in words if side in sides)


def grounds(comparison: Json) -> list[str]:
    """What is a regression besides the measures."""
    broken = comparison.get("broken") or {}
    told = [f"broken after, never before: {name} in {', '.join(runs)}" for name, runs in broken.items()]
    return told + [
        f"failed by every run after and none before: {gate}" for gate in comparison.get("failed") or ()
    ]


def ledger_name(trials: Sequence[Json], trial: Json) -> str:
    """How a trial is called in a heading: nothing where there is only one."""
    return str(trial["name"]) if len(trials) > 1 else ""


def trial_notes(run: Json) -> list[str]:
    """What was noted in the main trial, and in each that something is wrong with."""
    trials = run["trials"]
    wrong = [check for check in run["checks"] if not check["ok"] and not check["known"]]
    names = {check["trial"] for check in wrong} | {check["name"].partition(".")[0] for check in wrong}
    chosen = [trial for trial in trials if trial is trials[0] or trial["name"] in names]
    return [
        f"{name}: {note}" if (name := ledger_name(trials, trial)) else note
        for trial in chosen
        for note in trial["notes"]
    ]


def main_rows(trial: Json) -> list[Json]:
    """The stages over all kinds of pods in the measured window."""
    return [row for row in trial["stages"] if row["window"] == "measured" and not row["kind"]]


def _counts(verdicts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())


def _three(number: float) -> str:
    digits = 2 if number < 9.995 else 1 if number < 99.95 else 0
    return f"{number:.{digits}f}"


def _plain(number: float) -> str:
    if number == int(number) and abs(number) < 1e15:
        return str(int(number))
    return f"{number:.3g}" if abs(number) < 1000 else f"{number:.0f}"
