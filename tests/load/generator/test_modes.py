"""The ways in which Locust runs: TLS, its web UI, a master and a worker of their own, its table."""

from __future__ import annotations

import base64
import http.client
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness.waiting import wait_until
from load.generator.arguments import LOCUSTFILE, free_port
from load.generator.priority import NICE
from load.histogram import LatencyHistogram
from load.model import Cause, Orders, Segment, Stage, WorkerReport
from tests.load.generator.apiserver import serving
from tests.load.generator.certificates import Authority
from tests.load.generator.running import ALL_COMPLETED, counts, kubeconfig, orders, start

pytestmark = pytest.mark.process


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may go first")
def test_it_is_scheduled_before_others(tmp_path: Path) -> None:
    with serving() as server:
        run = start(tmp_path, orders(tmp_path, f"http://127.0.0.1:{server.port}"))
        run.wait_until_intended(1)
        nice = os.getpriority(os.PRIO_PROCESS, run.process.pid)
        assert run.wait() == 0

    assert nice == NICE


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def test_a_client_certificate_is_shown_to_a_server_of_the_right_authority(tmp_path: Path) -> None:
    authority = Authority()
    pair = authority.issue("sender")
    with serving(authority.server(tmp_path)) as server:
        address = f"https://127.0.0.1:{server.port}"
        kubeconfig(
            tmp_path,
            address,
            cluster={"certificate-authority-data": encoded(authority.certificate)},
            user={
                "client-certificate-data": encoded(pair.certificate),
                "client-key-data": encoded(pair.key),
            },
        )
        run = start(tmp_path, orders(tmp_path, address))
        assert run.wait() == 0

    assert counts(run.report()) == ALL_COMPLETED


def test_a_server_of_another_authority_is_not_spoken_to(tmp_path: Path) -> None:
    authority = Authority()
    with serving(authority.server(tmp_path)) as server:
        address = f"https://127.0.0.1:{server.port}"
        other = {"certificate-authority-data": encoded(Authority().certificate)}
        kubeconfig(tmp_path, address, cluster=other, user={"token": "secret"})
        run = start(tmp_path, orders(tmp_path, address))
        assert run.wait() == 3

    assert server.authorizations == set()
    assert "CERTIFICATE_VERIFY_FAILED" in run.report().faults[0]


def test_the_web_ui_shows_the_run_and_ends_with_it(tmp_path: Path) -> None:
    port = free_port()
    with serving() as server:
        long = orders(
            tmp_path, f"http://127.0.0.1:{server.port}", segments=[Segment(seconds=600, start=20, end=20)]
        )
        run = start(tmp_path, long, ["--web", str(port)])
        shown = wait_until(lambda: _fetched(f"http://127.0.0.1:{port}/stats/requests"), 60, "the web UI")
        assert run.interrupt() == 3

    assert '"create"' in shown
    assert counts(run.report()) == {"completed": run.report().intended}


def _fetched(address: str) -> str | None:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            text: str = answer.read().decode()
    except (OSError, http.client.HTTPException):
        return None
    return text if '"create"' in text else None


LOCUST = ("-m", "locust")
AHEAD = 100.0
"""Seconds by which a worker's clock is ahead of the master's."""
LOCUST_AHEAD = (
    "-c",
    "import runpy, time; real = time.time; "
    f"time.time = lambda: real() + {AHEAD}; runpy.run_module('locust', run_name='__main__')",
)


