"""A cluster on kind: `python -m benchmarks.kind`. It needs Docker; see README.md, "On kind"."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.main_job import area_seconds, timed

_NAME = "bench-kind"
_TARGET = 60.0


def main() -> None:
    """Bring clusters up, run the extended-resource area, take them down; print what each took."""
    subprocess.run([sys.executable, "-m", "cli.main", "node-image"], check=True)  # the image is to be at hand
    up = timed("up", _NAME, "--provider", "kind", "--nodes", "1")
    down = timed("down", _NAME)
    timed("up", _NAME, "--provider", "kind", "--nodes", "2")
    try:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "cli.main",
                    "run",
                    "extended-resource",
                    "--cluster",
                    _NAME,
                    "--run-id",
                    _NAME,
                ],
                check=False,
                env={**os.environ, "DRA_HARNESS_RESULTS": folder},
            )
            area = area_seconds(Path(folder) / _NAME)
    finally:
        timed("down", _NAME)
    print(f"one worker, driver published: {up:.1f} s (target {_TARGET:.0f} s, ratio {up / _TARGET:.2f})")
    print(f"extended-resource on two workers: {area:.1f} s")
    print(f"down: {down:.1f} s")


if __name__ == "__main__":
    main()
