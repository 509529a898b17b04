"""Waiting for a component that is being started, against processes that only stand for it."""

from __future__ import annotations

import re
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import urllib3

from clusters.local import control_plane
from harness.errors import EnvironmentBlocked

COMPONENT = "kube-scheduler"


@pytest.fixture
def layout(tmp_path: Path) -> Any:
    log = tmp_path / "scheduler.log"
    log.write_text("the last words")
    return SimpleNamespace(state=SimpleNamespace(id=secrets.token_hex(8)), log=lambda component: log)


@pytest.fixture
def unmarked() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose mark can't be seen, as that of one that is not yet past `exec`."""
    popen = subprocess.Popen(["sleep", "600"])
    yield popen
    popen.kill()
    popen.wait()


def nobody_answers(timeout: float) -> NoReturn:
    raise urllib3.exceptions.HTTPError("connection refused")


def test_a_component_that_was_just_started_has_not_ended(
    layout: Any, unmarked: subprocess.Popen[bytes]
) -> None:
    words = re.escape("waited 0.2 s for kube-scheduler to be healthy")
    with pytest.raises(EnvironmentBlocked, match=words):
        control_plane._wait_working(layout, COMPONENT, {COMPONENT: unmarked}, nobody_answers, b"", 0.2)


def test_a_component_that_was_started_and_is_gone_has_ended(
    layout: Any, unmarked: subprocess.Popen[bytes]
) -> None:
    unmarked.kill()
    unmarked.wait()
    with pytest.raises(EnvironmentBlocked, match="kube-scheduler ended: the last words"):
        control_plane._wait_working(layout, COMPONENT, {COMPONENT: unmarked}, nobody_answers, b"", 60)


def test_a_component_without_a_process_has_ended(layout: Any) -> None:
    with pytest.raises(EnvironmentBlocked, match="kube-scheduler ended: the last words"):
        control_plane._wait_working(layout, COMPONENT, {}, nobody_answers, b"", 60)
