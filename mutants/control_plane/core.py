"""Control planes that break a promise about all claims: how many devices they get, how long, and for whom."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from harness.kube import Object
from mutants.changes import Mutant, drop, freeze, hide, rewrite, strip

_ALLOCATION = "core/test_allocation.py::"

_ATTRIBUTE = re.compile(r'^(device\.attributes\["[^"]+"\])\.(\w+) == ')
_FAILS: Object = {"cel": {"expression": 'device.attributes["nobody.example.com"].nothing == 1'}}


def _requests(claim: Any) -> Iterator[Object]:
    return (request["exactly"] for request in claim["spec"]["devices"]["requests"])


def _one_for_all(claim: Any) -> None:
    for request in _requests(claim):
        if request.pop("allocationMode", "") == "All":
            request["count"] = 1


def _guard(holders: Iterator[Object]) -> None:
    """A missing attribute is no error, but no match."""
    for holder in holders:
        for selector in holder.get("selectors", ()):
            cel = selector["cel"]
            cel["expression"] = _ATTRIBUTE.sub(r'"\2" in \1 && \1.\2 == ', cel["expression"])


def _fail_everybody(claim: Any) -> None:
    for request in _requests(claim):
        request.setdefault("selectors", []).append(_FAILS)


def _past_the_device(pod: Any) -> None:
    """A pod with a priority runs without its claims."""
    if pod["spec"].get("priorityClassName"):
        del pod["spec"]["resourceClaims"]
        for container in pod["spec"]["containers"]:
            container["resources"].pop("claims", None)


MUTANTS = (
    Mutant(
        "one-device-for-several",
        "a request for several devices gets one",
        kills=(f"{_ALLOCATION}test_as_many_as_are_asked_for",),
        asks=(strip("resourceclaims", "spec.devices.requests.*.exactly.count"),),
    ),
    Mutant(
        "all-means-one",
        "a request for all devices gets one",
        kills=(f"{_ALLOCATION}test_all_that_match",),
        asks=(rewrite("resourceclaims", _one_for_all),),
    ),
    Mutant(
        "allocated-for-good",
        "a claim stays allocated when no pod uses it any more",
        kills=(f"{_ALLOCATION}test_a_claim_is_deallocated_after_its_last_pod",),
        sees=(freeze("resourceclaims", lambda claim: "allocation" in claim.get("status", {})),),
    ),
    Mutant(
        "no-finalizer",
        "an allocated claim has no finalizer",
        kills=(f"{_ALLOCATION}test_a_claim_is_deallocated_after_its_last_pod",),
        sees=(drop("resourceclaims", "metadata.finalizers"),),
    ),
    Mutant(
        "deleted-while-in-use",
        "a claim that is deleted goes at once, though a pod uses it",
        kills=(f"{_ALLOCATION}test_an_allocated_claim_outlives_its_deletion",),
        sees=(hide("resourceclaims", lambda claim: "deletionTimestamp" in claim["metadata"]),),
    ),
    Mutant(
        "errors-are-no-match",
        "an expression that fails at run time doesn't match, and that is all",
        kills=("COR-02",),
        asks=(
            rewrite("resourceclaims", lambda claim: _guard(_requests(claim))),
            rewrite("deviceclasses", lambda device_class: _guard(iter([device_class["spec"]]))),
        ),
    ),
    Mutant(
        "errors-for-everybody",
        "an expression that fails at run time keeps every pod Pending",
        kills=("core/test_expressions.py::test_an_expression_that_fails_on_one_node[claim]",),
        asks=(rewrite("resourceclaims", _fail_everybody),),
    ),
    Mutant(
        "priority-for-a-device",
        "a pod of high priority runs though another has its device",
        kills=("COR-04",),
        asks=(rewrite("pods", _past_the_device),),
    ),
)
