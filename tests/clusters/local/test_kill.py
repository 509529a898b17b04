"""A harness killed at any moment leaves nothing that `down --all`, or the next `up`, does not remove."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.waiting import wait_until
from tests.support.commands import Command
from tests.support.machine import Machine, look

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

_KILLS = 6
_BRING_UP_SECONDS = 9.0


def _start(*arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "cli.main", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, **environment},
    )


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL the harness and what runs in its session (pytest and its workers), as the OOM killer might."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def untouched(state_dir: Path) -> Iterator[Machine]:
    """The machine before the test; afterwards it must be the same."""
    before = look(state_dir)
    yield before
    assert before.difference(look(state_dir)) == {}


def test_killed_during_up(untouched: Machine, state_dir: Path, dra_harness: Command) -> None:
    """SIGKILL at random moments of a bring-up; `down --all` after each."""
    seed = int(os.environ.get("KILL_SEED", random.randrange(2**31)))
    moments = random.Random(seed)
    print(f"seed {seed}")  # noqa: T201 - so that a failure can be repeated: KILL_SEED=<seed>
    for _ in range(_KILLS):
        process = _start("up", "killed")
        with_deadline = moments.uniform(0.3, _BRING_UP_SECONDS)
        try:
            process.wait(timeout=with_deadline)
        except subprocess.TimeoutExpired:
            _kill_group(process)
        assert dra_harness("down", "--all").returncode == 0
        left = untouched.difference(look(state_dir))
        assert left == {}, f"seed {seed}, killed after {with_deadline:.2f} s"


def test_killed_during_a_run(
    untouched: Machine, state_dir: Path, tmp_path: Path, dra_harness: Command
) -> None:
    """SIGKILL while checks run: the next `up` removes the run's cluster, drivers and pods."""
    results = tmp_path / "results"
    process = _start("run", "ER-01", "ER-06", "--run-id", "killed", DRA_HARNESS_RESULTS=str(results))
    events = results / "killed" / "events.ndjson"
    wait_until(
        lambda: events.exists() and "check-started" in events.read_text(), 120, "the first check to start"
    )
    drivers = state_dir / "clusters"
    sockets = "*/drivers/killed/*/control.sock"
    wait_until(lambda: list(drivers.glob(sockets)), 60, "a driver of a check to run")
    _kill_group(process)
    assert untouched.difference(look(state_dir)) != {}, "the run's cluster is still there"

    up = dra_harness("up", "next")
    assert up.returncode == 0, up.stderr
    left = [path.name for path in drivers.iterdir()]
    assert left == ["next"], "only the new cluster is left"
    assert dra_harness("down", "next").returncode == 0


def test_killed_during_down(untouched: Machine, state_dir: Path, dra_harness: Command) -> None:
    """SIGKILL while a cluster is taken down: `down --all` finishes the work."""
    assert dra_harness("up", "killed").returncode == 0
    process = _start("down", "killed")
    wait_until(
        lambda: process.poll() is not None or not (state_dir / "clusters" / "killed" / "pki").exists(),
        30,
        "the removal to begin",
        interval=0.005,
    )
    if process.poll() is None:
        _kill_group(process)
    assert dra_harness("down", "--all").returncode == 0


def test_files_removed_by_hand(untouched: Machine, state_dir: Path, dra_harness: Command) -> None:
    """The folder of a cluster that is up goes: `down --all` knows it by the machine's register."""
    assert dra_harness("up", "lost").returncode == 0

    def gone() -> bool:
        shutil.rmtree(state_dir, ignore_errors=True)  # its components may be writing still
        return not state_dir.exists()

    wait_until(gone, 30, "the files to be gone")
    assert dra_harness("down", "--all").returncode == 0
