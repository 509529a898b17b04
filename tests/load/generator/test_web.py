"""Locust's web UI over a run: who reaches it, what it shows, and what its stop button does."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from selenium.webdriver.common.by import By

from harness.waiting import wait_until
from load.generator.arguments import free_port
from load.model import Segment
from tests.load.generator.apiserver import serving
from tests.load.generator.running import Run, counts, orders, start
from tests.reports.test_html import log_of, start_chromium

LONG = [Segment(seconds=600, start=20, end=20)]


@contextmanager
def running(folder: Path, *options: str) -> Iterator[tuple[Run, str]]:
    """A run that goes on for long, and where its UI is."""
    port = free_port()
    with serving() as server:
        long = orders(folder, f"http://127.0.0.1:{server.port}", segments=LONG)
        run = start(folder, long, ["--web", str(port), *options])
        try:
            run.wait_until_intended(20)
            yield run, f"http://127.0.0.1:{port}"
        finally:
            run.process.kill()
            run.process.communicate()


def ended_by_hand(run: Run) -> None:
    assert run.wait(60) == 3
    report = run.report()
    assert report.stopped
    assert report.faults == ["the test was stopped in Locust's web UI"]
    assert 20 <= report.intended < 2000
    assert counts(report) == {"completed": report.intended}


@pytest.mark.process
@pytest.mark.parametrize("options", [(), ("--processes", "2")])
def test_its_stop_ends_the_run_with_a_report_that_says_so(tmp_path: Path, options: tuple[str, ...]) -> None:
    with running(tmp_path, *options) as (run, address):
        request = urllib.request.Request(f"{address}/stop", data=b"")
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert '"success": true' in answer.read().decode()
        ended_by_hand(run)


@pytest.mark.process
def test_nobody_from_outside_reaches_it(tmp_path: Path) -> None:
    with running(tmp_path) as (run, address):
        listening = {
            (each.laddr.ip, each.laddr.port)
            for each in psutil.Process(run.process.pid).net_connections("inet")
            if each.status == psutil.CONN_LISTEN
        }

    assert listening == {("127.0.0.1", int(address.rpartition(":")[2]))}


@pytest.mark.browser
def test_in_a_browser_it_shows_the_load_and_stops_it(tmp_path: Path) -> None:
    with running(tmp_path) as (run, address):
        browser = start_chromium(tmp_path / "profile")
        try:
            browser.get(address)

            def row() -> list[str]:
                rows = browser.find_elements(By.TAG_NAME, "tr")
                cells = [[cell.text for cell in row.find_elements(By.TAG_NAME, "td")] for row in rows]
                return next((each for each in cells if each[:2] == ["create", "pods"]), [])

            shown = wait_until(lambda: row() if row()[2:3] > ["0"] else None, 60, "the table")
            buttons = browser.find_elements(By.TAG_NAME, "button")
            (stop,) = [each for each in buttons if each.text.lower() == "stop"]
            stop.click()
            ended_by_hand(run)
            messages = [json.loads(entry["message"])["message"] for entry in log_of(browser, "performance")]
        finally:
            browser.quit()

    assert int(shown[2]) >= 20
    assert int(shown[3]) == 0, "nothing was refused"
    sent = [each["params"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    asked = {each["request"]["url"] for each in sent if each["documentURL"].startswith(address)}
    assert len(asked) > 3
    assert [url for url in asked if not url.startswith((address, "data:"))] == []
