"""Loads that change: what a profile's stages come to, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from clusters.interface import ClusterSpec
from harness.errors import UsageError
from load import arrivals
from load.model import Arrivals
from load.profiles.loader import read_profile
from load.profiles.plan import Plan, make_plan
from load.profiles.trial import Trial
from load.request import LoadRequest
from tests.load.world import orders

SIZE: dict[str, Any] = {"simulated_nodes": 10, "rate": 10, "seconds": 20, "hold": 2, "prefill": 0.5}
STAGES: list[dict[str, Any]] = [
    {"seconds": 4, "rate": 2},
    {"seconds": 10, "start": 2, "rate": 6},
    {"seconds": 6, "rate": 10, "name": "top"},
]
"""8 pods, then 40, then 60: 108 in 20 s."""


def plan(
    folder: Path, stages: list[dict[str, Any]], *, scenario: Any = None, asked: Any = None, **size: Any
) -> Plan:
    """The plan of a profile with these stages in its size."""
    document = {
        "name": "mine",
        "title": "A test's own",
        "asks": "Does it?",
        "reports": "That it does.",
        "pods": [{"name": "template", "via": "template"}],
        "scenario": scenario or {"kind": "quiet"},
        "criteria": [{"measure": "bound.p99", "at_most": 1}],
        "sizes": {"S": SIZE | {"stages": stages} | size, "M": SIZE},
    }
    file = folder / "mine.yaml"
    file.write_text(yaml.safe_dump(document))
    request = LoadRequest(
        profile="mine.yaml", run_dir=folder / "r", seed=1, spec=ClusterSpec(name="x"), **(asked or {})
    )
    return make_plan(read_profile(file), request)


def further(stages: list[dict[str, Any]], **changed: Any) -> dict[str, Any]:
    return {"name": "more", "pods": ["template"], "rate": 10, "seconds": 20, "stages": stages} | changed


def shape(trial: Trial) -> list[tuple[Any, ...]]:
    return [(s.seconds, s.start, s.end, s.measured, s.phase) for s in trial.segments()]


def test_stages_are_steps_and_ramps_after_a_warm_up(tmp_path: Path) -> None:
    trial = plan(tmp_path, STAGES).main

    assert shape(trial) == [
        (15, 2, 2, False, ""),
        (4, 2, 2, True, ""),
        (10, 2, 6, True, ""),
        (6, 10, 10, True, "top"),
    ]
    ordered = orders(arrivals=Arrivals.FIXED, segments=trial.segments())
    due = [each.due for each in arrivals.schedule(ordered, started_at=0.0)]
    assert [sum(each <= end + 1e-6 for each in due) for end in (15, 19, 29, 35)] == [30, 38, 78, 138]
    assert trial.length == 35
    assert trial.says() == "4 s at 2 pods/s, 10 s from 2 to 6 pods/s, 6 s at 10 pods/s"
    assert trial.settings == {"stages": trial.says()}


def test_without_stages_a_trial_has_one_rate(tmp_path: Path) -> None:
    trial = plan(tmp_path, []).main

    assert shape(trial) == [(15, 10, 10, False, ""), (20, 10, 10, True, "")]
    assert trial.says() == "10 pods/s for 35 s"
    assert trial.settings == {}


def test_a_ramp_has_its_warm_up_at_its_beginning(tmp_path: Path) -> None:
    trial = plan(tmp_path, [{"seconds": 20, "start": 10, "rate": 0}]).main

    assert shape(trial) == [(15, 10, 10, False, ""), (20, 10, 0, True, "")]


def test_the_users_own_amounts_change_stages_as_a_whole(tmp_path: Path) -> None:
    """Half the seconds, and six tenths of the rate; a further trial has 3 s at the least, not 2."""
    stages = [{"seconds": 1, "rate": 5}, {"seconds": 3, "start": 5, "rate": 0}]
    more = further(stages, rate=5, seconds=4, warm_up=0)

    made = plan(tmp_path, STAGES, trials=[more], asked={"seconds": 10.0, "rate": 6.0})

    assert (made.main.rate, made.main.seconds, made.main.warm_up) == (6, 10, 7.5)
    assert shape(made.main)[1:] == [
        (2, pytest.approx(1.2), pytest.approx(1.2), True, ""),
        (5, pytest.approx(1.2), pytest.approx(3.6), True, ""),
        (3, pytest.approx(6), pytest.approx(6), True, "top"),
    ]
    (last,) = made.further
    assert last.rate == pytest.approx(3)
    assert last.seconds == 3
    assert shape(last) == [
        (0.75, pytest.approx(3), pytest.approx(3), True, ""),
        (2.25, pytest.approx(3), 0, True, ""),
    ]


def test_the_devices_have_to_take_the_highest_rate(tmp_path: Path) -> None:
    """40 devices are free; 17/s x (2 + 0.5) s = 42.5, at the end of a ramp that begins with none."""
    ramp = [{"seconds": 20, "start": 0, "rate": 17}]

    with pytest.raises(UsageError, match=r"^mine.yaml: sizes\.S\.rate: 17 pods/s.*about 43 devices"):
        plan(tmp_path, ramp, rate=17)
    with pytest.raises(UsageError, match=r"^mine.yaml: sizes\.S\.trials\.more\.rate: 17 pods/s.*about 43"):
        plan(tmp_path, [], trials=[further(ramp, rate=17)])
    assert plan(tmp_path, [{"seconds": 20, "start": 0, "rate": 16}], rate=16).main.rate == 16


@pytest.mark.parametrize(
    "scenario",
    [
        {"kind": "apf-sweep", "victims": ["generator"], "responses": ["reject"], "shares": [1]},
        {"kind": "slice-storm", "rate": 5},
        {"kind": "step-search", "most": 10},
        {"kind": "soak", "restart_every": 5, "restart": ["kube-scheduler"]},
        {"kind": "quota-raise", "used": {}, "raised": ["churn"], "neighbour": "churn"},
    ],
)
def test_no_stages_where_a_scenario_needs_one_rate(tmp_path: Path, scenario: dict[str, Any]) -> None:
    said = f".*{scenario['kind']} takes a trial to have one rate"

    with pytest.raises(UsageError, match=rf"^mine.yaml: sizes\.S\.stages: {said}"):
        plan(tmp_path, STAGES, scenario=scenario)
    with pytest.raises(UsageError, match=rf"^mine.yaml: sizes\.S\.trials\.more\.stages: {said}"):
        plan(tmp_path, [], trials=[further(STAGES)], scenario=scenario)


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ({"seconds": 20}, ".stages.0.rate: Field required"),
        ({"rate": 10}, ".stages.0.seconds: Field required"),
        ({"seconds": 0, "rate": 10}, ".stages.0.seconds: Input should be greater than 0"),
        ({"seconds": 20, "rate": -1}, ".stages.0.rate: Input should be greater than or equal to 0"),
        ({"seconds": 20, "rate": 10, "start": float("inf")}, ".stages.0.start: Input should be"),
        ({"seconds": 20, "rate": 10, "to": 5}, ".stages.0.to: no such key"),
        ({"seconds": 20, "rate": 10, "name": "a.b"}, ".stages.0.name: String should match"),
        ({"seconds": 20, "rate": 10, "name": "warm-up"}, ".stages.0.name: expected another name than"),
        ({"seconds": 20, "rate": 9, "start": 12}, ": rate: expected 12, the highest of its stages, not 10"),
        ({"seconds": 19, "rate": 10}, ": seconds: expected 19, the length of its stages, not 20"),
    ],
)
def test_a_wrong_stage_is_named_with_its_file_and_key(
    tmp_path: Path, stage: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError) as main:
        plan(tmp_path, [stage])
    with pytest.raises(UsageError) as trial:
        plan(tmp_path, [], trials=[further([stage])])

    assert str(main.value).startswith(f"{tmp_path}/mine.yaml: sizes.S{words}")
    assert str(trial.value).startswith(f"{tmp_path}/mine.yaml: sizes.S.trials.0{words}")
