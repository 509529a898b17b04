from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from selenium import webdriver

from harness.errors import UsageError
from harness.results import Result
from load.books import BookLine
from load.compare import compare
from load.model import Cause, Gap, Stage, Timeline
from load.result import Check, Figure, LoadResult, Rates, RequirementResult, Verdict
from reports import load_build, load_console, load_document, load_html
from tests.reports.test_html import CONTRAST, log_of, start_chromium
from tests.support.load_results import load_result, row, server_books, trial

FAILED = Check(
    name="bound.p99",
    trial="control",
    about="gate",
    ok=False,
    observed="2 s",
    limit="at most 1",
    message="bound.p99 is 2 s, expected at most 1",
)
LATE = Check(
    name="send-lateness",
    about="validity",
    ok=False,
    observed="31 ms",
    limit="< 20 ms",
    message="the generator sent late",
)


def made(tmp_path: Path, **changes: Any) -> Path:
    """The folder of a run, with its reports."""
    load_result(**changes).write(tmp_path)
    load_build.build(tmp_path)
    return tmp_path


def cases(run_dir: Path) -> dict[str, str]:
    root = ET.parse(run_dir / "junit.xml").getroot()
    return {case.attrib["name"]: next((child.tag for child in case), "") for case in root.iter("testcase")}


def full() -> LoadResult:
    """A run with everything that a result can have."""
    bad = "<script>document.title='owned'</script>"
    control = trial(
        "control",
        settings={"victim": "generator"},
        causes={Cause.COMPLETED: 8, Cause.NOT_BOUND: 2},
        causes_by_kind={"a": {Cause.COMPLETED: 8}, "b": {Cause.NOT_BOUND: 2}},
        causes_by_namespace={"n": {Cause.COMPLETED: 8}, "m": {Cause.NOT_BOUND: 2}},
        stages=[row(Stage.BOUND, 30.0, censored=2, at_least=True), row(Stage.ACCEPTED, 0.0123)],
        gaps=[Gap(kind="pods", at=1, seconds=0.2, relisted=False, reason="EOF")],
        books=[BookLine(name="answers 429", client=12, server=11, binding=True, source="rejected_total")],
        retry_after={"1": 12},
        server=server_books(evictions=3, etcd_bytes=4096, objects={"pods": 2}),
        figures={"recovery": Figure(value=31.0, unit="s")},
        notes=["02:00:10 kube-scheduler was restarted"],
        slowest=[
            Timeline(pod=f"n/{bad}", kind="a", due=0, stages={Stage.ACCEPTED: 0.01}, cause=Cause.NOT_BOUND)
        ],
    )
    return load_result(
        trials=[control, trial("starved")],
        requirements=[RequirementResult(requirement="APF-01", result=Result.PASS, message="all came back")],
        figures={"knee": Figure(value=0.5)},
        notes=["a note"],
    )


def test_junit_has_a_failure_only_where_a_gate_was_missed(tmp_path: Path) -> None:
    run_dir = made(tmp_path, verdict=Verdict.FAIL, checks=[FAILED, *load_result().checks])
    assert cases(run_dir) == {"control/bound.p99": "failure", "send-lateness": "", "bound.p99": ""}
    root = ET.parse(run_dir / "junit.xml").getroot()
    totals = [root.attrib[key] for key in ("tests", "failures", "errors", "skipped")]
    assert totals == ["3", "1", "0", "0"]
    (failure,) = root.iter("failure")
    assert failure.attrib["message"] == "bound.p99 is 2 s, expected at most 1"
    assert failure.text == "observed: 2 s\nexpected: at most 1"


def test_junit_of_an_invalid_run_says_nothing_of_the_cluster(tmp_path: Path) -> None:
    found = [RequirementResult(requirement="APF-01", result=Result.FAIL, message="x")]
    run_dir = made(tmp_path, verdict=Verdict.INVALID, checks=[LATE, FAILED], requirements=found)
    assert cases(run_dir) == {"send-lateness": "error", "control/bound.p99": "skipped", "APF-01": "skipped"}


def test_junit_has_each_requirement_once(tmp_path: Path) -> None:
    found = [
        RequirementResult(requirement="APF-01", result=Result.FAIL, message="lost"),
        RequirementResult(requirement="APF-02", result=Result.BLOCKED, message="no metrics"),
    ]
    check = FAILED.model_copy(update={"name": "APF-01", "trial": ""})
    run_dir = made(tmp_path, verdict=Verdict.FAIL, checks=[check], requirements=found)
    assert cases(run_dir) == {"APF-01": "failure", "APF-02": "skipped"}


def test_a_known_issue_is_in_every_report_and_red_in_none(tmp_path: Path) -> None:
    issue = "https://example.org/issues/7"
    run_dir = made(tmp_path, verdict=Verdict.PASS, checks=[FAILED.model_copy(update={"known": issue})])

    assert cases(run_dir) == {"control/bound.p99": "skipped"}
    (skipped,) = ET.parse(run_dir / "junit.xml").getroot().iter("skipped")
    assert issue in skipped.attrib["message"]
    run = load_document.read(run_dir)
    assert f'<a href="{issue}">known issue</a>' in load_html.render(run)
    assert f"  known: {FAILED.message}: {issue}" in printed(run, run_dir)


