"""What `dra-harness compare` finds between real runs: `python -m benchmarks.compare_runs [--runs 5]`.

One cluster, three sets of runs in turn: two of the cluster as it is, one while a component stands still for a
part of the time. Once at a rate that the cluster can take, where that costs latency; once above what the
controller manager's own limiter lets through, where it costs throughput.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.main_job import timed
from clusters import processes
from clusters.local import state
from clusters.metrics import CONTROLLER_MANAGER, SCHEDULER
from load.compare import Comparison, compare
from load.request import LimitSet
from load.result import LoadResult, read

_CLUSTER = "bench-compare"
_PROFILE = Path(__file__).parent / "profiles" / "template-rate.yaml"
_BASE, _SAME, _SLOWED = SIDES = ("base", "same", "slowed")


@dataclass(frozen=True)
class Injection:
    """A component that stands still for some seconds out of every few."""

    name: str
    limits: LimitSet
    rate: float
    """Pods offered per second."""
    seconds: int
    """Of the measured part."""
    component: str
    still: float
    every: float
    measure: str
    """What it changes."""


INJECTIONS = (
    Injection("latency", LimitSet.OPEN, 20, 12, SCHEDULER, 0.5, 5.0, "bound.p99"),
    # Its limiter saves up 30 of the 40 requests that it could have made in 2 s: 90 in 5 s, instead of 100.
    Injection("throughput", LimitSet.DEFAULT, 15, 20, CONTROLLER_MANAGER, 2.0, 5.0, "rate.bound"),
)


def main() -> None:
    """Run all of it, and print what each comparison found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="on each side")
    parser.add_argument("--results", type=Path, help="folder that keeps the runs; default: they are deleted")
    options = parser.parse_args()
    timed("up", _CLUSTER, "--nodes", "1", "--simulated-nodes", "100")
    try:
        with nullcontext(options.results) if options.results else tempfile.TemporaryDirectory() as folder:
            for injection in INJECTIONS:
                _compare(injection, Path(folder), options.runs)
    finally:
        timed("down", _CLUSTER)


def _compare(injection: Injection, results: Path, runs: int) -> None:
    sets: dict[str, list[LoadResult]] = {side: [] for side in SIDES}
    for number in range(1, runs + 1):
        for side in SIDES:
            with _slowed(injection) if side == _SLOWED else nullcontext():
                run_id = f"{injection.name}-{side}-{number}"
                sets[side].append(_load(results, run_id, injection))
    for side, target in ((_SAME, "no regression"), (_SLOWED, "regression")):
        _print(injection, side, compare(sets[_BASE], sets[side]), target)


def _load(results: Path, run_id: str, injection: Injection) -> LoadResult:
    command = [sys.executable, "-m", "cli.main", "load", str(_PROFILE), "--cluster", _CLUSTER]
    options = ["--limits", injection.limits, "--rate", str(injection.rate)]
    options += ["--seconds", str(injection.seconds), "--run-id", run_id]
    environment = {**os.environ, "DRA_HARNESS_RESULTS": str(results)}
    subprocess.run([*command, *options], check=False, stdout=subprocess.DEVNULL, env=environment)
    return read(results / run_id)


@contextmanager
def _slowed(injection: Injection) -> Iterator[None]:
    ended = threading.Event()
    thread = threading.Thread(target=_stop_again_and_again, args=(injection, ended))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _stop_again_and_again(injection: Injection, ended: threading.Event) -> None:
    cluster = state.load(_CLUSTER).id
    process: psutil.Process | None = None
    while not ended.wait(injection.every - injection.still):
        if process is None or not process.is_running():  # a run restarts what has other limits
            pid = processes.main_pid(cluster, injection.component, injection.component)
            process = psutil.Process(pid) if pid else None
            continue
        process.suspend()
        ended.wait(injection.still)
        process.resume()


def _print(injection: Injection, side: str, found: Comparison, target: str) -> None:
    print(f"{injection.name}, {_BASE} and {side}: {found.outcome} (expected: {target})")
    for row in found.rows:
        if row.judged:
            medians = f"{row.baseline_median:.4g} -> {row.candidate_median:.4g} {row.unit}"
            mark = "*" if row.measure == injection.measure else " "
            print(
                f"  {mark} {row.measure:<16} {medians:<28} {row.change:>+8.1%}  p {row.p:.3f}  {row.finding}"
            )
    for note in found.notes:
        print(f"  {note}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
