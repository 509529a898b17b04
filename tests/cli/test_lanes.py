"""How a run shares its checks out to clusters that are up at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli import runner
from cli.runner import Runner, RunRequest, Step
from clusters.interface import ClusterSpec, Profile
from harness import events
from harness.errors import HarnessError
from suites.plan import Group

GA = Group(Profile.GA, (), together=("a", "b"), alone=("1", "2", "3", "4", "5"))
ALPHA = Group(Profile.ALPHA, (), together=("c",), alone=("6",))
ALONE = Group(Profile.GA, (("Gate", False),), together=(), alone=("7", "8", "9", "10", "11"))


def test_many_exclusive_checks_get_a_cluster_of_their_own() -> None:
    main, beside = runner._shared_out([ALPHA, GA], 4, one_cluster=False)

    assert main == [Step(ALPHA, [(("c",), 4), (("6",), 1)]), Step(GA, [(("a", "b"), 4)])]
    assert beside == [Step(GA, [(GA.alone, 1)])]


def test_exclusive_checks_that_are_all_of_a_group_are_no_second_cluster() -> None:
    assert runner._shared_out([ALONE], 4, one_cluster=False) == [[Step(ALONE, [(ALONE.alone, 1)])]]


def test_a_cluster_that_was_named_has_one_thing_after_the_other() -> None:
    assert runner._shared_out([GA], 4, one_cluster=True) == [
        [Step(GA, [(("a", "b"), 4), (GA.alone, 1)])],
    ]


class Checks:
    """Stands for checks under way: they end after so many looks, or when they are interrupted."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.interrupted = False

    def ended(self, seconds: float = 0.0) -> bool:
        self.looks -= 1
        return self.interrupted or self.looks < 0

    def interrupt(self) -> None:
        self.interrupted = True


@pytest.fixture
def bare(tmp_path: Path) -> Runner:
    request = RunRequest((), (), ClusterSpec("c"), None, None, False, 1, 2, (), ())
    made = Runner(request, object(), tmp_path)  # type: ignore[arg-type]  # no lane here uses it
    made._emit(events.HarnessFault(at=events.now(), message="a journal to follow"))
    return made


def lane(log: list[str], name: str, *parts: Any) -> Iterator[Any]:
    try:
        for part in parts:
            if isinstance(part, Exception):
                raise part
            log.append(f"{name} starts")
            yield part
            log.append(f"{name} goes on")
    finally:
        log.append(f"{name} cleans up")


def test_lanes_go_on_each_when_its_checks_have_ended(bare: Runner) -> None:
    log: list[str] = []

    bare._run_lanes([lane(log, "slow", Checks(20)), lane(log, "quick", Checks(1), Checks(1))])  # type: ignore[list-item]

    assert log == [
        *("slow starts", "quick starts", "quick goes on", "quick starts", "quick goes on"),
        *("quick cleans up", "slow goes on", "slow cleans up"),
    ]


def test_a_lane_that_fails_ends_the_others(bare: Runner) -> None:
    log: list[str] = []
    checks = Checks(1000)
    lanes = [lane(log, "good", checks), lane(log, "bad", Checks(1), HarnessError("pytest died"))]

    with pytest.raises(HarnessError, match="pytest died"):
        bare._run_lanes(lanes)  # type: ignore[arg-type]

    assert checks.interrupted
    assert log == ["good starts", "bad starts", "bad goes on", "bad cleans up", "good cleans up"]
