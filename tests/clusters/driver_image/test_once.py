"""The image is made by one command at a time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import pytest

from clusters.components.interface import silent
from clusters.components.locations import one_at_a_time
from clusters.driver_image import build, debian
from harness.errors import HarnessError


def test_whoever_comes_while_it_is_made_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    went_on = threading.Event()
    said: list[str] = []

    def progress(phase: str, done: int, total: int, text: str) -> None:
        said.append(phase)
        went_on.set()

    def makes_it_too(_: Path) -> NoReturn:
        raise HarnessError("it is made twice")

    monkeypatch.setattr(debian, "ensure", makes_it_too)
    with ThreadPoolExecutor() as pool:
        with one_at_a_time(tmp_path, "driver-image", silent):
            waiting = pool.submit(build.ensure, progress, tmp_path)
            assert went_on.wait(60)
            archive = tmp_path / "driver-image" / f"{build._digest()}.tar"
            archive.parent.mkdir(exist_ok=True)
            archive.touch()
        assert waiting.result(60).archive == archive
    assert said == ["wait"]
