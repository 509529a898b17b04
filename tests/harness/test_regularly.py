"""Work that is done again and again beside something else."""

from __future__ import annotations

import threading

import pytest

from harness.regularly import regularly
from harness.waiting import wait_until


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "work"]


def test_it_ends_with_the_block_also_after_an_error() -> None:
    done: list[int] = []

    def work() -> bool:
        done.append(1)
        return True

    def interrupted() -> None:
        with regularly("work", 0.001, work):
            wait_until(lambda: len(done) > 3, 10, "work", interval=0.001)
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - the one just above
        interrupted()
    assert _threads() == []


def test_it_ends_where_the_work_says_so() -> None:
    done: list[int] = []

    def work() -> bool:
        done.append(1)
        return len(done) < 3

    with regularly("work", 0.001, work):
        wait_until(lambda: not _threads(), 10, "its end", interval=0.001)
    assert len(done) == 3


def test_what_is_under_way_is_waited_for() -> None:
    begun, may_end, done = threading.Event(), threading.Event(), []

    def work() -> bool:
        begun.set()
        may_end.wait(10)
        done.append(1)
        return True

    with regularly("work", 0.001, work):
        assert begun.wait(10)
        threading.Timer(0.05, may_end.set).start()
    assert done == [1]
