"""A run that is ended early reports what it has, and leaves nothing of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clusters import processes
from clusters.interface import Cluster
from harness import events, journal
from harness.errors import ExitCode
from harness.kube import DEVICE_CLASSES, NAMESPACES, RESOURCE_SLICES, KubeClient
from harness.waiting import NotYet, wait_until
from suites.naming import LABEL
from tests.support.machine import look

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def _start(results: Path, state: Path, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "DRA_HARNESS_RESULTS": str(results), "DRA_HARNESS_STATE": str(state)}
    return subprocess.Popen(
        [sys.executable, "-m", "cli.main", "run", "ER-06", "ER-16", "--run-id", "early", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )


def _end_during_the_checks(process: subprocess.Popen[bytes], run_dir: Path) -> int:
    log = run_dir / "events.ndjson"

    def a_check_ended() -> bool:
        text = log.read_text() if log.exists() else ""
        if "check-finished" not in text:
            assert process.poll() is None, f"the run ended early with {process.returncode}: {text[-2000:]}"
            raise NotYet(text[-500:])
        return True

    wait_until(a_check_ended, 120, "a check to have ended")
    process.send_signal(signal.SIGTERM)
    return process.wait(timeout=120)


def _require_report(run_dir: Path) -> None:
    log = journal.read(run_dir)
    assert isinstance(log[-1], events.RunFinished)
    assert any(isinstance(event, events.HarnessFault) and event.message == "interrupted" for event in log)
    assert "interrupted" in (run_dir / "report.html").read_text()


def test_on_a_cluster_that_stays(local_cluster: Cluster, tmp_path: Path) -> None:
    """Namespaces, classes, slices and drivers of the run go; everything else stays as it was."""
    kube = KubeClient.from_kubeconfig(local_cluster.kubeconfig)
    slices = {each["metadata"]["name"] for each in kube.list(RESOURCE_SLICES)}
    running = {process.pid for process in processes.find(local_cluster.id)}
    state = local_cluster.directory.parent.parent
    process = _start(tmp_path, state, "--cluster", local_cluster.name)

    code = _end_during_the_checks(process, tmp_path / "early")

    assert code == ExitCode.HARNESS_ERROR
    _require_report(tmp_path / "early")
    assert kube.list(DEVICE_CLASSES, labels=f"{LABEL}=early") == []
    assert {each["metadata"]["name"] for each in kube.list(RESOURCE_SLICES)} == slices
    assert {process.pid for process in processes.find(local_cluster.id)} == running
    wait_until(
        lambda: not kube.list(NAMESPACES, labels=f"{LABEL}=early"), 60, "the run's namespaces to be gone"
    )


def test_on_a_cluster_of_its_own(state_dir: Path, tmp_path: Path) -> None:
    """The cluster goes with the run."""
    before = look(state_dir)
    process = _start(tmp_path, state_dir)

    code = _end_during_the_checks(process, tmp_path / "early")

    assert code == ExitCode.HARNESS_ERROR
    _require_report(tmp_path / "early")
    assert before.difference(look(state_dir)) == {}
