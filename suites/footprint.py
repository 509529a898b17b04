"""What each check creates on somebody else's cluster: a list taken from real runs, and held to.

`run --dry-run` shows it, and on such a cluster a check can create nothing that is not in it. So it can't
drift from what checks do: one that comes to do more is blocked, and CI compares the list with a run's events.

`python -m suites.footprint results/<run id> ...` writes the list anew, from runs on clusters of our own.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from harness import events
from harness.journal import read
from suites.checks import collect
from suites.naming import Names

FILE = Path(__file__).with_suffix(".yaml")
_ID, _NUMBER = "<id>", "<n>"
_OBJECT = re.compile(r"^/api(?:s/[^/]+)?/[^/]+/(?:namespaces/([^/]+)/)?([^/]+)/([^/]+)$")


def short(path: str) -> str:
    """An object's path in the API as `plural/name` or `plural/namespace/name`."""
    found = _OBJECT.match(path)
    return "/".join(part for part in (found[2], found[1], found[3]) if part) if found else path


def function_of(check: str) -> str:
    """A check's id without its parameters: they all create alike."""
    return check.partition("[")[0]


def pattern(obj: str, names: Names) -> str:
    """An object of `short` without what differs from run to run: the check's token, a number at the end."""
    return re.sub(r"\d+$", _NUMBER, obj.replace(names.token, _ID))


@functools.cache
def load() -> Mapping[str, tuple[str, ...]]:
    """The list: the function of each check -> patterns of what it creates."""
    listed: dict[str, list[str]] = yaml.safe_load(FILE.read_text(encoding="utf-8")) or {}
    return {function: tuple(patterns) for function, patterns in listed.items()}


def allows(check: str, names: Names, path: str) -> bool:
    """Whether a check may create an object at a path of the API."""
    return pattern(short(path), names) in load().get(function_of(check), ())


def of_run(check: str, run_id: str) -> list[str]:
    """What a check creates in a run, as `short` has it; a number that is not known before stays `<n>`."""
    token = Names(run_id, check).token
    return [each.replace(_ID, token) for each in load().get(function_of(check), ())]


def observed(log: Iterable[events.Event]) -> dict[str, list[str]]:
    """The list that a run's events come to."""
    found: dict[str, set[str]] = {}
    run_id = ""
    for event in log:
        if isinstance(event, events.RunStarted):
            run_id = event.run_id
        elif isinstance(event, events.CheckFinished) and event.created:
            names = Names(run_id, event.check)
            own = found.setdefault(function_of(event.check), set())
            own.update(pattern(each, names) for each in event.created)
    return {function: sorted(found[function]) for function in sorted(found)}


def main(runs: Iterable[str]) -> None:
    """Write the list, of checks that start no driver, from the events of runs."""
    anywhere = {function_of(check.id) for check in collect() if not check.driver}
    merged: dict[str, set[str]] = {}
    for run in runs:
        for function, patterns in observed(read(Path(run))).items():
            if function in anywhere:
                merged.setdefault(function, set()).update(patterns)
    text = yaml.safe_dump({function: sorted(merged[function]) for function in sorted(merged)})
    FILE.write_text(f"# Written by `python -m suites.footprint`; see there.\n{text}", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
