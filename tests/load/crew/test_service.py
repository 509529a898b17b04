"""Whole runs with workers that are processes of their own, against a stand-in for an API server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from harness.waiting import wait_until
from load.crew.key import ensure_key
from load.crew.parcel import Parcel
from load.crew.reception import Bind, Reception
from load.model import Orders, Segment, WorkerReport
from load.process import GeneratorProcess
from tests.load.generator.apiserver import ApiServer, serving
from tests.load.generator.running import ALL_COMPLETED, counts, kubeconfig, orders
from tests.support.ports import two_free_ports

pytestmark = pytest.mark.process

TOKEN = "a-token-that-nobody-may-see"
LONG = [Segment(seconds=600, start=20, end=20)]


@dataclass
class Run:
    """A reception for two, and the processes of `load-worker`."""

    root: Path
    server: ApiServer
    reception: Reception
    workers: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def key(self) -> Path:
        return self.root / "key"

    def start_workers(self) -> None:
        (self.root / "tmp").mkdir()
        for name in ("alpha", "beta"):
            options = ["--port", str(self.reception.bind.port), "--key", str(self.key), "--name", name]
            self.workers.append(
                subprocess.Popen(
                    [sys.executable, "-m", "cli.main", "load-worker", *options],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    env={**os.environ, "TMPDIR": str(self.root / "tmp"), "NO_COLOR": "1"},
                )
            )
        self.reception.wait(60)

    def orders(self, **changes: object) -> Orders:
        kubeconfig(self.root, f"http://127.0.0.1:{self.server.port}", user={"token": TOKEN})
        made = orders(self.root, "", **changes)
        path = self.root / "kubeconfig"
        return made.model_copy(update={"sender_kubeconfig": path, "observer_kubeconfig": path})

    def trial(self, name: str, ordered: Orders) -> GeneratorProcess:
        master = GeneratorProcess(
            ordered, self.root / name, f"dist-{os.getpid()}", workers=2, master=self.reception.bind
        )
        self.reception.hand_out(Parcel.of(name, ordered))
        return master

    def unpacked(self) -> list[Path]:
        return list((self.root / "tmp").iterdir())

    def generator_of(self, worker: subprocess.Popen[str]) -> psutil.Process:
        (child,) = psutil.Process(worker.pid).children()
        return child


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with serving() as server:
        key = ensure_key(tmp_path / "key")
        with Reception(Bind(port=two_free_ports()), key, 2, print) as reception:
            made = Run(tmp_path, server, reception)
            yield made
        for worker in made.workers:
            worker.kill()
            worker.communicate()


def finished(master: GeneratorProcess, within: float = 60) -> WorkerReport:
    wait_until(lambda: master.ended, within, "the trial's end")
    return master.report()


def said(worker: subprocess.Popen[str], within: float = 60) -> tuple[int, str]:
    out, _ = worker.communicate(timeout=within)
    return worker.returncode, out


def test_workers_serve_one_trial_after_the_other_and_go_home_with_the_run(run: Run) -> None:
    run.start_workers()

    reports = [finished(run.trial(name, run.orders(run_id=f"run-{name}"))) for name in ("01-a", "02-b")]
    wait_until(lambda: not run.unpacked(), 60, "credentials to be removed after their trial")
    run.reception.close()
    outcomes = [said(worker) for worker in run.workers]

    assert [(each.workers, each.faults, counts(each)) for each in reports] == [(2, [], ALL_COMPLETED)] * 2
    assert len(set(run.server.created)) == 80
    assert run.server.authorizations == {f"Bearer {TOKEN}"}
    for code, out in outcomes:
        assert code == 0
        assert re.findall(r"^trial (.*)$", out, re.MULTILINE) == ["01-a", "02-b"]
        assert "the run is over" in out
        assert TOKEN not in out
        assert run.key.read_text().strip() not in out
    for path in run.root.rglob("*"):
        told = path.is_file() and path.name != "kubeconfig" and TOKEN.encode() in path.read_bytes()
        assert not told, f"{path} has the token in it"


def test_a_worker_that_dies_makes_the_run_invalid_with_its_name_and_the_books_closed(run: Run) -> None:
    run.start_workers()
    master = run.trial("01-a", run.orders(segments=[Segment(seconds=9, start=20, end=20)]))
    wait_until(lambda: any(each.intended > 40 for each in master.progress()), 60, "the load")
    generator = run.generator_of(run.workers[0])
    run.workers[0].kill()
    generator.kill()
    report = finished(master)

    (fault,) = report.faults
    assert re.fullmatch(r"worker alpha was lost \d+ s after the start", fault)
    assert counts(report) == {"completed": 90, "lost-with-worker": 90}
    wait_until(lambda: run.reception.names == ["beta (127.0.0.1)"], 60, "alpha to be missed")


def test_a_worker_that_is_stopped_by_hand_reports_and_says_so(run: Run) -> None:
    run.start_workers()
    master = run.trial("01-a", run.orders(segments=[Segment(seconds=9, start=20, end=20)]))
    wait_until(lambda: any(each.intended > 40 for each in master.progress()), 60, "the load")
    run.workers[0].send_signal(signal.SIGINT)
    report = finished(master)

    assert said(run.workers[0])[0] == 130
    assert report.workers == 2
    assert report.faults == ["SIGINT in the middle of the run"]
    assert counts(report).keys() == {"completed"}
    assert 100 < report.intended < 180, "half of the arrivals ended early"


def test_workers_end_within_seconds_when_the_run_is_gone(run: Run) -> None:
    """Its sockets close with a killed process; here they are closed without a word, and the master killed."""
    run.start_workers()
    master = run.trial("01-a", run.orders(segments=LONG))
    wait_until(lambda: any(each.intended > 40 for each in master.progress()), 60, "the load")
    master.kill()
    for guest in run.reception._present():
        guest.channel.close()
    gone = time.monotonic()
    outcomes = [said(worker) for worker in run.workers]

    assert time.monotonic() - gone < 60
    assert [code for code, _ in outcomes] == [3, 3]
    assert all("is gone: " in out for _, out in outcomes)
    assert not run.unpacked()
    assert not run.server.pods, "they deleted their pods first"


def test_a_generator_that_cannot_work_is_told_of(run: Run) -> None:
    run.start_workers()
    nonsense = run.orders().model_copy(update={"segments": []})
    run.reception.hand_out(Parcel.of("01-a", nonsense))

    wait_until(
        lambda: [each for each in run.reception._incidents if "segments: expected at least one" in each],
        60,
        "the reason",
    )
