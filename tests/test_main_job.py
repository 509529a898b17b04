"""The main job as a user does it: one command from nothing to a report, and nothing left behind."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from harness import events, journal
from tests.support.commands import Command
from tests.support.machine import look

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

_IDS = {f"ER-{number:02}" for number in range(1, 22)}


def test_the_extended_resource_area(state_dir: Path, tmp_path: Path, dra_harness: Command) -> None:
    """On v1.37.2 every check passes but those that reproduce a known deviation."""
    before = look(state_dir)

    done = dra_harness("run", "extended-resource", "--run-id", "main", timeout=800)

    assert done.returncode == 0, done.stdout + done.stderr
    assert before.difference(look(state_dir)) == {}
    run_dir = tmp_path / "results" / "main"
    log = journal.read(run_dir)
    finished = [event for event in log if isinstance(event, events.CheckFinished)]
    assert {name for event in finished for name in event.requirements} == _IDS
    assert all(event.evidence for event in finished), "every check says what it observed"
    deviating = {event.check: event for event in finished if event.result != "pass"}
    known = {"ER-02": "KEP-5004 implicit name of a class that gives way", "ER-10": "k/k#141103"}
    assert {name for event in deviating.values() for name in event.requirements} == set(known)
    assert {str(event.result) for event in deviating.values()} == {"expected-fail"}
    assert all(known[event.requirements[0]] in event.message for event in deviating.values())
    _check_reports(run_dir, finished)


def _check_reports(run_dir: Path, finished: list[events.CheckFinished]) -> None:
    suites = ET.parse(run_dir / "junit.xml").getroot()
    cases = [case for case in suites.iter("testcase") if case.get("classname", "").startswith("extended")]
    assert len(cases) >= len(finished)
    run = json.loads((run_dir / "run.json").read_text())
    assert {requirement["id"] for requirement in run["requirements"]} == _IDS
    allure = [json.loads(path.read_text()) for path in (run_dir / "allure-results").glob("*-result.json")]
    stories = {label["value"] for result in allure for label in result["labels"] if label["name"] == "story"}
    assert len(allure) == len(finished)
    assert stories == _IDS
    page = (run_dir / "report.html").read_text()
    assert all(name in page for name in _IDS)
    assert "PRIVATE KEY" not in "".join(path.read_text() for path in run_dir.rglob("*.yaml"))
