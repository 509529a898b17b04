"""Constraints between devices whose attributes are lists: LST-02, LST-03 and LST-05."""

from __future__ import annotations

import itertools
import random

import pytest

from clusters.interface import Cluster
from suites.claims import NO_FIT, allocated_to, create_pod, request
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal, symptom
from suites.list_attributes.values import (
    Groups,
    ask,
    attribute,
    device_names,
    pod_name,
    profile,
    start,
    wait_placed,
)
from suites.marks import deviation, requirement
from suites.workload import Workloads

MATCH, DISTINCT = "matchAttribute", "distinctAttribute"

_NOT_WIRED = "k/k#139332"
_SINGLE_VALUES_ONLY = symptom(_NOT_WIRED, NO_FIT, "it was placed on")
"""What a scheduler does that compares single values only: it refuses lists, or takes any for distinct."""

ALIKE: Groups = {
    "three_lists": [{"ints": [1, 2, 3]}, {"ints": [4, 3, 2]}, {"ints": [5, 3]}],
    "strings": [{"strings": ["a", "b"]}, {"strings": ["b", "c"]}],
    "truth_values": [{"bools": [True, False]}, {"bools": [False]}],
    "versions": [{"versions": ["1.0.0", "2.0.0"]}, {"versions": ["2.0.0"]}],
    "single_first": [{"int": 2}, {"ints": [7, 2]}, {"ints": [2, 3]}],
    "single_last": [{"ints": [7, 2]}, {"ints": [2, 3]}, {"int": 2}],
    "singles": [{"string": "a"}, {"string": "a"}],
    "order_and_repetition": [{"ints": [3, 3, 1]}, {"ints": [1, 1]}],
}
"""All devices of each group have a value in common."""

APART: Groups = {
    "pairs_only": [{"ints": [1, 2]}, {"ints": [2, 3]}, {"ints": [3, 1]}],
    "single_outside": [{"int": 4}, {"ints": [1, 2, 3]}],
    "digits_and_text": [{"ints": [1]}, {"strings": ["1"]}],
    "text_and_version": [{"strings": ["1.0.0"]}, {"versions": ["1.0.0"]}],
}
"""The devices of each group, taken together, have no value in common."""

DISJOINT: Groups = {
    "lists": [{"ints": [1, 2]}, {"ints": [3]}, {"ints": [5, 4]}],
    "single_first": [{"int": 1}, {"ints": [2, 3]}, {"int": 4}],
    "strings": [{"strings": ["a", "b"]}, {"strings": ["c"]}],
    "truth_values": [{"bools": [True]}, {"bool": False}],
    "versions": [{"versions": ["1.0.0"]}, {"versions": ["2.0.0", "3.0.0"]}],
}
"""No two devices of a group have a value in common."""

OVERLAPPING: Groups = {
    "two_of_three": [{"ints": [1, 2]}, {"ints": [3, 4]}, {"ints": [5, 4]}],
    "single_first": [{"int": 2}, {"ints": [1, 2]}],
    "single_last": [{"ints": [1, 2]}, {"int": 2}],
    "equal_lists": [{"strings": ["a", "b"]}, {"strings": ["b", "a"]}],
    "versions": [{"versions": ["1.0.0", "2.0.0"]}, {"version": "2.0.0"}],
}
"""At least two devices of each group have a value in common."""


@pytest.mark.parametrize(
    ("kind", "groups"),
    [
        pytest.param(MATCH, ALIKE, marks=requirement("LST-02"), id=MATCH),
        pytest.param(DISTINCT, DISJOINT, marks=requirement("LST-03"), id=DISTINCT),
    ],
)
@deviation(_NOT_WIRED)
@_SINGLE_VALUES_ONLY
def test_met(
    kind: str,
    groups: Groups,
    cluster: Cluster,
    drivers: Drivers,
    workloads: Workloads,
    evidence: Observations,
) -> None:
    """All devices of a group are allocated together, for every type, in lists, singly and mixed."""
    source = start(drivers, cluster, groups)

    for group, values in groups.items():
        ask(workloads, group, len(values), kind, source)

    for group, values in groups.items():
        wait_placed(workloads, group)
        workloads.wait_running(pod_name(group))
        devices = allocated_to(workloads, pod_name(group))
        evidence(group, {"values": list(values), "devices allocated": devices})
        expect_equal(f"{group}: devices allocated together", devices, device_names(group, len(values)))


@pytest.mark.parametrize(
    ("kind", "groups"),
    [
        pytest.param(MATCH, APART, marks=requirement("LST-02"), id=MATCH),
        pytest.param(DISTINCT, OVERLAPPING, marks=requirement("LST-03"), id=DISTINCT),
    ],
)
@deviation(_NOT_WIRED)
@_SINGLE_VALUES_ONLY
def test_not_met(
    kind: str,
    groups: Groups,
    cluster: Cluster,
    drivers: Drivers,
    workloads: Workloads,
    evidence: Observations,
) -> None:
    """No group is allocated together, for its values alone: with others, the same pods run."""
    source = start(drivers, cluster, groups)

    for group, values in groups.items():
        ask(workloads, group, len(values), kind, source)
    for group, values in groups.items():
        refusal = workloads.wait_unschedulable(pod_name(group), NO_FIT)
        evidence(group, {"values": list(values), "the scheduler says": refusal})
        expect_equal(f"{group}: devices", allocated_to(workloads, pod_name(group)), [])

    common = [9] if kind == MATCH else []
    others = {group: [{"ints": [i, *common]} for i in range(len(groups[group]))] for group in groups}
    driver, _ = source
    driver.client.set_inventory(profile(others))
    for group in groups:
        workloads.wait_running(pod_name(group))
        evidence(f"{group}, with other values", {"values": others[group]})


