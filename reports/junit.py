"""`junit.xml`, in the shape that pytest writes (xunit2) and CI systems read."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import ExitCode
from harness.events import CheckFinished
from harness.results import Result
from reports.interface import Reporter
from reports.run import UNFINISHED, Run
from reports.text import VERDICTS, printable

FILE_NAME = "junit.xml"

_OUTCOME = {Result.PASS: "", Result.FAIL: "failure", Result.ERROR: "error", UNFINISHED: "error"}
"""The element that says how a test case ended; every other status is `skipped`."""


@dataclass(frozen=True)
class _Case:
    area: str
    check: str
    status: str
    requirements: list[str] = field(default_factory=list)
    seconds: float = 0.0
    message: str = ""
    details: str = ""
    artifacts: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        return _OUTCOME.get(self.status, "skipped")


class JUnitReporter(Reporter):
    """One suite for each area, one case for each check.

    Blocked, unsupported, skipped and expected-fail are JUnit's `skipped`, with the reason; the exact result
    is a property of the case. The suite `harness` says what no check can: faults, and a run that is not a
    pass although no check failed. So a file without failures and errors always is a pass.
    """

    def write(self, run: Run, run_dir: Path) -> list[Path]:
        """Write `junit.xml`."""
        path = run_dir / FILE_NAME
        tree = ET.ElementTree(_document(run))
        ET.indent(tree)
        tree.write(path, encoding="utf-8", xml_declaration=True)
        return [path]


def _document(run: Run) -> ET.Element:
    cases = list(_cases(run))
    counts = totals(case.outcome for case in cases)
    root = ET.Element("testsuites", {"name": "dra-harness", **counts, "time": f"{run.seconds:.3f}"})
    for area in dict.fromkeys(case.area for case in cases):
        _suite(root, area, [case for case in cases if case.area == area], run)
    return root


def _cases(run: Run) -> Iterator[_Case]:
    known: dict[str, list[str]] = {}
    for requirement in run.requirements:
        for check in requirement.plan.checks:
            known.setdefault(check, []).append(requirement.id)
    for event in run.checks:
        yield _finished(run, event)
    for check in run.unfinished:
        owners = known.get(check, [])
        yield _Case(run.area_of(check, owners), check, UNFINISHED, owners, message="the check has no result")
    yield from _decided(run, known)
    yield from _harness(run)


def _finished(run: Run, event: CheckFinished) -> _Case:
    return _Case(
        area=run.area_of(event.check, event.requirements),
        check=event.check,
        status=event.result,
        requirements=event.requirements,
        seconds=event.seconds,
        message=event.message,
        details=event.details,
        artifacts=event.artifacts,
    )


def _decided(run: Run, known: dict[str, list[str]]) -> Iterator[_Case]:
    """Checks that the plan left out, unless another requirement had them run."""
    seen = {*(event.check for event in run.checks), *run.unfinished}
    for requirement in run.requirements:
        decision = requirement.plan.decision
        for check in requirement.plan.checks:
            if decision is not None and check not in seen:
                seen.add(check)
                plan = requirement.plan
                yield _Case(plan.area, check, decision, known[check], message=plan.reason)


def _harness(run: Run) -> Iterator[_Case]:
    for number, fault in enumerate(run.faults, start=1):
        yield _Case("harness", f"harness::fault-{number}", Result.ERROR, message=fault.message)
    red = run.faults or run.unfinished or {Result.FAIL, Result.ERROR} & set(run.check_counts)
    if run.exit_code is not ExitCode.PASSED and not red:
        message = f"{VERDICTS[run.exit_code]}: {'; '.join(run.reasons())}"
        yield _Case("harness", "harness::verdict", Result.ERROR, message=message)


def _suite(root: ET.Element, area: str, cases: list[_Case], run: Run) -> None:
    suite = ET.SubElement(
        root,
        "testsuite",
        {
            "name": printable(area),
            **totals(case.outcome for case in cases),
            "time": f"{sum(case.seconds for case in cases):.3f}",
            "timestamp": run.started.at.isoformat(),
        },
    )
    kubernetes = ", ".join(dict.fromkeys(cluster.ready.kubernetes for cluster in run.clusters))
    facts = {"run": run.started.run_id, "suite": run.started.suite_version, "seed": str(run.started.seed)}
    _properties(suite, [*facts.items(), ("kubernetes", kubernetes)])
    for case in cases:
        _case(suite, case)


def totals(outcomes: Iterable[str]) -> dict[str, str]:
    """The counts of a suite, by the elements of its cases: failure, error, skipped or nothing."""
    counted = Counter(outcomes)
    return {
        "tests": str(counted.total()),
        "failures": str(counted["failure"]),
        "errors": str(counted["error"]),
        "skipped": str(counted["skipped"]),
    }


def _case(suite: ET.Element, case: _Case) -> None:
    module, _, name = case.check.partition("::")
    classname = module.removesuffix(".py").replace("/", ".")
    element = ET.SubElement(
        suite,
        "testcase",
        {"classname": printable(classname), "name": printable(name), "time": f"{case.seconds:.3f}"},
    )
    requirements = [("requirement", requirement) for requirement in case.requirements]
    _properties(element, [*requirements, ("result", str(case.status))])
    if case.outcome:
        message = f"{case.status}: {case.message}" if case.outcome == "skipped" else case.message
        child = ET.SubElement(element, case.outcome, {"message": printable(message)})
        if case.outcome == "skipped":
            child.set("type", str(case.status))
        child.text = printable(case.details or case.message)
    if case.artifacts:
        attachments = "\n".join(f"[[ATTACHMENT|{path}]]" for path in case.artifacts)
        ET.SubElement(element, "system-out").text = printable(attachments)


def _properties(parent: ET.Element, pairs: list[tuple[str, str]]) -> None:
    properties = ET.SubElement(parent, "properties")
    for name, value in pairs:
        ET.SubElement(properties, "property", {"name": name, "value": printable(value)})
