"""The pytest plugin of the suites: judges phases where they run, journals events where they are gathered.

Under xdist the checks run in workers, which attach each phase's outcome to its report; the controller (or
the single process without xdist) folds the phases of a check into one event.
"""

from __future__ import annotations

import datetime
import os
import signal
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from clusters.driver_host import why_no_driver
from harness import events
from harness.errors import EnvironmentBlocked
from harness.journal import Journal, read
from harness.redaction import redact
from harness.results import Result, worst
from suites import allure_labels, diagnostics, footprint, outcome, target
from suites.catalogue import load
from suites.checks import of_item
from suites.evidence import EVIDENCE, Observations


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options that the engine passes."""
    group = parser.getgroup("dra-harness")
    group.addoption("--run-dir", type=Path, help="folder of the run")
    group.addoption("--cluster-file", type=Path, help="the cluster, see suites/target.py")
    group.addoption("--parent", type=int, help="pid of whoever carries out the run")
    group.addoption("--quirk", action="append", default=[], help="a seeded fault of every bundled driver")


def pytest_configure(config: pytest.Config) -> None:
    """Journal from the process that sees every report: not from an xdist worker."""
    run_dir = config.getoption("--run-dir")
    if run_dir and not hasattr(config, "workerinput"):
        journalist = _Journalist(run_dir, config.getoption("--parent"))
        config.pluginmanager.register(journalist, "dra-harness-journalist")


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """A check without a requirement, or with a wrong deviation, is a collection error."""
    for item in items:
        of_item(item, load())
        outcome.deviation_of(item, load(), "v1.0.0")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tell Allure what the check is about; block it, before it makes anything, if its driver has no place.

    Raises:
        EnvironmentBlocked: see `clusters.driver_host.why_no_driver`.
    """
    allure_labels.label(item)
    file: Path | None = item.config.getoption("--cluster-file")
    if file is None or item.get_closest_marker("without_driver"):
        return
    if reason := why_no_driver(target.read_cluster(file)):
        raise EnvironmentBlocked(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Judge a phase, keep the evidence of a failure, and attach both to the report."""
    report = yield
    judged = outcome.classify(call.when, call.excinfo)
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if call.when == "call" and cluster is not None:
        known = outcome.deviation_of(item, load(), cluster.kubernetes)
        judged = outcome.with_deviation(judged, known, datetime.datetime.now(datetime.UTC).date())
    observed: Observations | None = item.stash.get(EVIDENCE, None)
    update: dict[str, Any] = {}
    if call.when == "call" and observed is not None:
        update["evidence"] = observed.items
    kube = getattr(item, "funcargs", {}).get("kube")
    if call.when == "teardown" and kube is not None:
        update["created"] = sorted(map(footprint.short, kube.attempted))
    if judged.result in (Result.FAIL, Result.ERROR, Result.EXPECTED_FAIL):
        update["artifacts"] = diagnostics.collect(item, call)
    if judged.result is Result.EXPECTED_FAIL:
        update["details"] = report.longreprtext
    judged = judged.model_copy(update=update)
    report.user_properties.append((outcome.PROPERTY, judged.model_dump_json()))
    _align(report, judged)
    return report


def _align(report: pytest.TestReport, judged: outcome.Outcome) -> None:
    """Make pytest's own outcome, which Allure reads, say the same."""
    if judged.result is Result.EXPECTED_FAIL:
        report.outcome = "skipped"
        report.wasxfail = judged.message
    elif judged.result in (Result.BLOCKED, Result.SKIPPED):
        report.outcome = "skipped"
        report.longrepr = (report.location[0], report.location[1] or 0, judged.message)
    elif judged.result is Result.FAIL and report.outcome == "passed":
        report.outcome = "failed"
        report.longrepr = judged.message


class _Journalist:
    """Writes check events. One per run."""

    def __init__(self, run_dir: Path, parent: int | None) -> None:
        self._journal = Journal(run_dir)
        self._parent = parent
        self._phases: dict[str, list[pytest.TestReport]] = {}
        self._requirements: dict[str, list[str]] = {}
        for event in read(run_dir):
            if isinstance(event, events.PlanMade):
                for planned in event.requirements:
                    for check in planned.checks:
                        self._requirements.setdefault(check, []).append(planned.requirement)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self._parent is not None and os.getppid() != self._parent:
            os.killpg(0, signal.SIGINT)  # the run was killed: nobody takes away what these checks would make
        self._journal.append(events.CheckStarted(at=events.now(), check=nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        phases = self._phases.setdefault(report.nodeid, [])
        phases.append(report)
        crashed = report.when not in ("setup", "call", "teardown")
        if report.when == "teardown" or crashed:
            del self._phases[report.nodeid]
            requirements = self._requirements.get(report.nodeid, [])
            self._journal.append(_finished(report.nodeid, requirements, phases))


def _finished(
    nodeid: str, requirements: list[str], phases: Sequence[pytest.TestReport]
) -> events.CheckFinished:
    outcomes = [_outcome_of(report) for report in phases]
    result = worst(each.result for each in outcomes)
    said = sorted(outcomes, key=lambda each: each.result is not result)
    messages = [each.message for each in said if each.result is not Result.PASS and each.message]
    failed = [report.longreprtext for report in phases if report.failed]
    failed += [each.details for each in outcomes if each.details]
    return events.CheckFinished(
        at=events.now(),
        check=nodeid,
        requirements=requirements,
        result=result,
        seconds=round(sum(report.duration for report in phases), 3),
        message=redact("\n".join(messages)),
        details=redact("\n".join(failed)),
        evidence=[item for each in outcomes for item in each.evidence],
        artifacts=[path for each in outcomes for path in each.artifacts],
        worker=getattr(phases[0], "worker_id", ""),
        created=[obj for each in outcomes for obj in each.created],
    )


def _outcome_of(report: pytest.TestReport) -> outcome.Outcome:
    for name, value in report.user_properties:
        if name == outcome.PROPERTY:
            return outcome.Outcome.model_validate_json(str(value))
    return outcome.Outcome(result=Result.ERROR, message=f"the worker that ran it died: {report.longreprtext}")
