"""The clock of a trial, and the files that a generator's process leaves."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import psutil
import pytest

from clusters import processes
from harness.errors import HarnessError
from harness.waiting import wait_until
from load.model import Burst, Snapshot
from load.process import GeneratorProcess, TrialClock
from tests.load.world import orders


def snapshot(elapsed: float) -> str:
    return Snapshot(
        at=1000 + elapsed,
        elapsed=elapsed,
        phase="measured",
        offered_rate=1,
        intended=1,
        accepted=1,
        bound=1,
        completed=0,
        in_flight=1,
        causes={},
    ).model_dump_json()


@pytest.fixture
def generator(tmp_path: Path) -> GeneratorProcess:
    """A generator that ends at once, since its credentials are not there."""
    process = GeneratorProcess(
        orders(bursts=[Burst(at=0, pods=1)]), tmp_path / "trial", f"test-{os.getpid()}"
    )
    wait_until(lambda: process.ended, 60, "the generator to end")
    return process


def test_the_time_is_the_generators() -> None:
    clock = TrialClock()
    assert clock.elapsed() < 0

    clock.started(time.time() - 5)

    assert 5 <= clock.elapsed() < 60
    assert clock.until(5)


def test_nobody_waits_for_a_trial_that_is_over() -> None:
    clock = TrialClock()
    results: list[bool] = []
    waiters = [
        threading.Thread(target=lambda: results.append(clock.until(3600))),
        threading.Thread(target=lambda: results.append(clock.pause(3600))),
    ]
    for waiter in waiters:
        waiter.start()

    clock.stop()

    for waiter in waiters:
        waiter.join(60)
    assert results == [False, False]
    assert clock.over


def test_until_waits_for_the_start() -> None:
    clock = TrialClock()
    waited: list[bool] = []
    waiter = threading.Thread(target=lambda: waited.append(clock.until(0.0)))
    waiter.start()
    waiter.join(0.2)
    assert not waited

    clock.started(time.time())

    waiter.join(60)
    assert waited == [True]


@pytest.mark.process
def test_a_generator_without_credentials_says_why(generator: GeneratorProcess) -> None:
    """Its report says that nothing was sent, and why; never does it look like a run."""
    report = generator.report()

    assert report.faults
    assert not report.intended


@pytest.mark.process
def test_a_generator_that_left_no_report_shows_the_end_of_its_log(
    generator: GeneratorProcess, tmp_path: Path
) -> None:
    (tmp_path / "trial" / "generator.json").unlink()
    (tmp_path / "trial" / "generator.log").write_text("the reason\n")

    with pytest.raises(HarnessError, match=r"left no report[\s\S]*the reason"):
        generator.report()


@pytest.mark.process
def test_progress_is_read_line_by_line_and_once(generator: GeneratorProcess, tmp_path: Path) -> None:
    file = tmp_path / "trial" / "progress.ndjson"
    first, second = snapshot(1), snapshot(2)
    file.write_text(f"{first}\n{second[:10]}")
    assert [each.elapsed for each in generator.progress()] == [1]
    assert not generator.progress()

    file.write_text(f"{first}\n{second}\n")

    assert [each.elapsed for each in generator.progress()] == [2]
    assert [each.elapsed for each in generator.snapshots] == [1, 2]


@pytest.mark.process
def test_progress_of_hours_is_not_read_again_and_again(generator: GeneratorProcess, tmp_path: Path) -> None:
    file = tmp_path / "trial" / "progress.ndjson"
    file.write_text(f"{snapshot(1)}{' ' * 1_000_000}\n")
    assert len(generator.progress()) == 1

    before = psutil.Process().io_counters().read_chars
    for _ in range(10):
        assert not generator.progress()

    assert psutil.Process().io_counters().read_chars - before < 1_000_000


@pytest.mark.process
def test_an_ended_generator_can_be_interrupted_and_killed(generator: GeneratorProcess) -> None:
    generator.interrupt()
    generator.kill()

    assert not processes.find(f"test-{os.getpid()}")
