"""`junit.xml` of a load run: one case for each check of validity, each gate and each requirement."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

from reports.junit import totals
from reports.load_document import Json
from reports.text import printable

FILE_NAME = "junit.xml"


@dataclass(frozen=True)
class _Case:
    suite: str
    name: str
    outcome: str
    """failure, error, skipped, or empty."""
    message: str
    details: str


def write(run: Json, run_dir: Path) -> Path:
    """Write `junit.xml`. It has a failure or an error exactly where the verdict is no PASS.

    Failures are gates, errors are reasons why the run is INVALID. Of an INVALID run gates are skipped:
    nothing is said about the cluster. So is a gate that nobody could measure.
    """
    path = run_dir / FILE_NAME
    tree = ET.ElementTree(_document(run))
    ET.indent(tree)
    tree.write(path, encoding="utf-8", xml_declaration=True)
    return path


def _document(run: Json) -> ET.Element:
    cases = [*_checks(run), *_requirements(run)]
    counts = totals(case.outcome for case in cases)
    root = ET.Element("testsuites", {"name": "dra-harness load", **counts, "time": f"{run['seconds']:.3f}"})
    for name in dict.fromkeys(case.suite for case in cases):
        mine = [case for case in cases if case.suite == name]
        counts = totals(case.outcome for case in mine)
        suite = ET.SubElement(
            root, "testsuite", {"name": printable(name), **counts, "timestamp": run["started_at"]}
        )
        properties = ET.SubElement(suite, "properties")
        for key in ("run_id", "profile", "size", "limits", "seed", "verdict"):
            ET.SubElement(properties, "property", {"name": key, "value": printable(str(run[key]))})
        for case in mine:
            _element(suite, case)
    return root


def _checks(run: Json) -> list[_Case]:
    invalid = run["verdict"] == "INVALID"
    reported = {each["requirement"] for each in run["requirements"]}
    cases = []
    for check in run["checks"]:
        if check["name"] in reported:
            continue  # has a case of its own
        trial = f"{check['trial']}/" if check["trial"] else ""
        details = f"observed: {check['observed']}\nexpected: {check['limit']}"
        outcome, message = "", ""
        if check["about"] == "validity":
            outcome, message = ("", "") if check["ok"] else ("error", check["message"])
        elif invalid:
            outcome, message = "skipped", "the run is INVALID"
        elif check.get("unknown"):
            outcome, message = "skipped", f"not known: {check['unknown']}"
        elif check["known"]:
            outcome, message = "skipped", f"{check['message']}; known: {check['known']}"
        elif not check["ok"]:
            outcome, message = "failure", check["message"]
        cases.append(
            _Case(f"{run['profile']}.{check['about']}", trial + check["name"], outcome, message, details)
        )
    return cases


def _requirements(run: Json) -> list[_Case]:
    invalid = run["verdict"] == "INVALID"
    outcomes = {"pass": "", "fail": "failure", "error": "error"}
    cases = []
    for found in run["requirements"]:
        outcome, message = outcomes.get(found["result"], "skipped"), f"{found['result']}: {found['message']}"
        if invalid and outcome != "error":
            outcome, message = "skipped", "the run is INVALID"
        name = f"{run['profile']}.requirements"
        cases.append(_Case(name, found["requirement"], outcome, message, found["message"]))
    return cases


def _element(suite: ET.Element, case: _Case) -> None:
    element = ET.SubElement(
        suite, "testcase", {"classname": printable(case.suite), "name": printable(case.name), "time": "0"}
    )
    if case.outcome:
        child = ET.SubElement(element, case.outcome, {"message": printable(case.message)})
        child.text = printable(case.details)