@dataclass(frozen=True)
class Crew:
    """A master and workers, with Locust's own command and options, as on several machines."""

    root: Path
    port: str = field(default_factory=lambda: str(free_port()))

    def master(self, orders: Orders, workers: int) -> subprocess.Popen[str]:
        options = ["--master", "--expect-workers", str(workers), "--master-bind-host", "127.0.0.1"]
        return self._start(LOCUST, self.root, orders, [*options, "--master-bind-port", self.port])

    def worker(self, orders: Orders, name: str, program: Sequence[str] = LOCUST) -> subprocess.Popen[str]:
        """A worker with a copy of the orders, and with credentials of its own."""
        there = self.root / name
        there.mkdir()
        (there / "kubeconfig").write_bytes((self.root / "kubeconfig").read_bytes())
        options = ["--worker", "--worker-name", name, "--master-host", "127.0.0.1"]
        return self._start(program, there, orders, [*options, "--master-port", self.port])

    def _start(
        self, program: Sequence[str], folder: Path, orders: Orders, options: Sequence[str]
    ) -> subprocess.Popen[str]:
        (folder / "orders.json").write_text(orders.model_dump_json())
        command = [sys.executable, *program, "-f", str(LOCUSTFILE), "--headless", "--only-summary", *options]
        return subprocess.Popen(
            [*command, "--orders", str(folder / "orders.json")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def report(self) -> WorkerReport:
        return WorkerReport.model_validate_json((self.root / "generator.json").read_bytes())

    def going_on(self) -> bool:
        progress = self.root / "progress.ndjson"
        return progress.exists() and progress.stat().st_size > 0


def ended(process: subprocess.Popen[str], timeout: float = 90) -> tuple[int, str]:
    """Its exit code and what it said; pytest shows that with a failure."""
    out, _ = process.communicate(timeout=timeout)
    print(out)  # noqa: T201
    return process.returncode, out


def test_a_master_and_workers_of_their_own_share_a_load_whatever_their_clocks_say(tmp_path: Path) -> None:
    crew = Crew(tmp_path)
    with serving() as server:
        ordered = orders(tmp_path, f"http://127.0.0.1:{server.port}")
        began = time.time()
        master = crew.master(ordered, 2)
        workers = [crew.worker(ordered, "alpha"), crew.worker(ordered, "beta", LOCUST_AHEAD)]
        codes = [ended(process)[0] for process in (master, *workers)]
        over = time.time()

    assert codes == [0, 0, 0]
    assert not (tmp_path / "alpha" / "generator.json").exists()
    assert len(server.created) == 40
    report = crew.report()
    assert (report.workers, report.faults, counts(report)) == (2, [], ALL_COMPLETED)
    assert 1.9 < report.seconds < 50, "one of them began 100 s later, or its moments were not put right"
    assert all(began < life.due < over for life in report.timelines)
    bound = LatencyHistogram.of(next(each for each in report.samples if each.stage is Stage.BOUND))
    assert bound.count == 40
    longest = bound.maximum()
    assert longest is not None
    assert longest.seconds < 50


def test_workers_with_other_orders_and_strangers_are_refused(tmp_path: Path) -> None:
    crew = Crew(tmp_path)
    with serving() as server:
        ordered = orders(tmp_path, f"http://127.0.0.1:{server.port}")
        master = crew.master(ordered, 1)
        other = ordered.model_copy(update={"seed": 8})
        code, said = ended(crew.worker(other, "alpha"))
        gone = time.monotonic()
        # Locust takes it for missing after some 4 s, and ends a test whose last worker is.
        wait_until(lambda: time.monotonic() - gone > 6, 10, "alpha to be missed")
        beta = crew.worker(ordered, "beta")
        codes = [ended(process)[0] for process in (master, beta)]

    assert (code, codes) == (2, [0, 0])
    assert "worker alpha has other orders than the master" in said
    assert counts(crew.report()) == ALL_COMPLETED


def test_a_worker_whose_master_dies_ends_within_seconds(tmp_path: Path) -> None:
    crew = Crew(tmp_path)
    with serving() as server:
        address = f"http://127.0.0.1:{server.port}"
        ordered = orders(tmp_path, address, segments=[Segment(seconds=600, start=20, end=20)])
        master = crew.master(ordered, 1)
        worker = crew.worker(ordered, "alpha")
        wait_until(crew.going_on, 60, "the load to begin")
        master.kill()
        killed = time.monotonic()
        ended(master)
        code, said = ended(worker, timeout=60)
        took = time.monotonic() - killed
        created = len(server.created)
        left = len(server.pods)

    assert code == 3
    assert "the master was not heard for 5 s" in said
    assert took < 60
    assert 0 < created < 20 * 60
    assert left == 0, "it deleted its pods before it ended"


def test_a_worker_that_dies_is_a_fault_and_its_pods_are_lost_with_it(tmp_path: Path) -> None:
    with serving() as server:
        long = orders(
            tmp_path, f"http://127.0.0.1:{server.port}", segments=[Segment(seconds=12, start=20, end=20)]
        )
        run = start(tmp_path, long, ["--processes", "2"])
        run.wait_until_intended(20)
        children = Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children").read_text().split()
        assert len(children) == 2
        os.kill(int(children[0]), signal.SIGKILL)
        assert run.wait() == 3
        report = run.report()

    assert report.workers == 1
    (fault,) = report.faults
    assert re.fullmatch(r"worker [01] was lost \d+ s after the start", fault)
    assert counts(report) == {"completed": 120, "lost-with-worker": 120}
    assert report.intended == 240
    lost = [life for life in report.timelines if life.cause is Cause.LOST_WITH_WORKER]
    assert {life.message for life in lost} == {fault}


def test_it_ends_when_the_process_that_wanted_it_is_gone(tmp_path: Path) -> None:
    with serving() as server:
        long = orders(
            tmp_path, f"http://127.0.0.1:{server.port}", segments=[Segment(seconds=600, start=20, end=20)]
        )
        (tmp_path / "orders.json").write_text(long.model_dump_json())
        command = [sys.executable, "-m", "load.generator", str(tmp_path / "orders.json"), "--end-with-parent"]
        # The middle process starts the generator, prints its id and waits for a word.
        middle = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import subprocess, sys; subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL); input()",
                *command,
            ],
            stdin=subprocess.PIPE,
        )
        progress = tmp_path / "progress.ndjson"
        wait_until(lambda: progress.exists() and progress.stat().st_size, 60, "the load to begin")
        middle.kill()
        middle.communicate()
        wait_until((tmp_path / "generator.json").exists, 60, "the report")

    assert "the process that wanted this load is gone" in (tmp_path / "generator.json").read_text()
