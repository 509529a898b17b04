"""What a cluster of simulated nodes takes on this machine: `python -m benchmarks.load`.

Pods/s with open client-side limits and with those of the release, for claim templates and for extended
resources; what the generator itself costs; what limits the release's; and the time of 1,000 simulated nodes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.main_job import timed
from load.measures import measure
from load.request import LimitSet
from load.result import LoadResult, TrialResult, Verdict, read

_PROFILES = Path(__file__).parent / "profiles"
_NODES = 1000
_NODES_TARGET = 10.0
_RATE_TARGET = 45.0
_SHARE_TARGET = 0.15
_DEFAULT_RATE = ("--rate", "20", "--seconds", "25")
_UP = ("up", "bench-nodes", "--nodes", "1")


def main() -> None:
    """Run all of it, and print each figure beside its target."""
    print(f"{'figure':<44} {'measured':>12}   target", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("template", "extended"):
            _open(_load(Path(folder), kind, LimitSet.OPEN), kind)
            _default(_load(Path(folder), kind, LimitSet.DEFAULT, *_DEFAULT_RATE), kind)
    _nodes()


def _load(results: Path, kind: str, limits: LimitSet, *more: str) -> LoadResult:
    run_id = f"{kind}-{limits}"
    profile = _PROFILES / f"{kind}-rate.yaml"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "cli.main",
            "load",
            str(profile),
            "--limits",
            limits,
            "--run-id",
            run_id,
            *more,
        ],
        check=False,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "DRA_HARNESS_RESULTS": str(results)},
    )
    result = read(results / run_id)
    if result.verdict is Verdict.INVALID:
        print(f"{kind}, limits {limits}: INVALID: {'; '.join(result.reasons)}", flush=True)
    return result


def _open(result: LoadResult, kind: str) -> None:
    main = result.trials[0]
    _print(f"{kind}, limits open: pods/s bound", _bound(main), f">= {_RATE_TARGET:.0f}")
    share = main.generator.cpu_share
    said = "not known" if share is None else f"{share:.1%}"
    _print(f"{kind}, limits open: generator's share of CPU", said, f"<= {_SHARE_TARGET:.0%}")


def _default(result: LoadResult, kind: str) -> None:
    main = result.trials[0]
    _print(f"{kind}, limits default: pods/s bound", _bound(main), "7 to 11" if kind == "template" else "")
    waits = main.server.limiter if main.server else []
    for wait in sorted(waits, key=lambda each: each.mean, reverse=True)[:2]:
        _print(f"  wait in the limiter of {wait.component}", f"{wait.mean:.3f} s", "")


def _bound(trial: TrialResult) -> str:
    found = measure([trial], {}, "rate.bound")
    return "not known" if found is None else f"{found.value:.1f}"


def _nodes() -> None:
    """The difference of two bring-ups: with and without the simulated nodes."""
    alone = timed(*_UP)
    timed("down", _UP[1])
    together = timed(*_UP, "--simulated-nodes", str(_NODES))
    timed("down", _UP[1])
    _print(
        f"{_NODES} simulated nodes, of 8 devices each", f"{together - alone:.1f} s", f"{_NODES_TARGET:.0f} s"
    )


def _print(name: str, measured: str, target: str) -> None:
    print(f"{name:<44} {measured:>12}   {target}", flush=True)


if __name__ == "__main__":
    main()
