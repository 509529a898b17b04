"""The main job's three times, and the cluster's memory: `python -m benchmarks.main_job`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from clusters import processes
from clusters.local.state import ClusterState
from harness import events, journal

_COMMAND = [sys.executable, "-m", "cli.main"]
_NAME = "bench"
_TARGETS = {"up": 20.0, "extended-resource": 120.0, "down": 10.0}
_MEMORY_TARGET_MIB = 1536.0


def main() -> None:
    """Bring a cluster up, run the area on it, take it down; print what each took."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder)
        figures["up"] = timed("up", _NAME)
        try:
            memory = _memory_mib(ClusterState.load(_NAME).id)
            subprocess.run(
                [*_COMMAND, "run", "extended-resource", "--cluster", _NAME, "--run-id", _NAME],
                check=False,
                env={**os.environ, "DRA_HARNESS_RESULTS": str(results)},
            )
            figures["extended-resource"] = area_seconds(results / _NAME)
        finally:
            figures["down"] = timed("down", _NAME)
    print(f"{'figure':<20} {'measured':>10} {'target':>10} {'ratio':>6}")
    for name, seconds in figures.items():
        _print(name, seconds, _TARGETS[name], "s")
    _print("memory when idle", memory, _MEMORY_TARGET_MIB, "MiB")


def area_seconds(run_dir: Path) -> float:
    """From the start of a run's first check to the end of its last one."""
    log = journal.read(run_dir)
    first = next(event.at for event in log if isinstance(event, events.CheckStarted))
    last = max(event.at for event in log if isinstance(event, events.CheckFinished))
    return (last - first).total_seconds()


def timed(*arguments: str) -> float:
    """Run one command of the harness; seconds that it took."""
    started = time.monotonic()
    subprocess.run([*_COMMAND, *arguments], check=True)
    return time.monotonic() - started


def _memory_mib(cluster_id: str) -> float:
    pids = [process.pid for process in processes.find(cluster_id)]
    return sum(psutil.Process(pid).memory_full_info().pss for pid in pids) / 2**20


def _print(name: str, measured: float, target: float, unit: str) -> None:
    print(f"{name:<20} {measured:>6.1f} {unit:<3} {target:>6.0f} {unit:<3} {measured / target:>6.2f}")


if __name__ == "__main__":
    main()
