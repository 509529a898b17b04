"""The books of a worker that died."""

from __future__ import annotations

from load.ledger import check_closed
from load.lost import lost_report
from load.merge import merge
from load.model import Arrivals, Burst, Cause, Orders, Segment, WorkerReport
from tests.load.world import kind, orders


def ten_a_second(**more: object) -> Orders:
    """Twenty fixed arrivals, at 0.1, 0.2, ... 2.0 s."""
    return orders(arrivals=Arrivals.FIXED, segments=[Segment(seconds=2, start=10, end=10)], **more)


def lost(ordered: Orders, *, index: int = 1, until: float = 2.0) -> WorkerReport:
    return lost_report(
        ordered, index=index, count=2, started_at=100.0, until=until, reason="worker b was lost"
    )


def test_all_that_came_due_on_it_is_lost() -> None:
    report = lost(ten_a_second())

    assert report.intended == 10
    assert report.causes == {Cause.LOST_WITH_WORKER: 10}
    assert report.causes_by_kind == {"gpu": report.causes}
    assert report.causes_by_namespace == {"ns": report.causes}
    assert report.workers == 0


def test_the_two_workers_parts_are_the_whole() -> None:
    ordered = ten_a_second(kinds=[kind("gpu"), kind("nic", namespaces=["n1", "n2", "n3"])])

    both = merge([lost(ordered, index=0), lost(ordered, index=1)])

    assert both.intended == 20
    check_closed(both.intended, both.causes, both.causes_by_kind, both.causes_by_namespace)
    assert set(both.causes_by_kind) == {"gpu", "nic"}
    assert len({life.pod for life in both.timelines}) == 20


def test_what_was_due_after_an_interruption_is_not_intended() -> None:
    # of 0.1, 0.2, ... 1.0 s the second worker has every other: 0.2, 0.4, 0.6, 0.8, 1.0
    report = lost(ten_a_second(), until=1.01)

    assert report.intended == 5
    assert [round(life.due, 6) for life in report.timelines] == [100.2, 100.4, 100.6, 100.8, 101.0]
    assert {life.message for life in report.timelines} == {"worker b was lost"}


def test_bursts_are_in_it() -> None:
    assert lost(orders(bursts=[Burst(at=1, pods=7)])).intended == 3


def test_without_arrivals_there_is_no_cause() -> None:
    assert lost(ten_a_second(), until=0.0).causes == {}
