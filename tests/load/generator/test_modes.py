"""The ways in which Locust runs: TLS, its web UI, a master and a worker of their own, its table."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from harness.waiting import wait_until
from load.generator.arguments import LOCUSTFILE, free_port
from load.generator.priority import NICE
from load.model import Segment
from tests.load.generator.apiserver import serving
from tests.load.generator.certificates import Authority
from tests.load.generator.running import ALL_COMPLETED, counts, kubeconfig, orders, start


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
            tmp_path, f"http://127.0.0.1:{server.port}", segments=[Segment(seconds=5, start=20, end=20)]
        )
        run = start(tmp_path, long, ["--web", str(port)])
        shown = wait_until(lambda: _fetched(f"http://127.0.0.1:{port}/stats/requests"), 60, "the web UI")
        code = run.wait()

    assert code == 0
    assert '"create"' in shown
    assert counts(run.report()) == {"completed": 100}


def _fetched(address: str) -> str | None:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            text: str = answer.read().decode()
    except (urllib.error.URLError, ConnectionError):
        return None
    return text if '"create"' in text else None


def test_a_master_and_a_worker_of_their_own_work_as_locusts_do(tmp_path: Path) -> None:
    """With Locust's own command and options, as on two machines; the worker has a copy of the orders."""
    port = str(free_port())
    there = tmp_path / "there"
    there.mkdir()
    with serving() as server:
        address = f"http://127.0.0.1:{server.port}"
        text = orders(tmp_path, address).model_dump_json()
        kubeconfig(there, address)
        common = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--only-summary"]
        processes = []
        for folder, options in (
            (tmp_path, ["--master", "--expect-workers", "1", "--master-bind-host", "127.0.0.1"]),
            (there, ["--worker", "--master-host", "127.0.0.1"]),
        ):
            (folder / "orders.json").write_text(text)
            port_option = "--master-bind-port" if folder is tmp_path else "--master-port"
            command = [*common, *options, port_option, port, "--orders", str(folder / "orders.json")]
            processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))
        assert [process.wait(timeout=90) for process in processes] == [0, 0]

    assert not (there / "generator.json").exists()
    assert len(server.created) == 40
    assert (tmp_path / "generator.json").exists()


def test_a_worker_that_dies_is_a_fault_and_the_others_report(tmp_path: Path) -> None:
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
    assert any("was lost" in fault for fault in report.faults)
    assert counts(report).keys() == {"completed"}


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
