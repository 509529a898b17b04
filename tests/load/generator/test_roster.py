"""Who may take part, and how far apart clocks are."""

from __future__ import annotations

from pathlib import Path

import pytest

from load.generator.clock import offset
from load.generator.roster import Roster, credentials
from load.model import Orders, Segment
from tests.load.generator.running import orders


@pytest.fixture
def ordered(tmp_path: Path) -> Orders:
    return orders(tmp_path, "http://127.0.0.1:1")


def test_a_clock_is_read_to_half_of_the_way() -> None:
    """Ours asks at 10.0 and has the answer at 10.8; the other's worked from 110.5 to 111.0 meanwhile."""
    read = offset(10.0, 110.5, 111.0, 10.8)

    assert read.seconds == pytest.approx(100.35)
    assert read.uncertainty == pytest.approx(0.15)
    # At the extremes all 0.3 s of the way were on one side: 110.5 there was 10.0 or 10.3 here.
    assert read.seconds - read.uncertainty == pytest.approx(100.2)
    assert read.seconds + read.uncertainty == pytest.approx(100.5)


def test_workers_with_the_same_orders_take_part(ordered: Orders) -> None:
    roster = Roster(ordered, 2)

    assert roster.join("id-1", credentials(ordered, "alpha")) == ""
    before = roster.complete
    assert roster.join("id-2", credentials(ordered, "")) == ""
    assert roster.join("id-1", credentials(ordered, "alpha")) == "", "to join again is no news"

    assert (before, roster.complete) == (False, True)
    assert [(each.client, each.name) for each in roster.members] == [("id-1", "alpha"), ("id-2", "1")]
    assert roster.index("id-2") == 1


def test_where_the_credentials_are_is_no_difference(ordered: Orders, tmp_path: Path) -> None:
    elsewhere = ordered.model_copy(update={"sender_kubeconfig": tmp_path / "elsewhere"})

    assert Roster(ordered, 1).join("id", credentials(elsewhere, "alpha")) == ""


def test_other_orders_are_refused_and_named(ordered: Orders) -> None:
    roster = Roster(ordered, 2)
    other = ordered.model_copy(update={"segments": [Segment(seconds=2, start=20, end=21)]})

    reason = roster.join("id", credentials(other, "alpha"))

    assert reason.startswith("worker alpha has other orders than the master")
    assert "0 of 2 workers joined (nobody); worker alpha has other orders" in roster.missing()
    assert "id" not in roster


def test_another_version_is_refused_and_both_are_named(ordered: Orders) -> None:
    shown = {**credentials(ordered, "alpha"), "version": "0.0.9 (code 0123)"}

    reason = Roster(ordered, 1).join("id", shown)

    assert reason.startswith("worker alpha runs dra-harness 0.0.9 (code 0123), the master 0.1.0 (code ")


def test_one_too_many_is_refused(ordered: Orders) -> None:
    roster = Roster(ordered, 1)
    roster.join("id-1", credentials(ordered, "alpha"))

    assert "worker beta is one too many: 1 were expected" in roster.join("id-2", credentials(ordered, "beta"))


def test_a_stranger_that_shows_nothing_is_refused(ordered: Orders) -> None:
    assert "worker id runs dra-harness None" in Roster(ordered, 1).join("id", {})