@requirement("LST-02")
@deviation(_NOT_WIRED)
@_SINGLE_VALUES_ONLY
def test_only_the_requests_that_it_names_are_bound(
    cluster: Cluster, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """A constraint on two requests leaves the third free to be anything."""
    groups: Groups = {"three": [{"ints": [1, 2]}, {"ints": [5]}, {"int": 2}]}
    driver, device_class = start(drivers, cluster, groups)
    requests = [request(name, device_class) for name in ("one", "two", "free")]

    constraint = {MATCH: attribute(driver, "three"), "requests": ["one", "two"]}
    create_pod(workloads, "pod", requests, constraint)
    workloads.wait_running("pod")

    (claim,) = workloads.claims()
    results = claim["status"]["allocation"]["devices"]["results"]
    by_request = {result["request"]: result["device"] for result in results}
    evidence("device of each request", by_request)
    bound = {by_request["one"], by_request["two"]}
    expect_equal("the bound pair", bound, {"three-0", "three-2"}, claim)
    expect_equal("the free request's device", by_request["free"], "three-1", claim)


@requirement("LST-03")
@deviation(_NOT_WIRED)
@_SINGLE_VALUES_ONLY
def test_distinct_devices_are_picked_out(
    cluster: Cluster, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Of three devices, each overlapping the next, the two that don't overlap are chosen."""
    source = start(drivers, cluster, {"chain": [{"ints": [1, 2]}, {"ints": [2, 3]}, {"ints": [3, 4]}]})

    ask(workloads, "chain", 2, DISTINCT, source)
    workloads.wait_running("chain")

    evidence("devices allocated", allocated_to(workloads, "chain"))
    expect_equal("the only disjoint pair", allocated_to(workloads, "chain"), ["chain-0", "chain-2"])


@requirement("LST-05")
def test_a_first_choice_is_taken_back(
    cluster: Cluster, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """The second device narrows the common values to 1 and leads nowhere: the others go together."""
    groups: Groups = {"four": [{"ints": [1, 2]}, {"ints": [1]}, {"ints": [2]}, {"int": 2}]}
    source = start(drivers, cluster, groups)

    ask(workloads, "four", 3, MATCH, source)
    workloads.wait_running("four")

    evidence("values", groups["four"])
    evidence("devices allocated", allocated_to(workloads, "four"))
    expected = ["four-0", "four-2", "four-3"]
    expect_equal("the only combination", allocated_to(workloads, "four"), expected)


Puzzle = list[list[int]]


@requirement("LST-05")
def test_a_combination_is_found_if_there_is_one(
    cluster: Cluster, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """On seeded puzzles, all of which defeat first choices, the scheduler agrees with trying everything."""
    count = 4
    puzzles = {f"p{index}": puzzle for index, puzzle in enumerate(_puzzles(count))}
    groups = {name: [{"ints": values} for values in puzzle] for name, puzzle in puzzles.items()}
    source = start(drivers, cluster, groups)

    for name in puzzles:
        ask(workloads, name, count, MATCH, source)

    for name, puzzle in puzzles.items():
        solutions = _solutions(puzzle, count)
        if not solutions:
            refusal = workloads.wait_unschedulable(name, NO_FIT)
            evidence(f"{name}: no combination", {"lists": puzzle, "the scheduler says": refusal})
            continue
        workloads.wait_running(name)
        devices = allocated_to(workloads, name)
        evidence(f"{name}: {len(solutions)} combinations", {"lists": puzzle, "devices": devices})
        chosen = tuple(sorted(int(device.partition("-")[2]) for device in devices))
        expect(f"{name}: one of {solutions}", chosen in solutions, chosen)


def _puzzles(count: int) -> list[Puzzle]:
    """Four puzzles with an answer and two without; taking each device that fits solves none."""
    random_ = random.Random(5491)  # noqa: S311 - puzzles, not secrets
    solvable: list[Puzzle] = []
    unsolvable: list[Puzzle] = []
    while len(solvable) < 4 or len(unsolvable) < 2:
        puzzle = [random_.sample(range(6), random_.randint(1, 3)) for _ in range(9)]
        if not _first_choices_do(puzzle, count):
            (solvable if _solutions(puzzle, count) else unsolvable).append(puzzle)
    return solvable[:4] + unsolvable[:2]


def _first_choices_do(puzzle: Puzzle, count: int) -> bool:
    common, taken = set(range(6)), 0
    for values in puzzle:
        if common & set(values):
            common &= set(values)
            taken += 1
    return taken >= count


def _solutions(puzzle: Puzzle, count: int) -> list[tuple[int, ...]]:
    return [
        chosen
        for chosen in itertools.combinations(range(len(puzzle)), count)
        if set.intersection(*(set(puzzle[index]) for index in chosen))
    ]
