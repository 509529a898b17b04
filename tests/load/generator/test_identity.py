from __future__ import annotations

from pathlib import Path

import pytest

from load.generator.exchange import Answer
from load.generator.identity import Refused, check_observer, check_sender
from load.model import Flow
from tests.load.generator.apiserver import SENDER_FLOW
from tests.load.generator.running import orders

OWN = Flow(flow_schema_uid=SENDER_FLOW, priority_level_uid="level")


@pytest.mark.parametrize(
    "answer",
    [
        Answer(201, flow=OWN),
        Answer(429, flow=OWN, apf=True),
        Answer(409, flow=OWN, reason="Conflict"),
        Answer(403, flow=OWN, message="pods is forbidden: exceeded quota: quota, requested: ..."),
    ],
    ids=lambda answer: str(answer.status),
)
def test_a_sender_of_its_own_flow_may_measure(tmp_path: Path, answer: Answer) -> None:
    assert check_sender(answer, orders(tmp_path, "http://127.0.0.1:1")) == OWN


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(0, reason="ConnectionRefusedError"), "can't be reached: ConnectionRefusedError"),
        (Answer(201), "no priority and fairness UIDs"),
        (Answer(201, flow=Flow(flow_schema_uid="uid-of-exempt", priority_level_uid="l")), "exempt"),
        (Answer(201, flow=Flow(flow_schema_uid=SENDER_FLOW, priority_level_uid="uid-of-exempt")), "exempt"),
        (Answer(201, flow=Flow(flow_schema_uid="x", priority_level_uid="l")), "in FlowSchema x, not in its"),
        (Answer(403, flow=OWN, reason="Forbidden", message="cannot create pods"), "403 Forbidden: cannot"),
        (Answer(404, flow=OWN, reason="NotFound"), "create of a pod: 404"),
        (Answer(422, flow=OWN, reason="Invalid"), "create of a pod: 422"),
        (Answer(500, flow=OWN), "create of a pod: 500"),
    ],
)
def test_others_are_refused_with_the_reason(tmp_path: Path, answer: Answer, message: str) -> None:
    with pytest.raises(Refused, match=message):
        check_sender(answer, orders(tmp_path, "http://127.0.0.1:1"))


def test_an_observer_elsewhere_is_a_fault(tmp_path: Path) -> None:
    told = orders(tmp_path, "http://127.0.0.1:1", observer_flow_schema_uid="wanted")

    assert check_observer("wanted", told) == []
    assert check_observer("other", told) == ["the observer is in FlowSchema other, not in its own (wanted)"]
    assert "unknown" in check_observer("", told)[0]
