from __future__ import annotations

import datetime
from collections.abc import Callable

import pytest

from harness import events
from harness.errors import ExitCode, UsageError
from harness.events import Event, PlannedRequirement
from harness.results import Result
from reports.run import STATUSES, Run, verdict

PASS, FAIL, ERROR, XFAIL = Result.PASS, Result.FAIL, Result.ERROR, Result.EXPECTED_FAIL
BLOCKED, SKIPPED, UNSUPPORTED = Result.BLOCKED, Result.SKIPPED, Result.UNSUPPORTED


@pytest.mark.parametrize(
    ("results", "faults", "blocked_musts", "unfinished", "code"),
    [
        ([], 0, 0, 0, 3),
        ([PASS], 0, 0, 0, 0),
        ([PASS, XFAIL], 0, 0, 0, 0),
        ([PASS, SKIPPED, UNSUPPORTED], 0, 0, 0, 0),
        ([PASS, BLOCKED], 0, 0, 0, 0),
        ([PASS, BLOCKED], 0, 1, 0, 3),
        ([PASS], 0, 0, 1, 3),
        ([XFAIL], 0, 0, 0, 3),
        ([SKIPPED], 0, 0, 0, 3),
        ([UNSUPPORTED], 0, 0, 0, 3),
        ([BLOCKED], 0, 0, 0, 3),
        ([FAIL], 0, 0, 0, 1),
        ([PASS, FAIL], 0, 0, 0, 1),
        ([FAIL, ERROR], 2, 1, 1, 1),
        ([PASS, ERROR], 0, 0, 0, 4),
        ([ERROR], 0, 1, 1, 4),
        ([PASS], 1, 0, 0, 4),
        ([], 1, 0, 0, 4),
    ],
)
def test_verdict(results: list[Result], faults: int, blocked_musts: int, unfinished: int, code: int) -> None:
    assert verdict(results, faults=faults, blocked_musts=blocked_musts, unfinished=unfinished) == code


@pytest.mark.parametrize(
    ("results", "options", "status", "code"),
    [
        ([PASS], {}, "pass", 0),
        ([PASS, SKIPPED], {}, "skipped", 0),
        ([PASS, BLOCKED], {"level": "SHOULD"}, "blocked", 0),
        ([PASS, BLOCKED], {"level": "MUST NOT"}, "blocked", 3),
        ([PASS, BLOCKED, XFAIL], {}, "expected-fail", 3),
        ([PASS], {"planned_only": 1}, "unfinished", 3),
        ([FAIL], {"planned_only": 1}, "fail", 1),
        ([], {"decision": BLOCKED, "planned_only": 2}, "blocked", 3),
        ([], {"decision": UNSUPPORTED, "planned_only": 2}, "unsupported", 3),
        ([], {}, "not-covered", 3),
        ([PASS], {"decision": SKIPPED}, "skipped", 0),
        ([FAIL], {"decision": SKIPPED}, "skipped", 1),
        ([PASS], {"faults": 1}, "pass", 4),
    ],
)
def test_requirement_and_run(
    small_run: Callable[..., list[Event]],
    results: list[Result],
    options: dict[str, object],
    status: str,
    code: int,
) -> None:
    run = Run.from_events(small_run(results, **options))

    assert (run.requirements[0].status, run.exit_code) == (status, code)


@pytest.mark.parametrize(
    ("recorded_code", "code"), [(0, 0), (3, 3), (4, 4), (130, 4), (None, 3)], ids=lambda value: str(value)
)
def test_recorded_exit_code_can_only_take_a_pass_away(
    small_run: Callable[..., list[Event]], recorded_code: int | None, code: int
) -> None:
    assert Run.from_events(small_run([PASS], exit_code=recorded_code)).exit_code == code


def test_recorded_pass_never_hides_a_failure(small_run: Callable[..., list[Event]]) -> None:
    assert Run.from_events(small_run([FAIL], exit_code=0)).exit_code is ExitCode.FAILED


