"""Results of requirements, from several trials and from a run that can't be trusted."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import benchmarks
from clusters.interface import ClusterSpec
from harness.results import Result
from load.conclude import Progress, check_finished, conclude, merged, shape, trusted, unknown
from load.fingerprint import Fingerprint
from load.limits import Limits
from load.profiles.loader import find_profile, read_profile
from load.profiles.plan import Plan, make_plan
from load.request import LimitSet, LoadRequest, Size
from load.result import Figure, RequirementResult, Verdict
from load.scenarios.interface import Findings
from load.trials import Finished
from load.verdict import Judgement
from tests.support.load_results import START, server_books, trial

PROFILES = Path(benchmarks.__file__).parent / "profiles"


def found(name: str, result: Result, message: str = "") -> RequirementResult:
    return RequirementResult(requirement=name, result=result, message=message)


def test_of_several_trials_the_worst_counts() -> None:
    trials = [
        found("LIF-17", Result.PASS),
        found("MD-10", Result.PASS),
        found("LIF-17", Result.FAIL, "two calls failed"),
        found("LIF-17", Result.PASS),
    ]

    results = merged(trials)

    assert [(each.requirement, each.result, each.message) for each in results] == [
        ("LIF-17", Result.FAIL, "two calls failed"),
        ("MD-10", Result.PASS, ""),
    ]


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.FAIL])
def test_a_run_that_can_be_trusted_says_what_it_found(verdict: Verdict) -> None:
    results = [found("APF-07", Result.FAIL, "slow")]

    assert trusted(results, Judgement(verdict, [], [])) == results


@pytest.mark.parametrize("result", [Result.PASS, Result.FAIL])
def test_an_invalid_run_says_nothing_of_a_requirement(result: Result) -> None:
    judgement = Judgement(Verdict.INVALID, ["the machine was busy"], [])

    (told,) = trusted([found("APF-07", result)], judgement)

    assert told.result is Result.BLOCKED
    assert "the machine was busy" in told.message
    assert f"would be a {result}" in told.message


def test_the_report_says_why_an_api_server_is_out_of_reach() -> None:
    several = trial(server=server_books(unread=["kube-apiserver", "kube-scheduler"], api_servers=3))
    metrics = "metrics out of reach, so what they counted is not known: "

    assert unknown([several]) == [
        f"{metrics}kube-apiserver, kube-scheduler",
        "there are 3 API servers, and each counts only what it answered itself",
    ]
    one = trial(server=server_books(unread=["kube-scheduler"]))
    assert unknown([one]) == [f"{metrics}kube-scheduler"]
    assert unknown([trial(), trial(server=None)]) == []


def test_limits_that_nobody_knows_are_said_to_be_so(tmp_path: Path) -> None:
    asked = LoadRequest(profile="ext-churn", run_dir=tmp_path / "r", seed=1, spec=ClusterSpec(name="x"))
    plan = make_plan(find_profile("ext-churn"), asked)
    finished: Any = SimpleNamespace(findings=Findings(), result=trial())
    progress = Progress(finished=[finished], fingerprint=Fingerprint(facts={}))
    progress.limits = {"kube-controller-manager": Limits(20, 30), "kube-scheduler": None}

    result = conclude(asked, plan, progress, START, 1.0)

    assert result.observed_limits == {"kube-controller-manager": "20/30", "kube-scheduler": None}
    assert "limits of kube-scheduler not known" in result.notes
    progress.limits = {"kube-scheduler": Limits(50, 100)}
    assert conclude(asked, plan, progress, START, 1.0).notes == []


def test_the_report_says_which_trials_are_left_out(tmp_path: Path) -> None:
    asked = LoadRequest(profile="template-churn", run_dir=tmp_path / "r", seed=1, spec=ClusterSpec(name="x"))
    plan = make_plan(find_profile("template-churn"), asked)
    nothing: Any = None
    progress = Progress([Finished(nothing, trial(), Findings(), interrupted=False)])
    progress.fingerprint = Fingerprint(facts={})

    left, whole = (conclude(asked, each, progress, START, 1.0) for each in (plan.without_nodes(), plan))

    assert left.notes == ["left out, with what is asked of them, for want of nodes here: real"]
    assert "real.prepare-errors" not in {check.name for check in left.checks}
    assert whole.notes == []
    assert "real.prepare-errors was not measured" in whole.reasons


@pytest.mark.parametrize("size", list(Size))
@pytest.mark.parametrize(
    ("profile", "limits", "promised"),
    [
        ("template-churn", None, True),
        ("soak", LimitSet.OPEN, True),
        ("template-churn", LimitSet.TUNED, False),
        ("template-churn", LimitSet.DEFAULT, False),
        ("burst-claims", None, False),
        ("apf-starve", None, False),
    ],
)
def test_where_the_api_server_has_to_keep_its_slo(
    tmp_path: Path, size: Size, profile: str, limits: LimitSet | None, promised: bool
) -> None:
    asked = LoadRequest(
        profile=profile, run_dir=tmp_path, seed=1, spec=ClusterSpec(name="x"), size=size, limits=limits
    )
    plan = make_plan(find_profile(profile), asked)
    progress = Progress(fingerprint=Fingerprint(facts={}))
    progress.finished = [SimpleNamespace(findings=Findings(), result=trial())]  # type: ignore[list-item]

    checks = {each.name for each in conclude(asked, plan, progress, START, 1.0).checks}

    assert ("api.single.p99" in checks, "api.list.p99" in checks) == (promised, promised)


@pytest.mark.parametrize(("limits", "asked_for"), [(LimitSet.DEFAULT, False), (LimitSet.TUNED, True)])
def test_claims_that_are_still_to_be_made_break_nothing(
    tmp_path: Path, limits: LimitSet, asked_for: bool
) -> None:
    asked = LoadRequest(
        profile="burst-claims", run_dir=tmp_path, seed=1, spec=ClusterSpec(name="x"), limits=limits
    )
    measures = {each.measure for each in make_plan(find_profile("burst-claims"), asked).criteria}
    assert measures >= {"violations", "status-flaps"}
    of_all = {"claims-off", "unfinished"}
    assert measures & of_all == (of_all if asked_for else set())


def planned(tmp_path: Path, **changes: Any) -> Plan:
    """The plan of a profile of the user's own, with some keys changed."""
    path = tmp_path / "mine.yaml"
    document = yaml.safe_load((PROFILES / "template-rate.yaml").read_text()) | changes
    path.write_text(yaml.safe_dump(document))
    asked = LoadRequest(profile=str(path), run_dir=tmp_path / "r", seed=1, spec=ClusterSpec(name="x"))
    return make_plan(read_profile(path), asked)


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),
        ({"title": "Another", "asks": "What else?"}, True),
        ({"criteria": [{"measure": "bound.p99", "at_most": 9}]}, True),
        ({"pods": [{"name": "template", "via": "template", "cel": "true"}]}, False),
        ({"max_in_flight": 7}, False),
        ({"scenario": {"kind": "step-search", "most": 10}}, False),
    ],
)
def test_what_is_sent_is_in_the_fingerprint_and_its_description_is_not(
    tmp_path: Path, changes: dict[str, Any], same: bool
) -> None:
    one, other = (shape(planned(tmp_path, **each), 1) for each in ({}, changes))

    assert (one == other) is same
    assert one | {"content": ""} == other | {"content": ""}


@pytest.mark.parametrize(
    ("first", "same"), [({"rate": 10}, True), ({"rate": 11}, False), ({"rate": 10, "start": 0}, False)]
)
def test_stages_are_in_the_fingerprint(tmp_path: Path, first: dict[str, Any], same: bool) -> None:
    def of(stages: list[dict[str, Any]]) -> dict[str, Any]:
        size = {"simulated_nodes": 100, "rate": 70, "seconds": 20, "stages": stages}
        return shape(planned(tmp_path, sizes={"S": size, "M": size}), 1)

    last = {"seconds": 12, "rate": 70}
    one, other = of([{"seconds": 8, "rate": 10}, last]), of([{"seconds": 8} | first, last])

    assert (one == other) is same
    assert one | {"content": ""} == other | {"content": ""}


def test_the_event_of_a_result_carries_its_figures() -> None:
    result = RequirementResult(
        requirement="TNT-16", result=Result.PASS, figures={"p99": Figure(value=0.25, unit="s")}
    )

    event = check_finished("taint-storm", result)

    assert (event.check, event.requirements) == ("load/taint-storm::TNT-16", ["TNT-16"])
    assert [(each.title, each.value) for each in event.evidence] == [("p99", "0.25 s")]