def test_a_gate_that_nobody_could_measure_is_no_case_that_passed(tmp_path: Path) -> None:
    check = Check(
        name="rejected",
        about="gate",
        ok=True,
        observed="not known",
        limit="at most 0",
        unknown="out of reach",
    )
    run_dir = made(tmp_path, checks=[check, *load_result().checks])

    assert cases(run_dir) == {"rejected": "skipped", "send-lateness": "", "bound.p99": ""}
    (skipped,) = ET.parse(run_dir / "junit.xml").getroot().iter("skipped")
    assert skipped.attrib["message"] == "not known: out of reach"
    assert "not known</span>" in (run_dir / "report.html").read_text()


@pytest.mark.parametrize(
    ("verdict", "checks", "red"),
    [(Verdict.PASS, load_result().checks, 0), (Verdict.FAIL, [FAILED], 1), (Verdict.INVALID, [LATE], 1)],
)
def test_junit_is_red_exactly_where_the_verdict_is(
    tmp_path: Path, verdict: Verdict, checks: list[Check], red: int
) -> None:
    outcomes = list(cases(made(tmp_path, verdict=verdict, checks=checks)).values())
    assert sum(outcome in ("failure", "error") for outcome in outcomes) == red


def test_the_page_has_everything_that_a_result_has(tmp_path: Path) -> None:
    full().write(tmp_path)
    page = load_html.render(load_document.read(tmp_path))

    for expected in (
        "APF-01",
        "&gt;= 30.0 s",  # the p99 that never came
        "12.3 ms",
        "recovery",
        "31.0 s",
        "not-bound",
        "rejected_total",
        "differs",
        "kube-scheduler was restarted",
        "kubernetes.kube-apiserver",
        "Etcd bytes",
        "4096",
        "Retry-After",
        "starved",
        "a note",
    ):
        assert expected in page
    assert "<script" not in page
    assert "&lt;script&gt;document.title" in page
    assert page.count("<style>") == 1
    assert "http://" not in page
    assert "https://" not in page


def test_the_same_result_gives_the_same_bytes(tmp_path: Path) -> None:
    full().write(tmp_path)
    first = [path.read_bytes() for path in load_build.build(tmp_path)]
    assert first == [path.read_bytes() for path in load_build.build(tmp_path)]


@pytest.mark.parametrize("verdict", list(Verdict))
def test_the_header_says_the_verdict_and_why(tmp_path: Path, verdict: Verdict) -> None:
    run_dir = made(tmp_path, verdict=verdict)
    page = (run_dir / "report.html").read_text()
    assert f'<header class="exit-{int(verdict.exit_code)}">' in page
    assert f'<span class="verdict">{verdict}</span>' in page
    assert ("something is wrong" in page) == (verdict is not Verdict.PASS)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "comparison.json").write_text(compare(*sides()).model_dump_json())
    full().write(run_dir)
    load_build.build(run_dir)
    browser = start_chromium(tmp_path / "profile")
    try:
        browser.get((run_dir / "report.html").as_uri())
        browser.execute_script("for (const item of document.querySelectorAll('details')) item.open = true;")
        yield browser
    finally:
        browser.quit()


@pytest.mark.browser
def test_the_page_needs_nothing_but_itself(page: webdriver.Chrome) -> None:
    assert page.title == "PASS: template-churn, run r1"
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert log_of(page, "browser") == []  # neither an error nor a refusal by the policy
    for width in (360, 800, 1920):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        root = "document.documentElement"
        assert page.execute_script(f"return {root}.scrollWidth - {root}.clientWidth") == 0


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_the_contrast_of_wcag_aa(page: webdriver.Chrome, scheme: str) -> None:
    feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)
    ratio, *where = page.execute_script(CONTRAST)
    assert ratio >= 4.5, where


def sides() -> tuple[list[LoadResult], list[LoadResult]]:
    def side(name: str, rate: float, offset: int) -> list[LoadResult]:
        return [
            load_result(
                f"{name}{number}",
                minutes=2 * number + offset,
                trials=[
                    trial(
                        rates=Rates(offered=20, sent=20, accepted=20, bound=rate + number / 10, released=20)
                    )
                ],
            )
            for number in range(5)
        ]

    return side("a", 20.0, 0), side("b", 17.0, 1)


def test_a_comparison_in_the_folder_is_part_of_the_report(tmp_path: Path) -> None:
    comparison = compare(*sides())
    (tmp_path / "comparison.json").write_text(comparison.model_dump_json())
    page = (made(tmp_path) / "report.html").read_text()
    assert "Against the baseline: regression" in page
    assert "rate.bound" in page


def test_a_comparison_has_a_page_of_its_own(tmp_path: Path) -> None:
    document = json.loads(compare(*sides()).model_dump_json())
    page = load_html.write_comparison(document, tmp_path).read_text()
    assert '<header class="exit-1">' in page
    assert "-14.9 %" in page  # 17.2 against 20.2


