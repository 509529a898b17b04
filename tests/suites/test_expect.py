"""How checks say that a promise was not kept, and what a failure is the symptom of."""

from __future__ import annotations

from typing import Any

import pytest

from harness.errors import EnvironmentBlocked, RequirementFailed
from harness.kube import ApiError
from harness.waiting import NotYet, WaitTimeout, wait_until
from suites.expect import SYMPTOM, expect, expect_equal, field, precondition, symptom

POD: dict[str, Any] = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeName": "", "replicas": None}}


@pytest.mark.parametrize(("observed", "expected"), [(1, 1), (["a"], ["a"]), (None, None), ({}, {})])
def test_what_is_as_expected_is_nothing_to_talk_about(observed: object, expected: object) -> None:
    expect_equal("it is so", observed, expected)


@pytest.mark.parametrize(
    ("observed", "expected", "message"),
    [
        (["a"], ["a", "b"], "expected: the devices: ['a', 'b']\nobserved: ['a']"),
        ("1", 1, "expected: the devices: 1\nobserved: '1'"),
        (None, "x", "expected: the devices: 'x'\nobserved: None"),
    ],
)
def test_what_differs_is_told_with_both_sides(observed: object, expected: object, message: str) -> None:
    with pytest.raises(RequirementFailed) as raised:
        expect_equal("the devices", observed, expected, POD)
    assert str(raised.value) == message
    assert raised.value.obj is POD


@pytest.mark.parametrize("kept", [True, 1, "x", [0]])
def test_what_is_kept_is_nothing_to_talk_about(kept: object) -> None:
    expect("it is so", kept, "anything")


@pytest.mark.parametrize("kept", [False, 0, "", [], None])
def test_what_is_not_kept_is_told_with_what_was_seen(kept: object) -> None:
    with pytest.raises(RequirementFailed) as raised:
        expect("the pod waits", kept, {"phase": "Running"}, POD)
    assert str(raised.value) == "expected: the pod waits\nobserved: {'phase': 'Running'}"
    assert raised.value.obj is POD


def test_an_object_is_not_needed() -> None:
    with pytest.raises(RequirementFailed) as raised:
        expect("it is so", False, 1)
    assert raised.value.obj is None
    with pytest.raises(RequirementFailed) as raised:
        expect_equal("it is so", 1, 2)
    assert raised.value.obj is None


def test_a_field_is_had_also_if_it_is_empty() -> None:
    assert field(POD, "metadata", "name") == "p"
    assert field(POD, "spec", "nodeName") == ""
    assert field(POD, "spec", "replicas") is None
    assert field(POD) is POD


@pytest.mark.parametrize(
    ("obj", "path", "message"),
    [
        (POD, ("status",), "expected: Pod p has status\nobserved: it has not"),
        (POD, ("spec", "claims", "x"), "expected: Pod p has spec.claims.x\nobserved: it has not"),
        (POD, ("spec", "nodeName", "x"), "expected: Pod p has spec.nodeName.x\nobserved: it has not"),
        (POD, ("spec", "replicas", "x"), "expected: Pod p has spec.replicas.x\nobserved: it has not"),
        ({}, ("spec",), "expected: object  has spec\nobserved: it has not"),
    ],
)
def test_a_field_that_is_missing_breaks_a_promise(
    obj: dict[str, Any], path: tuple[str, ...], message: str
) -> None:
    with pytest.raises(RequirementFailed) as raised:
        field(obj, *path)
    assert str(raised.value) == message
    assert raised.value.obj is obj


def symptom_of(error: Exception, *texts: str) -> str | None:
    """What an error is marked with on its way out of `symptom`, being the same error."""
    with pytest.raises(type(error)) as raised, symptom("k/k#1", *texts):
        raise error
    assert raised.value is error
    found: str | None = getattr(raised.value, SYMPTOM, None)
    return found


@pytest.mark.parametrize(
    "error",
    [
        RequirementFailed("the pod runs", "it waits: Insufficient gpu"),
        RequirementFailed("no Insufficient gpu", "it waits"),
        AssertionError("Insufficient gpu"),
        WaitTimeout("pod p to run", 1, "Insufficient gpu"),
        ApiError("POST", "/x", 422, '{"message": "Insufficient gpu"}'),
    ],
)
def test_a_failure_with_one_of_the_texts_is_a_symptom(error: Exception) -> None:
    assert symptom_of(error, "no such text", "Insufficient gpu") == "k/k#1"


@pytest.mark.parametrize("texts", [(), ("insufficient gpu",), ("Insufficient nic", "gpu2")])
def test_a_failure_without_the_texts_is_none(texts: tuple[str, ...]) -> None:
    assert symptom_of(AssertionError("Insufficient gpu"), *texts) is None


def test_what_does_not_fail_has_no_symptom() -> None:
    with symptom("k/k#1", "x"):
        pass


def test_a_failure_after_the_symptoms_is_none() -> None:
    with symptom("k/k#1", "x"):
        pass
    with pytest.raises(AssertionError) as raised:
        raise AssertionError("x")
    assert not hasattr(raised.value, SYMPTOM)


def test_a_precondition_that_is_not_reached_blocks() -> None:
    def probe() -> bool:
        raise NotYet("3 of 4 pods")

    with pytest.raises(EnvironmentBlocked) as raised, precondition("the node is full"):
        wait_until(probe, 0, "4 pods to run")
    assert str(raised.value) == "the node is full: waited 0 s for 4 pods to run; last seen: 3 of 4 pods"
    assert isinstance(raised.value.__cause__, WaitTimeout)


@pytest.mark.parametrize(
    "error",
    [RequirementFailed("a", "b"), AssertionError("a"), ApiError("GET", "/x", 500, ""), KeyError("x")],
)
def test_what_else_goes_wrong_in_a_precondition_stays_what_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, precondition("the node is full"):
        raise error
    assert raised.value is error


def test_a_precondition_that_is_reached_is_nothing_to_talk_about() -> None:
    with precondition("the node is full"):
        wait_until(lambda: True, 0, "4 pods to run")
