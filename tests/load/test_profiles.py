"""Profiles: the nine that come with the program, and what is refused before anything is made."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusters.interface import ClusterSpec
from harness.errors import EnvironmentBlocked, UsageError
from load.profiles.loader import find_profile, names, read_profile
from load.profiles.plan import make_plan
from load.profiles.schema import Criterion, PodShape, Via
from load.request import LimitSet, LoadRequest, Size

NINE = {
    "apf-starve",
    "burst-claims",
    "ext-churn",
    "migrate-mix",
    "quota-storm",
    "slice-storm",
    "soak",
    "taint-storm",
    "template-churn",
}

DOCUMENT: dict[str, Any] = {
    "name": "mine",
    "title": "A test's own",
    "asks": "Does it?",
    "reports": "That it does.",
    "pods": [{"name": "template", "via": "template"}],
    "criteria": [{"measure": "bound.p99", "at_most": 1}],
    "sizes": {
        size: {"simulated_nodes": 10, "rate": 10, "seconds": 20, "hold": 2, "prefill": 0.5}
        for size in ("S", "M")
    },
}


def request(profile: str, **asked: Any) -> LoadRequest:
    return LoadRequest(
        profile=profile, run_dir=Path("never-made"), seed=1, spec=ClusterSpec(name="x"), **asked
    )


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Writes a profile with some keys changed; a key with dots reaches deep, None removes it."""

    def write(**changes: Any) -> Path:
        document = copy.deepcopy(DOCUMENT)
        for dotted, value in changes.items():
            *path, last = dotted.split("__")
            at: Any = document
            for part in path:
                at = at[int(part)] if part.isdigit() else at[part]
            if value is None:
                del at[last]
            else:
                at[last] = value
        file = tmp_path / "mine.yaml"
        file.write_text(yaml.safe_dump(document))
        return file

    return write


def test_nine_profiles_come_with_the_program() -> None:
    assert set(names()) == NINE


@pytest.mark.parametrize("name", sorted(NINE))
@pytest.mark.parametrize("size", Size)
@pytest.mark.parametrize("limits", LimitSet)
def test_each_can_be_run_in_each_size_and_limit_set(name: str, size: Size, limits: LimitSet) -> None:
    plan = make_plan(find_profile(name), request(name, size=size, limits=limits))

    assert plan.profile.name == name
    assert plan.main.devices_in_use() <= plan.free_devices
    assert plan.criteria


def test_size_s_of_all_nine_fits_into_25_minutes() -> None:
    """With the soak shortened to two minutes; 25 s for each cluster, 10 s of overhead for each trial."""
    total = 0.0
    for name in NINE:
        seconds = 120.0 if name == "soak" else None
        plan = make_plan(find_profile(name), request(name, seconds=seconds))
        arms = max(1, len(plan.scenario.arm_names()))
        total += 25 + sum(trial.length + 10 for trial in (*[plan.main] * arms, *plan.further))

    assert total < 25 * 60


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"flavour": "sweet"}, ["flavour: no such key"]),
        ({"pods__0__colour": "red"}, ["pods.0.colour: no such key"]),
        ({"sizes__S__speed": 1}, ["sizes.S.speed: no such key"]),
        ({"criteria__0__maximum": 1}, ["criteria.0.maximum: no such key"]),
        ({"sizes__S__rate": -3}, ["sizes.S.rate", "greater than or equal to 0"]),
        ({"sizes__S__rate": float("nan")}, ["sizes.S.rate", "finite number"]),
        ({"sizes__S__rate": float("inf")}, ["sizes.S.rate"]),
        ({"sizes__S__rate": 1e6}, ["sizes.S.rate", "less than or equal to 5000"]),
        ({"sizes__S__rate": "fast"}, ["sizes.S.rate", "valid number"]),
        ({"sizes__S__seconds": 0}, ["sizes.S.seconds", "greater than 0"]),
        ({"sizes__S__rate": 0}, ["sizes.S: rate: expected more than 0, or bursts"]),
        ({"sizes__S__prefill": 1}, ["sizes.S.prefill"]),
        ({"sizes__M": None}, ["sizes: expected S, M; M is missing"]),
        ({"sizes__L": DOCUMENT["sizes"]["S"]}, ["sizes.L"]),
        ({"pods__0__via": "magic"}, ["pods.0.via", "'template', 'explicit', 'implicit'"]),
        ({"pods": []}, ["pods", "at least 1 item"]),
        ({"pods": [*DOCUMENT["pods"], *DOCUMENT["pods"]]}, ["pods: expected each name once"]),
        ({"churn": ["other"]}, ["churn: expected names of pods (template), not 'other'"]),
        ({"limits": "none"}, ["limits", "'default', 'tuned' or 'open'"]),
        ({"last_stage": "gone"}, ["last_stage: expected bound or running"]),
        ({"criteria__0__at_least": 1}, ["criteria.0: expected exactly one of at_most and at_least"]),
        (
            {"pods": [{"name": "a", "via": "explicit", "cel": "true"}]},
            ["pods.0: cel: only pods with `via: template`"],
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_file_and_key(
    written: Callable[..., Path], changes: dict[str, Any], words: list[str]
) -> None:
    path = written(**changes)

    with pytest.raises(UsageError) as raised:
        read_profile(path)

    message = str(raised.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize("content", ["", "- a list", "just words", "{unclosed", "\0"])
def test_what_is_no_profile_at_all(tmp_path: Path, content: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(content)

    with pytest.raises(UsageError, match=str(path)):
        read_profile(path)


def test_a_name_that_is_none_lists_those_that_are() -> None:
    with pytest.raises(UsageError, match=r"'nope'.*apf-starve, burst-claims.*template-churn"):
        find_profile("nope")


def test_a_missing_file_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read"):
        find_profile(str(tmp_path / "none.yaml"))


def test_a_rate_that_the_devices_cannot_take(written: Callable[..., Path]) -> None:
    """10 nodes x 8 devices, half of them full: 40 free. 17/s x (2 + 0.5) s = 42.5 devices; 16/s: 40."""
    profile = read_profile(written())

    with pytest.raises(
        UsageError, match=r"sizes\.S\.rate: 17 pods/s.*about 43 devices.*; 40 of 80"
    ) as raised:
        make_plan(profile, request("mine.yaml", rate=17))
    assert str(raised.value).startswith("mine.yaml: ")
    make_plan(profile, request("mine.yaml", rate=16))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"rate": -1.0}, "--rate"),
        ({"rate": 0.0}, "--rate 0: expected more than 0"),
        ({"rate": float("inf")}, "--rate inf: expected"),
        ({"rate": float("nan")}, "--rate"),
        ({"seconds": 0.0}, "--seconds"),
        ({"seconds": -5.0}, "--seconds"),
        ({"simulated_nodes": -1}, "--simulated-nodes"),
        ({"nodes": 0}, "--nodes"),
        ({"arms": ["x"]}, "--arm x: the profile mine has no arms"),
    ],
)
def test_amounts_of_the_user_that_cannot_be(
    written: Callable[..., Path], asked: dict[str, Any], words: str
) -> None:
    profile = read_profile(written())

    with pytest.raises(UsageError, match=words):
        make_plan(profile, request("mine.yaml", **asked))


