from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import events
from harness.events import Event
from harness.results import Result
from reports.junit import JUnitReporter
from reports.run import Run


def junit_of(log: list[Event], run_dir: Path) -> ET.Element:
    (path,) = JUnitReporter().write(Run.from_events(log), run_dir)
    assert path == run_dir / "junit.xml"
    return ET.parse(path).getroot()


def counts_of(element: ET.Element) -> tuple[int, ...]:
    return tuple(int(element.attrib[name]) for name in ("tests", "failures", "errors", "skipped"))


def properties_of(element: ET.Element) -> list[tuple[str, str]]:
    return [(item.attrib["name"], item.attrib["value"]) for item in element.findall("properties/property")]


def test_one_suite_for_each_area_with_true_counts(every_result: list[Event], tmp_path: Path) -> None:
    root = junit_of(every_result, tmp_path)

    assert root.tag == "testsuites"
    assert {suite.attrib["name"]: counts_of(suite) for suite in root} == {
        "extended": (4, 0, 0, 1),  # ER-10 is expected to fail
        "taints": (4, 1, 1, 1),  # TNT-16 is unsupported
        "quota": (6, 0, 1, 4),  # test_special has no result; three are blocked, one is skipped
        "harness": (1, 0, 1, 0),
    }
    assert counts_of(root) == (15, 1, 3, 6)
    for suite in root:
        cases = suite.findall("testcase")
        found = tuple(
            sum(case.find(tag) is not None for case in cases) for tag in ("failure", "error", "skipped")
        )
        assert (len(cases), *found) == counts_of(suite)


def test_a_case_carries_name_time_requirements_and_exact_result(
    every_result: list[Event], tmp_path: Path
) -> None:
    root = junit_of(every_result, tmp_path)

    cases = {case.attrib["name"]: case for case in root.iter("testcase")}
    charge = cases["test_charge"]
    assert charge.attrib == {"classname": "suites.quota.test_quota", "name": "test_charge", "time": "4.500"}
    assert properties_of(charge) == [
        ("requirement", "QTA-01"),
        ("requirement", "QTA-02"),
        ("result", "pass"),
    ]
    assert {name: dict(properties_of(case))["result"] for name, case in cases.items()} == {
        "test_pod_runs[explicit]": "pass",
        "test_pod_runs[implicit]": "pass",
        "test_handover[clear-old]": "expected-fail",
        "test_node_status": "pass",
        "test_noschedule[slice]": "pass",
        "test_noschedule[rule]": "fail",
        "test_eviction": "error",
        "test_evicted_metric": "unsupported",
        "test_charge": "pass",
        "test_special": "unfinished",
        "test_plugin": "blocked",
        "test_implicit": "blocked",
        "test_example": "blocked",
        "test_record": "skipped",
        "fault-1": "error",
    }


def test_messages_tracebacks_and_attachments(every_result: list[Event], tmp_path: Path) -> None:
    cases = {case.attrib["name"]: case for case in junit_of(every_result, tmp_path).iter("testcase")}

    failure = cases["test_noschedule[rule]"].find("failure")
    assert failure is not None
    assert failure.attrib["message"].startswith("expected: the pod stays Pending")
    assert (failure.text or "").startswith("Traceback")
    attachments = cases["test_noschedule[rule]"].findtext("system-out") or ""
    assert "[[ATTACHMENT|artifacts/tnt-01/events.yaml]]" in attachments.splitlines()
    known = cases["test_handover[clear-old]"].find("skipped")
    assert known is not None
    assert known.attrib["type"] == "expected-fail"
    assert "https://github.com/kubernetes/kubernetes/issues/141103" in known.attrib["message"]
    blocked = cases["test_plugin"].find("skipped")
    assert blocked is not None
    assert blocked.attrib["message"] == "blocked: needs a node with a device plugin; the cluster has none"


_ALLOWED = {
    "testsuites": ({"name", "tests", "failures", "errors", "skipped", "time"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "skipped", "time", "timestamp"},
        {"properties", "testcase"},
    ),
    "properties": (set(), {"property"}),
    "property": ({"name", "value"}, set()),
    "testcase": (
        {"classname", "name", "time"},
        {"properties", "failure", "error", "skipped", "system-out"},
    ),
    "failure": ({"message"}, set()),
    "error": ({"message"}, set()),
    "skipped": ({"message", "type"}, set()),
    "system-out": (set(), set()),
}


def test_only_elements_and_attributes_of_the_xunit2_shape(every_result: list[Event], tmp_path: Path) -> None:
    for element in junit_of(every_result, tmp_path).iter():
        attributes, children = _ALLOWED[element.tag]
        assert set(element.attrib) <= attributes
        assert {child.tag for child in element} <= children


@pytest.mark.parametrize(
    ("results", "options"),
    [
        ([], {}),
        ([Result.EXPECTED_FAIL], {}),
        ([Result.SKIPPED], {}),
        ([Result.PASS, Result.BLOCKED], {}),
        ([Result.PASS], {"exit_code": None}),
        ([Result.PASS], {"exit_code": 3}),
        ([Result.PASS], {"planned_only": 1}),
        ([Result.PASS], {"faults": 1}),
    ],
)
def test_a_run_that_is_no_pass_is_red(
    small_run: Callable[..., list[Event]], tmp_path: Path, results: list[Result], options: dict[str, int]
) -> None:
    assert counts_of(junit_of(small_run(results, **options), tmp_path))[2] == 1


def test_a_pass_is_green(small_run: Callable[..., list[Event]], tmp_path: Path) -> None:
    log = small_run([Result.PASS, Result.EXPECTED_FAIL])

    assert counts_of(junit_of(log, tmp_path)) == (2, 0, 0, 1)


def test_check_that_ran_although_its_requirement_was_left_out_is_one_case(
    small_run: Callable[..., list[Event]], tmp_path: Path
) -> None:
    log = small_run([Result.PASS], decision=Result.SKIPPED, planned_only=1)

    cases = list(junit_of(log, tmp_path).iter("testcase"))

    assert [dict(properties_of(case))["result"] for case in cases] == ["pass", "skipped"]


def test_text_that_xml_forbids_is_replaced(small_run: Callable[..., list[Event]], tmp_path: Path) -> None:
    log = small_run([Result.FAIL])
    check = next(event for event in log if isinstance(event, events.CheckFinished))
    log[log.index(check)] = check.model_copy(
        update={"message": "a\x00b\x1b[31m]]>&", "details": "\ud800<x>\nline 2\t.", "artifacts": ["a\x08"]}
    )

    case = next(junit_of(log, tmp_path).iter("testcase"))

    failure = case.find("failure")
    assert failure is not None
    assert (failure.attrib["message"], failure.text) == ("a�b�[31m]]>&", "�<x>\nline 2\t.")
