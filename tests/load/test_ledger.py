from __future__ import annotations

import pytest

from harness.errors import HarnessError
from load import ledger
from load.model import Cause, Stage, Timeline
from load.pod import PodRecord
from tests.load.world import kind


def _pod(name: str = "p", **fields: object) -> PodRecord:
    record = PodRecord(name, "ns", kind(), 0.0, ("measured",), expected_claims=1)
    for field, value in fields.items():
        setattr(record, field, value)
    return record


def _extended(*claims: str) -> PodRecord:
    of_scheduler = kind(claims_by_scheduler=True)
    return _pod(sent=1.0, accepted=True, kind=of_scheduler, claim_names=list(claims))


def _life(cause: Cause, name: str) -> Timeline:
    return Timeline(pod=f"ns/{name}", kind="gpu", due=0.0, cause=cause)


@pytest.mark.parametrize(
    ("pod", "last_stage", "cause"),
    [
        (_pod(), Stage.BOUND, Cause.DROPPED_BY_GENERATOR),
        (_pod(sent=1.0), Stage.BOUND, Cause.UNREACHABLE),
        (_pod(sent=1.0, refusal=Cause.SERVER_ERROR), Stage.BOUND, Cause.SERVER_ERROR),
        (_pod(sent=1.0, accepted=True), Stage.BOUND, Cause.NO_CLAIM),
        (_extended(), Stage.BOUND, Cause.NOT_BOUND),
        (_extended("c"), Stage.BOUND, Cause.NOT_ALLOCATED),
        (_pod(sent=1.0, accepted=True, claim_names=["c"]), Stage.BOUND, Cause.NOT_ALLOCATED),
        (
            _pod(sent=1.0, accepted=True, claim_names=["c"], stages={Stage.ALLOCATED: 2.0}),
            Stage.BOUND,
            Cause.NOT_BOUND,
        ),
        (_pod(sent=1.0, accepted=True, expected_claims=0), Stage.BOUND, Cause.NOT_BOUND),
        (_pod(sent=1.0, accepted=True, stages={Stage.BOUND: 2.0}), Stage.RUNNING, Cause.NOT_RUNNING),
        (_pod(sent=1.0, accepted=True, stages={Stage.BOUND: 2.0}), Stage.BOUND, Cause.NOT_RELEASED),
        (_pod(sent=1.0, accepted=True, delete_sent=3.0), Stage.RUNNING, Cause.NOT_RELEASED),
        (_pod(sent=1.0, accepted=True, taken=Cause.EVICTED), Stage.BOUND, Cause.EVICTED),
    ],
)
def test_an_open_pod_has_one_cause_at_the_end(pod: PodRecord, last_stage: Stage, cause: Cause) -> None:
    assert ledger.cause_at_end(pod, last_stage) is cause


@pytest.mark.parametrize(
    ("status", "reason", "definite"),
    [(429, "", True), (403, "", True), (409, "AlreadyExists", False), (504, "", False), (0, "", False)],
)
def test_only_a_refusal_says_that_there_is_no_pod(status: int, reason: str, definite: bool) -> None:
    assert ledger.is_definite(status, reason) is definite


def test_the_books_close_when_everybody_has_a_cause() -> None:
    books = ledger.Ledger(Stage.BOUND)
    books.intend()
    books.intend()
    books.close(_pod(), Cause.COMPLETED)

    with pytest.raises(HarnessError, match="2 pods were intended, 1 have a cause"):
        books.check()

    books.close(_pod(), Cause.NO_CLAIM)
    books.check()
    books.close(_pod(), Cause.NO_CLAIM)
    with pytest.raises(HarnessError, match="2 pods were intended, 3 have a cause"):
        books.check()


@pytest.mark.parametrize("part", ["kinds", "namespaces"])
def test_parts_that_add_up_to_something_else_are_found(part: str) -> None:
    causes = {Cause.COMPLETED: 2}
    good, bad = {"a": {Cause.COMPLETED: 2}}, {"a": {Cause.COMPLETED: 1, Cause.NO_CLAIM: 1}}

    ledger.check_closed(2, causes, good, good)
    with pytest.raises(HarnessError, match=part):
        ledger.check_closed(
            2, causes, bad if part == "kinds" else good, bad if part == "namespaces" else good
        )


def test_no_cause_crowds_out_another() -> None:
    refused = [_life(Cause.APF_REJECTED, str(number)) for number in range(9)]
    lost = [_life(Cause.NO_CLAIM, "lost")]

    kept = ledger.in_turn([refused, lost], 3)

    assert [life.pod for life in kept] == ["ns/0", "ns/lost", "ns/1"]
