"""Runs every mutant driver against the checks that it must break: `python -m mutants [QUIRK ...]`.

One cluster of each profile serves all mutants. A mutant is killed if every requirement that it breaks fails.
Prints the table requirement x mutant and the score; ends with 1 if a mutant survives.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from clusters.interface import Profile
from harness import events, journal
from harness.results import Result, worst
from suites.catalogue import load

_COMMAND = (sys.executable, "-m", "cli.main")
_TABLE = Path(__file__).parent / "drivers.yaml"


@dataclass(frozen=True)
class Verdict:
    """What a mutant did to one requirement."""

    quirk: str
    requirement: str
    result: Result

    @property
    def killed(self) -> bool:
        """Whether the requirement's checks noticed."""
        return self.result is Result.FAIL


def main() -> None:
    """Run the mutants that are named, or all."""
    table: Mapping[str, Sequence[str]] = yaml.safe_load(_TABLE.read_text(encoding="utf-8"))
    unknown = sorted(set(sys.argv[1:]) - set(table))
    if unknown:
        sys.exit(f"{_TABLE.name}: no mutant {', '.join(unknown)}; there are: {', '.join(table)}")
    wanted = {quirk: table[quirk] for quirk in sys.argv[1:] or table}
    verdicts = [verdict for profile in Profile for verdict in _run_on(profile, wanted)]
    killed = sum(verdict.killed for verdict in verdicts)
    survivors = [verdict for verdict in verdicts if not verdict.killed]
    print(f"{killed} of {len(verdicts)} killed ({killed / max(1, len(verdicts)):.0%})")
    for verdict in survivors:
        print(f"survived: {verdict.quirk} on {verdict.requirement}: {verdict.result}")
    sys.exit(1 if survivors else 0)


def _run_on(profile: Profile, table: Mapping[str, Sequence[str]]) -> Iterator[Verdict]:
    catalogue = load()
    own = {
        quirk: [name for name in names if catalogue.get(name).profile is profile]
        for quirk, names in table.items()
    }
    if not any(own.values()):
        return
    with _cluster(profile) as cluster, tempfile.TemporaryDirectory() as results:
        for quirk, names in own.items():
            if names:
                for verdict in _run(cluster, quirk, names, Path(results)):
                    sign = "killed" if verdict.killed else "SURVIVED"
                    print(
                        f"{verdict.requirement:<7} {verdict.quirk:<32} {verdict.result:<14} {sign}",
                        flush=True,
                    )
                    yield verdict


@contextmanager
def _cluster(profile: Profile) -> Iterator[str]:
    name = f"mutants-{profile}-{os.getpid()}"
    subprocess.run([*_COMMAND, "up", name, "--profile", profile], check=True, stdout=subprocess.DEVNULL)
    try:
        yield name
    finally:
        subprocess.run([*_COMMAND, "down", name], check=True, stdout=subprocess.DEVNULL)


def _run(cluster: str, quirk: str, names: Sequence[str], results: Path) -> Iterator[Verdict]:
    subprocess.run(
        [*_COMMAND, "run", *names, "--cluster", cluster, "--quirk", quirk, "--run-id", quirk],
        check=False,
        capture_output=True,
        env={**os.environ, "DRA_HARNESS_RESULTS": str(results)},
    )
    finished = [each for each in journal.read(results / quirk) if isinstance(each, events.CheckFinished)]
    for name in names:
        yield Verdict(quirk, name, worst(each.result for each in finished if name in each.requirements))


if __name__ == "__main__":
    main()
