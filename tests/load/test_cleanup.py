"""What is leaked, by what is there before and after."""

from __future__ import annotations

from load.cleanup import Census, leaks
from load.model import Violation

BEFORE = Census(at=1.0, claims={"u1": "ns/filled"}, deleting={}, pods={})


def test_claims_that_were_there_before_are_not_leaked() -> None:
    assert leaks(BEFORE, Census(9.0, {"u1": "ns/filled"}, {}, {})) == []
    assert leaks(BEFORE, Census(9.0, {}, {}, {"p": "ns/pod"})) == []


def test_claims_that_stayed_are_leaked_and_deleted_ones_held_by_their_finalizers() -> None:
    after = Census(9.0, {"u1": "ns/filled", "u2": "ns/left", "u3": "ns/held"}, {"u3": "ns/held"}, {})
    assert leaks(BEFORE, after) == [
        Violation(
            invariant="leaked-claim", at=9.0, object="ns/left", message="is still there after the drain"
        ),
        Violation(
            invariant="leaked-finalizer",
            at=9.0,
            object="ns/held",
            message="is still there after the drain: deleted, but a finalizer holds it",
        ),
    ]


def test_a_claim_of_the_same_name_is_another_one() -> None:
    (found,) = leaks(BEFORE, Census(9.0, {"u9": "ns/filled"}, {}, {}))
    assert found.object == "ns/filled"
