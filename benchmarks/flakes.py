"""Checks several times in a row: `python -m benchmarks.flakes [RUNS] [AREA|REQUIREMENT ...]`, all by default.

Every run has another seed, so another order. Ends with 1 if any check came out differently in any run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.main_job import area_seconds
from harness import events, journal


def main() -> None:
    """Run, compare, print."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    terms = sys.argv[2:]
    outcomes: dict[str, dict[str, list[int]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, runs + 1):
            run_dir = Path(folder) / str(number)
            done = _run(run_dir, terms)
            if not (run_dir / journal.FILE_NAME).exists():
                sys.exit(f"run {number}: exit {done.returncode}, nothing ran:\n{done.stderr[-2000:]}")
            log = journal.read(run_dir)
            finished = [event for event in log if isinstance(event, events.CheckFinished)]
            for ended in finished:
                outcomes.setdefault(ended.check, {}).setdefault(ended.result, []).append(number)
            seconds = area_seconds(run_dir)
            print(
                f"run {number:>2}: exit {done.returncode}, {len(finished)} checks, {seconds:.1f} s",
                flush=True,
            )
            _explain(ended for ended in finished if ended.result not in ("pass", "expected-fail"))
            for fault in (event for event in log if isinstance(event, events.HarnessFault)):
                print(f"  harness fault: {fault.message[:1000]}", flush=True)
    different = {check: results for check, results in outcomes.items() if len(results) > 1}
    for check, results in sorted(different.items()):
        print(f"differs: {check}: {results}")
    print(f"{runs} runs, {len(outcomes)} checks, {len(different)} of them not the same every time")
    sys.exit(1 if different else 0)


def _run(run_dir: Path, terms: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cli.main", "run", *terms, "--run-id", run_dir.name],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "DRA_HARNESS_RESULTS": str(run_dir.parent)},
    )


def _explain(troubled: Iterable[events.CheckFinished]) -> None:
    for event in troubled:
        print(f"  {event.result} {event.check}: {event.message[:1000]}", flush=True)


if __name__ == "__main__":
    main()