@pytest.mark.parametrize("name", sorted(NINE))
def test_without_nodes_on_this_machine_what_is_on_simulated_ones_is_left(name: str) -> None:
    plan = make_plan(find_profile(name), request(name))
    if name in ("apf-starve", "soak"):
        with pytest.raises(EnvironmentBlocked, match=f"^{name}: it has pods on real nodes"):
            plan.without_nodes()
        return
    trials = [trial.name for trial in plan.further]
    left = [trial.name for trial in plan.without_nodes().further]
    assert left == [trial for trial in trials if trial != "real"]
    assert (left != trials) is (name == "template-churn")
    asked, still = (
        [each.measure for each in found.criteria if each.measure.startswith("real.")]
        for found in (plan, plan.without_nodes())
    )
    assert (bool(asked), still) == (name == "template-churn", [])
    assert len(plan.without_nodes().criteria) == len(plan.criteria) - len(asked)


def test_a_sweep_is_left_with_the_arms_that_squeeze_no_node() -> None:
    plan = make_plan(find_profile("apf-starve"), request("apf-starve", arms=["scheduler-reject-1"]))
    assert plan.without_nodes() == plan


def test_the_control_arm_alone_shows_nothing() -> None:
    with pytest.raises(UsageError, match=r"--arm control: .*; expected one of generator-reject-1, "):
        make_plan(find_profile("apf-starve"), request("apf-starve", arms=["control"]))
    both = ["control", "generator-reject-1"]
    assert make_plan(find_profile("apf-starve"), request("apf-starve", arms=both)).arms == tuple(both)


def test_an_arm_that_is_none_lists_those_that_are() -> None:
    with pytest.raises(UsageError, match=r"--arm nobody: expected one of control, generator-reject-1"):
        make_plan(find_profile("apf-starve"), request("apf-starve", arms=["nobody"]))


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        ({"kind": "magic"}, "scenario.*'magic'"),
        ({"kind": "step-search", "most": 10, "speed": 1}, r"scenario\.step-search\.speed: no such key"),
        ({"kind": "step-search", "most": 1}, r"scenario\.most: expected at least scenario\.first"),
        ({"kind": "slice-storm", "rate": 5}, "pools: expected `own`"),
        ({"kind": "taint-toggles", "evict": 41}, r"scenario\.evict: 41 pods need a device each; 40 are free"),
        ({"kind": "taint-toggles", "evict": 1, "shares": [2]}, r"scenario\.shares"),
        ({"kind": "reference", "trial": "none"}, r"scenario\.trial"),
        ({"kind": "soak", "restart_every": 5, "restart": ["etcd"]}, r"scenario\.restart.*'etcd'"),
        (
            {"kind": "quota-raise", "used": {"nowhere": 1}, "raised": ["churn"], "neighbour": "churn"},
            r"expected namespaces of pods \(churn\), not 'nowhere'",
        ),
        ({"kind": "migrate"}, "pools: expected `own`"),
    ],
)
def test_a_scenario_that_cannot_be(
    written: Callable[..., Path], scenario: dict[str, Any], words: str
) -> None:
    profile = read_profile(written(scenario=scenario))

    with pytest.raises(UsageError, match=words):
        make_plan(profile, request("mine.yaml"))


