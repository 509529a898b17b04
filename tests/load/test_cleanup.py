"""What is leaked, by what is there before and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.kube import RESOURCE_CLAIMS, KubeClient
from load.cleanup import Census, leaks, settle
from load.model import Violation
from load.naming import Names
from tests.harness.api_server import write_config
from tests.support.api_server import serve

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


class Fewer(dict[str, Any]):
    """Answers in which there is one claim less each time."""

    def __init__(self, names: Names) -> None:
        self._left = [
            {"metadata": {"uid": str(number), "name": f"c{number}", "namespace": names.name("churn")}}
            for number in range(3)
        ]

    def get(self, asked: str, otherwise: Any = None) -> Any:
        if asked != f"GET {RESOURCE_CLAIMS.path()}":
            return otherwise
        answer = {"items": list(self._left), "metadata": {}}
        self._left = self._left[1:]
        return answer


@pytest.mark.parametrize(("each", "left"), [(0.0, 2), (20.0, 0)])
def test_the_more_claims_there_are_the_longer_they_have(tmp_path: Path, each: float, left: int) -> None:
    names = Names("r")
    with serve(Fewer(names), otherwise={"items": [], "metadata": {}}) as address:
        kube = KubeClient.from_kubeconfig(write_config(tmp_path / "config", address, {"token": "t"}))
        assert len(settle(kube, names, BEFORE, 0.0, each=each)) == left
