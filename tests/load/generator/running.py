"""Runs the generator as its users do: a process of its own, told by a file, read by its files."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness.waiting import wait_until
from load.model import Cause, Orders, PodKind, Segment, Snapshot, WorkerReport
from tests.load.generator.apiserver import SENDER_FLOW

POD: dict[str, Any] = {
    "spec": {
        "containers": [{"name": "main", "image": "none.invalid/none"}],
        "resourceClaims": [{"name": "claim-0", "resourceClaimTemplateName": "plain-claim"}],
    }
}


def kubeconfig(
    folder: Path, server: str, *, name: str = "kubeconfig", cluster: Any = None, user: Any = None
) -> Path:
    """Write a kubeconfig for a server."""
    path = folder / name
    content = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "it", "user": "me"}}],
        "clusters": [{"name": "it", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "me", "user": user or {}}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


def orders(folder: Path, server: str, **changed: Any) -> Orders:
    """Forty pods in two seconds in one namespace, each held for a tenth of a second."""
    if not (folder / "kubeconfig").exists():
        kubeconfig(folder, server)
    values: dict[str, Any] = {
        "run_id": "test-run",
        "seed": 7,
        "sender_kubeconfig": Path("kubeconfig"),
        "observer_kubeconfig": Path("kubeconfig"),
        "expected_flow_schema_uid": SENDER_FLOW,
        "exempt_uids": ["uid-of-exempt"],
        "observer_flow_schema_uid": SENDER_FLOW,
        "kinds": [PodKind(name="template", weight=1, manifest=POD, claims=1, namespaces=["one"])],
        "arrivals": "fixed",
        "segments": [Segment(seconds=2, start=20, end=20)],
        "hold_seconds": 0.1,
        "drain_seconds": 10,
    }
    return Orders(**(values | changed))


@dataclass
class Run:
    """A generator that was started."""

    process: subprocess.Popen[str]
    folder: Path

    def wait(self, timeout: float = 90) -> int:
        """Wait for its end; its output is kept for a failing test."""
        out, _ = self.process.communicate(timeout=timeout)
        print(out)  # noqa: T201 - pytest shows it with a failure
        return self.process.returncode

    def interrupt(self) -> int:
        """Have it end before its time, as a user does."""
        self.process.send_signal(signal.SIGINT)
        return self.wait()

    def report(self) -> WorkerReport:
        """What it left."""
        return WorkerReport.model_validate_json((self.folder / "generator.json").read_bytes())

    def progress(self) -> list[Snapshot]:
        """Its lines so far."""
        path = self.folder / "progress.ndjson"
        lines = path.read_text().splitlines() if path.exists() else []
        return [Snapshot.model_validate_json(line) for line in lines]

    def wait_until_intended(self, pods: int) -> None:
        """Wait until it says that so many came due."""
        wait_until(lambda: any(p.intended >= pods for p in self.progress()), 60, f"{pods} pods intended")


def start(folder: Path, orders: Orders, options: Sequence[str] = ()) -> Run:
    """Start the generator on these orders."""
    path = folder / "orders.json"
    path.write_text(orders.model_dump_json())
    command = [sys.executable, "-m", "load.generator", str(path), *options]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return Run(process, folder)


def counts(report: WorkerReport) -> dict[str, int]:
    """Causes that occurred."""
    return {cause.value: number for cause, number in report.causes.items() if number}


def requests(report: WorkerReport, verb: str) -> dict[str, int]:
    """One verb's requests by code."""
    return next((each.by_code for each in report.requests if each.verb == verb), {})


def answers(report: WorkerReport) -> str:
    """For a failure's message."""
    return json.dumps([each.model_dump() for each in report.requests])


ALL_COMPLETED = {Cause.COMPLETED.value: 40}
