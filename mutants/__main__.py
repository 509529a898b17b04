"""Proof that the checks can fail: `python -m mutants [NAME ...]` runs mutants against what they must break.

Prints every check with the mutants that killed it, and the score. Ends with 1 if a check did not notice a
mutant that breaks it, or if nothing killed a check and `survivors.yaml` gives no reason.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cli.options import DEFAULT_KUBERNETES
from harness.errors import HarnessError
from harness.results import Result
from mutants import matrix, table
from mutants.changes import Mutant
from suites import checks
from suites.checks import Check

AREAS = (
    "extended_resource",
    "apf",
    "quota",
    "taints",
    "metadata",
    "list_attributes",
    "numa",
    "prioritized_list",
    "core",
    "lifecycle",
)
"""Folders whose checks are all to be killed."""


def main() -> None:
    """Run the mutants that are named, or all."""
    options = _parser().parse_args()
    try:
        mutants = _chosen(options.names)
        found = checks.collect()
        made = matrix.jobs(mutants, found, area=options.area)
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            results = Path(options.results or folder)
            run = (
                matrix.on_cluster(options.cluster, made, results)
                if options.cluster
                else matrix.run(made, results, options.kubernetes)
            )
            verdicts = [_show(verdict, options.verbose) for verdict in run]
    except HarnessError as error:
        sys.exit(f"mutants: {error}")
    survived = [each for each in verdicts if each.wanted and not each.killed]
    strays = [each for each in verdicts if each.stray]
    unproven = [] if options.names else _score(found, verdicts, table.survivors())
    for each in survived:
        print(f"SURVIVED {each.mutant}: {each.check.id}: {each.result}: {each.message.splitlines()[:1]}")
    for each in strays:
        print(f"STRAY    {each.mutant} also broke {each.check.id}: {each.message.splitlines()[:1]}")
    sys.exit(1 if survived or strays or unproven else 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="mutants; all, if none is named")
    parser.add_argument("--cluster", help="use this cluster, for trying a mutant")
    parser.add_argument("--kubernetes", default=DEFAULT_KUBERNETES, help="version of the clusters")
    parser.add_argument("--area", action="store_true", help="run drivers against the whole areas they break")
    parser.add_argument("--results", help="keep the runs' folders here")
    parser.add_argument("--verbose", "-v", action="store_true", help="show why checks failed")
    return parser


def _chosen(names: Sequence[str]) -> list[Mutant]:
    mutants = table.load()
    if unknown := sorted(set(names) - {mutant.name for mutant in mutants}):
        sys.exit(f"mutants: no mutant {', '.join(unknown)}; there are: {', '.join(m.name for m in mutants)}")
    return [mutant for mutant in mutants if mutant.name in names or not names]


def _show(verdict: matrix.Verdict, verbose: bool) -> matrix.Verdict:
    sign = "killed" if verdict.killed else "SURVIVED" if verdict.wanted else "untouched"
    if verdict.wanted or verdict.killed:
        print(f"{sign:<9} {verdict.mutant:<34} {verdict.check.id} ({verdict.result})", flush=True)
        if verbose:
            print("    " + verdict.message.replace("\n", "\n    "), flush=True)
    return verdict


def _score(
    found: Iterable[Check], verdicts: Sequence[matrix.Verdict], excused: Mapping[str, str]
) -> list[Check]:
    """Print each check with what killed it; return those that nothing killed and nobody excused."""
    own = [check for check in found if check.id.split("/")[0] in AREAS]
    killers: dict[str, list[str]] = {check.id: [] for check in own}
    for verdict in verdicts:
        if verdict.killed or verdict.result is Result.EXPECTED_FAIL:
            # A known deviation is a release that breaks the promise for real.
            name = verdict.mutant if verdict.killed else "the release itself"
            killers[verdict.check.id].append(name)
    unproven = []
    for check in sorted(own, key=lambda check: (check.requirements, check.id)):
        reason = next((why for start, why in excused.items() if check.id.startswith(start)), None)
        by = ", ".join(dict.fromkeys(killers[check.id])) or (f"excused: {reason}" if reason else "NOTHING")
        if not killers[check.id] and reason is None:
            unproven.append(check)
        print(f"{','.join(check.requirements):<16} {check.id:<90} {by}")
    killed = sum(bool(names) for names in killers.values())
    print(f"{killed} of {len(own)} checks killed ({killed / max(1, len(own)):.1%})")
    return unproven


if __name__ == "__main__":
    main()