def test_a_size_changes_the_scenario(written: Callable[..., Path]) -> None:
    path = written(
        scenario={"kind": "step-search", "most": 50, "p99": 3},
        sizes__M__scenario={"most": 500},
    )
    profile = read_profile(path)

    small, large = (make_plan(profile, request("mine.yaml", size=size)).scenario for size in Size)

    assert (small.model_dump()["most"], large.model_dump()["most"]) == (50, 500)
    assert (small.model_dump()["p99"], large.model_dump()["p99"]) == (3, 3)


def test_fewer_seconds_shorten_everything(written: Callable[..., Path]) -> None:
    """A quarter of 20 s: the 15 s of warm-up become 3.75 s, a trial's 12 s become 3 s and not less."""
    trial = {"name": "more", "pods": ["template"], "rate": 5, "seconds": 12}
    profile = read_profile(written(sizes__S__trials=[trial, trial | {"name": "short", "seconds": 4}]))

    plan = make_plan(profile, request("mine.yaml", seconds=5.0))

    assert (plan.main.warm_up, plan.main.seconds) == (3.75, 5)
    assert [each.seconds for each in plan.further] == [3, 3]


def test_more_seconds_lengthen_only_the_measured_part(written: Callable[..., Path]) -> None:
    plan = make_plan(read_profile(written()), request("mine.yaml", seconds=600.0))

    assert (plan.main.warm_up, plan.main.seconds) == (15, 600)


@pytest.mark.parametrize(
    ("via", "amounts", "devices", "claims"),
    [
        (Via.TEMPLATE, {"devices": 2, "requests": 3, "claims": 2}, 12, 2),
        (Via.TEMPLATE, {}, 1, 1),
        (Via.EXPLICIT, {"devices": 4}, 4, 1),
        (Via.IMPLICIT, {}, 1, 1),
        (Via.PLUGIN, {"devices": 2}, 2, 0),
        (Via.PLAIN, {}, 0, 0),
    ],
)
def test_what_a_pod_takes(via: Via, amounts: dict[str, int], devices: int, claims: int) -> None:
    shape = PodShape(name="pod", via=via, **amounts)  # type: ignore[arg-type] # by a test's parameters

    assert (shape.devices_per_pod, shape.claims_per_pod) == (devices, claims)


def test_a_limit_is_not_kept_by_a_value_that_may_be_more() -> None:
    limit = Criterion(measure="bound.p99", at_most=1)
    floor = Criterion(measure="capacity", at_least=20)

    assert limit.holds(1.0)
    assert not limit.holds(1.01)
    assert not limit.holds(0.5, or_more=True)
    assert floor.holds(20, or_more=True)
    assert not floor.holds(19.9)


def test_the_shape_of_a_trial(written: Callable[..., Path]) -> None:
    trial = make_plan(read_profile(written()), request("mine.yaml")).main

    phased = trial.again("phased", phases=(("a", 3.0), ("b", 5.0)))

    assert [(s.seconds, s.measured, s.phase, s.start) for s in trial.segments()] == [
        (15, False, "", 10),
        (20, True, "", 10),
    ]
    assert [(s.seconds, s.measured, s.phase, s.start) for s in phased.segments()] == [
        (15, False, "", 10),
        (3, True, "a", 10),
        (5, True, "b", 10),
    ]
    assert (phased.name, phased.length) == ("phased", 23)


@pytest.mark.parametrize(("fill", "used"), [("spread", [4, 4, 4, 4]), ("nodes", [8, 8, 0, 0])])
def test_how_devices_in_use_lie(written: Callable[..., Path], fill: str, used: list[int]) -> None:
    """The same half of the devices: pods of five find no node with five, or two of them."""
    path = written(fill=fill, sizes__S__simulated_nodes=4, sizes__S__rate=1)

    plan = make_plan(read_profile(path), request("mine.yaml"))

    assert plan.filled(8, 4) == used
    assert (plan.prefilled_devices, plan.free_devices) == (16, 16)
    assert plan.room(5) == {"spread": 0, "nodes": 2}[fill]
    assert plan.room(1) == 16


def test_pods_that_no_node_has_room_for(written: Callable[..., Path]) -> None:
    path = written(pods=[{"name": "wide", "via": "template", "requests": 5}], sizes__S__rate=1)

    with pytest.raises(UsageError, match=r"rate: .*about 3 wide pods.* have room for 0, with 5 devices each"):
        make_plan(read_profile(path), request("mine.yaml"))
