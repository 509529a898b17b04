"""What `dra-harness compare` finds between real runs: `python -m benchmarks.compare_runs [--runs 5]`.

One cluster, three sets of runs in turn: two of the cluster as it is, one of a worse cluster. Once its
scheduler stands still for a part of the time, which costs latency; once its controller manager, which limits
the rate, allows itself so much less that the rate is a tenth lower.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from benchmarks.main_job import timed
from clusters import processes
from clusters.components import BuildSource
from clusters.local.provider import LocalProvider
from clusters.local.state import ClusterState
from clusters.metrics import CONTROLLER_MANAGER, SCHEDULER
from harness.kube import KubeClient
from harness.regularly import regularly
from harness.waiting import wait_until
from load import limits
from load.compare import Comparison, compare
from load.request import LimitSet
from load.result import LoadResult, read

_CLUSTER = "bench-compare"
_PROFILES = Path(__file__).parent / "profiles"
_BASE, _SAME, _SLOWED = SIDES = ("base", "same", "slowed")
_EVERY = 5.0


@contextmanager
def standing_still(seconds: float) -> Iterator[None]:
    """The scheduler is stopped for so many seconds out of every five."""
    scheduler = psutil.Process(_scheduler())

    def stop_once() -> bool:
        scheduler.suspend()
        threading.Event().wait(seconds)
        scheduler.resume()
        return True

    with regularly("standing-still", _EVERY - seconds, stop_once):
        yield


@contextmanager
def claim_requests(qps: int) -> Iterator[None]:
    """The controller manager, which makes the claims, allows itself so many requests per second."""
    flags = limits.Limits(qps, qps).flags
    LocalProvider(BuildSource()).restart(_CLUSTER, CONTROLLER_MANAGER, flags=flags)
    yield


@dataclass(frozen=True)
class Injection:
    """A load, and how the cluster is while it runs, on the sides that are alike and on the other one."""

    name: str
    profile: str
    rate: float
    """Pods offered per second."""
    usual: Callable[[], AbstractContextManager[None]]
    slowed: Callable[[], AbstractContextManager[None]]
    measure: str
    """What it changes."""
    as_stranger: bool = False
    """The runs know a kubeconfig only: they can neither see the components' limits nor set them."""


INJECTIONS = (
    Injection("latency", "template-rate", 20, nullcontext, partial(standing_still, 0.5), "bound.p99"),
    Injection(
        "throughput",
        "template-limited",
        40,
        partial(claim_requests, 50),
        partial(claim_requests, 44),  # not all are for claims: a tenth of the rate
        "rate.bound",
        as_stranger=True,
    ),
)
_WARM_UP = Injection("warm-up", "template-rate", 20, nullcontext, nullcontext, "")


def main() -> None:
    """Run all of it, and print what each comparison found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="on each side")
    parser.add_argument("--seconds", type=int, default=12, help="measured part of a run")
    parser.add_argument("--only", choices=[each.name for each in INJECTIONS])
    parser.add_argument("--results", type=Path, help="folder that keeps the runs; default: they are deleted")
    options = parser.parse_args()
    timed("up", _CLUSTER, "--nodes", "1", "--simulated-nodes", "100")
    try:
        with nullcontext(options.results) if options.results else tempfile.TemporaryDirectory() as folder:
            results = Path(folder)
            _open_limits()
            _load(_WARM_UP, results, "warm-up", 5)
            for injection in INJECTIONS:
                if options.only in (None, injection.name):
                    _compare(injection, results, options.runs, options.seconds)
    finally:
        timed("down", _CLUSTER)


def _compare(injection: Injection, results: Path, runs: int, seconds: int) -> None:
    sets: dict[str, list[LoadResult]] = {side: [] for side in SIDES}
    for number in range(1, runs + 1):
        for side in SIDES:
            with (injection.slowed if side == _SLOWED else injection.usual)():
                run_id = f"{injection.name}-{side}-{number}"
                sets[side].append(_load(injection, results, run_id, seconds))
    for side, target in ((_SAME, "no regression"), (_SLOWED, "regression")):
        _print(injection, side, compare(sets[_BASE], sets[side]), target)


def _load(injection: Injection, results: Path, run_id: str, seconds: int) -> LoadResult:
    profile = _PROFILES / f"{injection.profile}.yaml"
    cluster = ["--cluster", _CLUSTER]
    if injection.as_stranger:
        cluster = ["--kubeconfig", str(ClusterState.load(_CLUSTER).cluster().kubeconfig)]
    command = [sys.executable, "-m", "cli.main", "load", str(profile), *cluster]
    options = ["--rate", str(injection.rate), "--seconds", str(seconds), "--run-id", run_id]
    environment = {**os.environ, "DRA_HARNESS_RESULTS": str(results)}
    subprocess.run([*command, *options], check=False, stdout=subprocess.DEVNULL, env=environment)
    return read(results / run_id)


def _open_limits() -> None:
    """Bring components under the limits of all runs: else each would restart them, and again afterwards."""
    cluster = ClusterState.load(_CLUSTER).cluster()
    kube = KubeClient.from_kubeconfig(cluster.kubeconfig)
    limits.apply(LocalProvider(BuildSource()), cluster, kube, LimitSet.OPEN)


def _scheduler() -> int:
    cluster = ClusterState.load(_CLUSTER).id
    return wait_until(
        lambda: processes.main_pid(cluster, SCHEDULER, SCHEDULER), 10, "the scheduler's process"
    )


def _print(injection: Injection, side: str, found: Comparison, target: str) -> None:
    print(f"{injection.name}, {_BASE} and {side}: {found.outcome} (expected: {target})")
    for row in found.rows:
        if row.judged:
            medians = f"{row.baseline_median:.4g} -> {row.candidate_median:.4g} {row.unit}"
            mark = "*" if row.measure == injection.measure else " "
            change = f"{row.change:>+8.1%}  p {row.p:.3f}"
            print(f"  {mark} {row.measure:<16} {medians:<28} {change}  {row.finding}")
    for note in found.notes:
        print(f"  {note}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
