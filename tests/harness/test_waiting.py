from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from harness.waiting import NotYet, WaitTimeout, wait_until


class FakeTime:
    """A clock that only `sleep` moves on."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(time, "monotonic", fake.monotonic)
    return fake


def probe_of(*answers: object) -> Callable[[], object]:
    """A probe that gives (or raises) each answer in turn, the last one for ever."""
    left = list(answers)

    def probe() -> object:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return probe


def test_the_awaited_value_is_returned_at_once(clock: FakeTime) -> None:
    assert wait_until(lambda: {"a": 1}, 5, "it", sleep=clock.sleep) == {"a": 1}
    assert clock.slept == []


def test_it_asks_again_every_interval_until_the_value_is_there(clock: FakeTime) -> None:
    probe = probe_of(None, 0, "", NotYet("half"), [], "there")
    assert wait_until(probe, 60, "it", interval=2, sleep=clock.sleep) == "there"
    assert clock.slept == [2, 2, 2, 2, 2]


def test_without_an_interval_it_asks_less_often_with_time(clock: FakeTime) -> None:
    """A tenth of the time waited, at least 0.1 s and at most 0.5 s."""
    with pytest.raises(WaitTimeout):
        wait_until(probe_of(None), 8, "it", sleep=clock.sleep)

    assert clock.slept[:10] == pytest.approx([0.1] * 10)
    assert clock.slept[15] == pytest.approx(0.1 * sum(clock.slept[:15]))
    assert clock.slept[-1] == pytest.approx(0.5)


def test_what_is_costly_to_see_is_looked_at_once_in_vain(clock: FakeTime) -> None:
    looks: list[float] = []

    def look() -> str:
        looks.append(clock.now)
        return "the events"

    with pytest.raises(WaitTimeout, match=r"last seen: the events$"):
        wait_until(probe_of(NotYet(look)), 3, "it", interval=1, sleep=clock.sleep)
    assert looks == [1003.0]


def test_the_deadline_ends_it_with_what_was_last_seen(clock: FakeTime) -> None:
    probe = probe_of(NotYet("no pod"), NotYet("phase Pending"))
    with pytest.raises(WaitTimeout) as raised:
        wait_until(probe, 3, "pod a to run", interval=1, sleep=clock.sleep)
    assert str(raised.value) == "waited 3 s for pod a to run; last seen: phase Pending"
    assert (raised.value.describe, raised.value.seconds, raised.value.last) == (
        "pod a to run",
        3,
        "phase Pending",
    )
    assert clock.now == 1003.0


def test_a_falsy_answer_is_the_last_observation_too(clock: FakeTime) -> None:
    with pytest.raises(WaitTimeout, match=r"last seen: \[\]$"):
        wait_until(probe_of(NotYet("two"), []), 1, "it", interval=1, sleep=clock.sleep)


def test_what_was_seen_may_be_any_value(clock: FakeTime) -> None:
    seen = [("claim", None)]
    with pytest.raises(WaitTimeout) as raised:
        wait_until(probe_of(NotYet(seen)), 0, "it", sleep=clock.sleep)
    assert raised.value.last is seen


@pytest.mark.parametrize("deadline", [0, -5])
def test_it_asks_at_least_once(clock: FakeTime, deadline: float) -> None:
    assert wait_until(probe_of("there"), deadline, "it", sleep=clock.sleep) == "there"
    with pytest.raises(WaitTimeout):
        wait_until(probe_of(None), deadline, "it", sleep=clock.sleep)
    assert clock.slept == []


def test_it_asks_once_more_when_the_deadline_falls_into_a_pause(clock: FakeTime) -> None:
    assert wait_until(probe_of(None, None, "there"), 1.5, "it", interval=1, sleep=clock.sleep) == "there"


def test_other_exceptions_of_the_probe_pass_through_at_once(clock: FakeTime) -> None:
    broken = ConnectionResetError("gone")
    with pytest.raises(ConnectionResetError) as raised:
        wait_until(probe_of(NotYet("x"), broken), 60, "it", interval=1, sleep=clock.sleep)
    assert raised.value is broken
    assert clock.slept == [1]


def test_a_timeout_is_an_assertion_and_hides_the_machinery(clock: FakeTime) -> None:
    with pytest.raises(AssertionError) as raised:
        wait_until(probe_of(None), 0, "it", sleep=clock.sleep)
    assert raised.value.__suppress_context__


def test_seconds_are_written_as_people_do(clock: FakeTime) -> None:
    with pytest.raises(WaitTimeout, match=r"^waited 0\.5 s for it; last seen: None$"):
        wait_until(probe_of(None), 0.5, "it", interval=1, sleep=clock.sleep)