def printed(document: load_document.Json, run_dir: Path | None = None, *, width: int = 160) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, width=width, highlight=False, color_system=None)
    if run_dir is None:
        load_console.print_comparison(console, document)
    else:
        load_console.print_run(console, document, run_dir)
    return file.getvalue().splitlines()


def test_the_verdict_is_the_last_line(tmp_path: Path) -> None:
    full().write(tmp_path)
    lines = printed(load_document.read(tmp_path), tmp_path)
    assert lines[-1] == "PASS template-churn S, limits open, in 1 min 15 s"
    assert "       2  not-bound: it was not bound in time" in lines
    assert any(line.split()[:3] == ["bound", "100", ">="] for line in lines)
    assert any(line.split() == ["12", "answers", "429;", "11", "by", "rejected_total"] for line in lines)
    assert any(line.startswith("starved") for line in lines)
    assert any(line.startswith("APF-01  pass") for line in lines)


def test_notes_of_trials_that_matter_are_printed(tmp_path: Path) -> None:
    """Of the main trial, and of those that something is wrong with: by a check of theirs or on their name."""
    names = ("main", "cel", "step-10", "step-20", "quiet")
    slow = FAILED.model_copy(update={"name": "step-10.bound.p99", "trial": ""})
    explained = FAILED.model_copy(update={"trial": "quiet", "known": "https://example.org/issues/7"})
    load_result(
        trials=[trial(name, notes=[f"noted in {name}"]) for name in names],
        checks=[LATE.model_copy(update={"trial": "cel"}), slow, explained],
        verdict=Verdict.INVALID,
    ).write(tmp_path)

    lines = printed(load_document.read(tmp_path), tmp_path)

    noted = [line for line in lines if "noted in" in line]
    assert noted == [f"{name}: noted in {name}" for name in ("main", "cel", "step-10")]
    load_result(trials=[trial(notes=["waited in its own limiter"])]).write(tmp_path)
    assert "waited in its own limiter" in printed(load_document.read(tmp_path), tmp_path)


def test_nothing_is_cut_where_the_terminal_is_narrow(tmp_path: Path) -> None:
    document = json.loads(compare(*sides()).model_dump_json())
    assert printed(document, width=40) == printed(document)
    full().write(tmp_path)
    run = load_document.read(tmp_path)
    assert printed(run, tmp_path, width=40) == printed(run, tmp_path)


def test_every_reason_is_printed(tmp_path: Path) -> None:
    load_result(verdict=Verdict.INVALID, reasons=["one", "two"]).write(tmp_path)
    assert printed(load_document.read(tmp_path), tmp_path)[-3:-1] == ["  one", "  two"]


def test_a_comparison_on_the_terminal() -> None:
    lines = printed(json.loads(compare(*sides()).model_dump_json()))
    (found,) = [line.split() for line in lines if line.startswith("rate.bound")]
    assert found[1:5] == ["20.2/s", "17.2/s", "-14.9", "%"]
    assert found[-1] == "regression"
    assert lines[-1] == "REGRESSION"


def test_what_is_a_regression_besides_the_measures_is_in_every_report(tmp_path: Path) -> None:
    document = json.loads(compare(*sides()).model_dump_json())
    assert document["verdicts"]["candidate"] == {"PASS": 5, "FAIL": 0, "INVALID": 0}
    worse = {**document, "broken": {"double-allocation": ["b-1", "b-3"]}, "failed": ["bound.p99 at most 1"]}
    said = [
        "broken after, never before: double-allocation in b-1, b-3",
        "failed by every run after and none before: bound.p99 at most 1",
    ]
    verdicts = "before 5 PASS, 0 FAIL, 0 INVALID; after 5 PASS, 0 FAIL, 0 INVALID"

    page = load_html.write_comparison(worse, tmp_path).read_text()
    lines = printed(worse)

    assert f"verdicts: {verdicts}" in lines
    assert set(said) <= set(lines)
    assert all(text in page for text in (verdicts, *said))


def test_a_comparison_of_before_has_a_page_too(tmp_path: Path) -> None:
    document = json.loads(compare(*sides()).model_dump_json())
    for key in ("verdicts", "broken", "failed"):
        del document[key]
    assert "Verdicts" not in load_html.write_comparison(document, tmp_path).read_text()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.00087, "870 us"),
        (0.0123, "12.3 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (61.2, "61.2 s"),
    ],
)
def test_times_for_people(seconds: float | None, text: str) -> None:
    assert load_document.time(seconds) == text


@pytest.mark.parametrize(
    ("content", "message"), [("{", "no JSON"), ('{"version": 9}', "version: expected 1")]
)
def test_what_is_no_load_run_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "load.json").write_text(content)
    with pytest.raises(UsageError, match=message):
        load_build.build(tmp_path)


def test_a_folder_without_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not the folder of a load run"):
        load_build.build(tmp_path)
