"""Faults on request, one kind after the other, and the record of calls."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from fake_driver.client import DriverError
from fake_driver.faults import Fault, FaultKind, WrongAnswer
from pydantic import ValidationError

from harness.waiting import wait_until
from tests.fake_driver.conftest import NODE, Rig

Claims = Callable[..., dict[str, Any]]


def fault(kind: FaultKind, method: str = "NodePrepareResources", **fields: Any) -> Fault:
    return Fault.model_validate({"method": method, "kind": kind, **fields})


def test_error_with_a_status_code_for_the_next_calls_only(rig: Rig, claim: Claims) -> None:
    one = claim(("req", "dev-0"))
    rig.client.set_fault(fault(FaultKind.ERROR, code="UNAVAILABLE", message="not now", times=2))
    for _ in range(2):
        with pytest.raises(grpc.RpcError) as caught:
            rig.kubelet().prepare(one)
        assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.UNAVAILABLE, "not now")
    assert rig.client.status().node(NODE).prepared_claims == []
    assert rig.kubelet().prepare(one)[one["metadata"]["uid"]].error == ""
    assert [call.error for call in rig.client.calls(method="NodePrepareResources")] == [
        "UNAVAILABLE: not now",
        "UNAVAILABLE: not now",
        None,
    ]


def test_error_after_the_work_was_done(rig: Rig, claim: Claims) -> None:
    one = claim(("req", "dev-0"))
    rig.client.set_fault(fault(FaultKind.ERROR, when="after"))
    with pytest.raises(grpc.RpcError):
        rig.kubelet().prepare(one)
    assert rig.client.status().node(NODE).prepared_claims == [one["metadata"]["uid"]]


def test_claim_error_hits_only_that_claim(rig: Rig, claim: Claims) -> None:
    one, two = claim(("req", "dev-0")), claim(("req", "dev-1"))
    uids = [one["metadata"]["uid"], two["metadata"]["uid"]]
    rig.client.set_fault(fault(FaultKind.CLAIM_ERROR, claim_uid=uids[0], message="broken"))
    answers = rig.kubelet().prepare(one, two)
    assert [answers[uid].error for uid in uids] == ["broken", ""]
    assert rig.client.status().node(NODE).prepared_claims == [uids[1]]


def test_unprepare_can_fail_too(rig: Rig, claim: Claims) -> None:
    one = claim(("req", "dev-0"))
    uid = one["metadata"]["uid"]
    rig.kubelet().prepare(one)
    rig.client.set_fault(fault(FaultKind.CLAIM_ERROR, "NodeUnprepareResources", message="stuck"))
    assert rig.kubelet().unprepare(one)[uid].error == "stuck"
    assert rig.client.status().node(NODE).prepared_claims == [uid]
    rig.client.clear_faults()
    assert rig.kubelet().unprepare(one)[uid].error == ""


def test_delay(rig: Rig, claim: Claims) -> None:
    one = claim(("req", "dev-0"))
    rig.client.set_fault(fault(FaultKind.DELAY, seconds=0.2))
    started = time.monotonic()
    rig.kubelet().prepare(one)
    assert time.monotonic() - started >= 0.2
    (call,) = rig.client.calls(method="NodePrepareResources")
    assert call.seconds is not None
    assert call.seconds >= 0.2


def test_hang_until_cleared(rig: Rig, claim: Claims) -> None:
    one = claim(("req", "dev-0"))
    uid = one["metadata"]["uid"]
    rig.client.set_fault(fault(FaultKind.HANG, times=1))
    answers: list[Any] = []
    caller = threading.Thread(target=lambda: answers.append(rig.kubelet().prepare(one)))
    caller.start()
    (call,) = wait_until(lambda: rig.client.calls(claim_uid=uid), 60, "the call to arrive", interval=0.02)
    assert call.seconds is None
    assert answers == []
    assert rig.client.clear_faults() == 1
    caller.join(60)
    assert answers[0][uid].error == ""


def test_hang_ends_when_the_caller_gives_up(rig: Rig, claim: Claims) -> None:
    one = claim(("req", "dev-0"))
    rig.client.set_fault(fault(FaultKind.HANG))
    with pytest.raises(grpc.RpcError) as caught:
        rig.kubelet().prepare(one, timeout=0.2)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    wait_until(lambda: rig.client.calls()[-1].error, 60, "the call to end", interval=0.02)
    assert rig.client.status().node(NODE).prepared_claims == []


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (WrongAnswer.WRONG_DEVICE, ("dev-0-wrong", NODE, "req", 2)),
        (WrongAnswer.WRONG_POOL, ("dev-0", f"{NODE}-wrong", "req", 2)),
        (WrongAnswer.WRONG_REQUEST, ("dev-0", NODE, "wrong-request", 2)),
        (WrongAnswer.NO_CDI_IDS, ("dev-0", NODE, "req", 0)),
    ],
)
def test_wrong_answers(rig: Rig, claim: Claims, answer: WrongAnswer, expected: Any) -> None:
    one = claim(("req", "dev-0"))
    rig.client.set_fault(fault(FaultKind.WRONG_ANSWER, answer=answer))
    (device,) = rig.kubelet().prepare(one)[one["metadata"]["uid"]].devices
    seen = (device.device_name, device.pool_name, device.request_names[0], len(device.cdi_device_ids))
    assert seen == expected


@pytest.mark.parametrize("method", ["NodePrepareResources", "NodeUnprepareResources"])
def test_omitted_claim(rig: Rig, claim: Claims, method: str) -> None:
    one, two = claim(("req", "dev-0")), claim(("req", "dev-1"))
    rig.client.set_fault(
        fault(FaultKind.WRONG_ANSWER, method, answer=WrongAnswer.OMIT_CLAIM, claim_uid=one["metadata"]["uid"])
    )
    call = rig.kubelet().prepare if method == "NodePrepareResources" else rig.kubelet().unprepare
    assert list(call(one, two)) == [two["metadata"]["uid"]]


def test_registration_faults(rig: Rig) -> None:
    rig.client.set_fault(fault(FaultKind.ERROR, "GetInfo", times=1))
    with pytest.raises(grpc.RpcError):
        rig.kubelet().register()
    assert rig.kubelet().register().type == "DRAPlugin"


def test_faults_of_another_node_dont_matter(rig: Rig, claim: Claims) -> None:
    one = claim(("req", "dev-0"))
    id_ = rig.client.set_fault(fault(FaultKind.ERROR, node="node-2"))
    assert rig.kubelet().prepare(one)[one["metadata"]["uid"]].error == ""
    assert [entry["id"] for entry in rig.client.status().faults] == [id_]
    assert rig.client.clear_faults(id_ + 1) == 0
    assert rig.client.clear_faults(id_) == 1
    assert rig.client.status().faults == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "delay"}, "seconds: is required for a delay"),
        ({"kind": "wrong-answer"}, "answer: expected exactly with kind wrong-answer"),
        ({"kind": "error", "answer": "omit-claim"}, "answer: expected exactly with kind wrong-answer"),
    ],
)
def test_incomplete_faults(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Fault.model_validate_json(json.dumps({"method": "GetInfo"} | fields))


def test_calls_are_recorded_and_filtered(rig: Rig, claim: Claims) -> None:
    one, two = claim(("req", "dev-0")), claim(("req", "dev-1"))
    uid = two["metadata"]["uid"]
    rig.kubelet().register()
    rig.kubelet().prepare(one)
    rig.kubelet().prepare(two, version="v1beta1")
    rig.kubelet().unprepare(two)
    calls = rig.client.calls()
    assert [call.method for call in calls] == [
        "GetInfo",
        "NotifyRegistrationStatus",
        "NodePrepareResources",
        "NodePrepareResources",
        "NodeUnprepareResources",
    ]
    assert [call.seq for call in calls] == [1, 2, 3, 4, 5]
    about = rig.client.calls(claim_uid=uid)
    assert [(call.node, call.service, call.method) for call in about] == [
        (NODE, "v1beta1.DRAPlugin", "NodePrepareResources"),
        (NODE, "v1.DRAPlugin", "NodeUnprepareResources"),
    ]
    assert about[0].request == {
        "claims": [{"namespace": "default", "uid": uid, "name": two["metadata"]["name"]}]
    }
    assert about[0].response is not None
    assert about[0].response["claims"][uid]["devices"][0]["device_name"] == "dev-1"
    assert [call.seq for call in rig.client.calls(after=4)] == [5]
    assert rig.client.calls(node="node-2") == []
    rig.client.clear_calls()
    assert rig.client.calls() == []


def test_operations_refuse_what_they_dont_know(rig: Rig) -> None:
    with pytest.raises(DriverError, match="no operation 'fly'; expected one of status, calls"):
        rig.client.ask("fly")
    with pytest.raises(DriverError, match=r"^node: expected one of node-1, got 'node-2'$"):
        rig.client.unregister("node-2")