def test_every_result_is_counted(every_result: list[Event]) -> None:
    run = Run.from_events(every_result)

    assert dict(run.requirement_counts) == {
        "fail": 1,
        "error": 1,
        "unfinished": 1,
        "expected-fail": 1,
        "blocked": 3,
        "skipped": 1,
        "unsupported": 1,
        "not-covered": 1,
        "pass": 3,
    }
    assert dict(run.check_counts) == {"fail": 1, "error": 1, "unfinished": 1, "expected-fail": 1, "pass": 5}
    assert set(run.requirement_counts) == set(STATUSES) == {*Result, "unfinished"}
    assert run.reasons() == [
        "1 check failed",
        "1 check ended in error",
        "1 fault of the harness itself",
        "3 MUST requirements blocked: QTA-03, QTA-04, QTA-05",
        "1 check without a result",
    ]


def test_requirement_sums_up_its_checks(every_result: list[Event]) -> None:
    requirements = {item.id: item for item in Run.from_events(every_result).requirements}

    assert (requirements["ER-01"].passed, requirements["ER-01"].total, requirements["ER-01"].seconds) == (
        2,
        2,
        4,
    )
    assert (requirements["TNT-01"].passed, requirements["TNT-01"].total) == (1, 2)
    assert (requirements["QTA-02"].passed, requirements["QTA-02"].total) == (1, 2)
    assert (requirements["QTA-03"].passed, requirements["QTA-03"].total) == (0, 1)


def test_run_cut_off_anywhere_is_incomplete_and_never_a_pass(every_result: list[Event]) -> None:
    for end in range(1, len(every_result)):
        run = Run.from_events(every_result[:end])

        assert run.finished is None
        assert run.exit_code is not ExitCode.PASSED
        assert "the run did not finish" in run.reasons()


def test_results_without_a_plan_are_kept(every_result: list[Event]) -> None:
    log = [event for event in every_result if not isinstance(event, events.PlanMade)]

    requirements = {item.id: item for item in Run.from_events(log).requirements}

    assert requirements["TNT-01"].status == "fail"
    assert requirements["TNT-01"].plan.area == "taints"


def test_check_that_ran_twice_counts_as_its_worst(small_run: Callable[..., list[Event]]) -> None:
    log = small_run([FAIL])
    again = next(event for event in log if isinstance(event, events.CheckFinished))
    log.insert(-1, again.model_copy(update={"result": PASS}))

    run = Run.from_events(log)

    assert len(run.requirements[0].checks) == 2
    assert (run.requirements[0].status, run.requirements[0].total, run.exit_code) == ("fail", 1, 1)


def test_clusters_of_one_name_end_in_order(every_result: list[Event]) -> None:
    ready = next(event for event in every_result if isinstance(event, events.ClusterReady))
    gone = next(event for event in every_result if isinstance(event, events.ClusterGone))
    later = gone.model_copy(update={"seconds": 8.0})

    run = Run.from_events([every_result[0], ready, gone, ready, later, ready])

    assert [cluster.gone and cluster.gone.seconds for cluster in run.clusters] == [3.2, 8.0, None]


def test_no_run_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="run-started"):
        Run.from_events([])


def test_area_comes_from_the_plan_then_from_the_folder(started: events.RunStarted) -> None:
    plan = PlannedRequirement(requirement="A-1", level="MAY", owner="S", text="", source="", area="numa")
    run = Run.from_events([started, events.PlanMade(at=started.at, requirements=[plan])])

    assert run.area_of("suites/x/test_y.py::test_z", ["B-1", "A-1"]) == "numa"
    assert run.area_of("suites/x/test_y.py::test_z", ["B-1"]) == "x"
    assert run.area_of("test_z", []) == "other"


def test_areas_have_the_time_of_their_checks(started: events.RunStarted) -> None:
    """Two checks of `taints` overlap: 4 s and 6 s, of which the last ends 7 s after the first began."""

    def ended(check: str, second: int, seconds: float) -> events.CheckFinished:
        at = started.at + datetime.timedelta(seconds=second)
        return events.CheckFinished(at=at, check=check, requirements=[], result=Result.PASS, seconds=seconds)

    checks = [
        ended("taints/test_a.py::test_one", 4, 4.0),
        ended("taints/test_a.py::test_two", 7, 6.0),
        ended("apf/test_b.py::test_three", 9, 1.5),
    ]
    log: list[events.Event] = [started, *checks]

    areas = Run.from_events([*log]).areas

    found = {area.name: (len(area.checks), area.seconds, area.elapsed) for area in areas}
    assert found == {"apf": (1, 1.5, 1.5), "taints": (2, 10.0, 7.0)}
