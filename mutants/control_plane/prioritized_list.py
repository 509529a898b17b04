"""Control planes that break a promise about requests with alternatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from harness.kube import Object
from mutants.changes import Answer, Ask, Mutant, Request, accept, edit, refuse, rewrite

_API = "prioritized_list/test_api.py::"
_CHOICE = "prioritized_list/test_choice.py::"
_SCOPE = "prioritized_list/test_scope.py::"

_KINDS = ("resourceclaims", "resourceclaimtemplates")


def _requests(body: Object) -> Iterator[Object]:
    """The requests with alternatives of a claim, or of a template."""
    spec = body["spec"].get("spec", body["spec"])
    return (request for request in spec["devices"]["requests"] if "firstAvailable" in request)


def _requests_with(change: Callable[[Object], None]) -> Ask:
    """Claims are made with other alternatives."""

    def change_all(claim: Any) -> None:
        for request in _requests(claim):
            change(request)

    return rewrite("resourceclaims", change_all)


def _from_the_last(request: Object) -> None:
    request["firstAvailable"].reverse()


def _one_of_each(request: Object) -> None:
    for alternative in request["firstAvailable"]:
        alternative |= {"allocationMode": "ExactCount", "count": 1}


def _for_any_alternative(claim: Any) -> None:
    """What is for one alternative is for the request."""
    devices = claim["spec"]["devices"]
    for part in (*devices.get("config", ()), *devices.get("constraints", ())):
        if "requests" in part:
            part["requests"] = list(dict.fromkeys(name.partition("/")[0] for name in part["requests"]))


def _without_alternative(name: str) -> str:
    return name.partition("/")[0]


def _on_the_first_node(pod: Any) -> None:
    if "resourceClaims" in pod["spec"]:
        pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "node-1"}


def _seven_alternatives(request: Request) -> Answer | None:
    """Claims and templates with more than seven alternatives are refused."""
    if request.verb != "create" or request.target not in _KINDS:
        return None
    if all(len(each["firstAvailable"]) <= 7 for each in _requests(request.body)):
        return None
    message = "firstAvailable: Too many: must have at most 7 items"
    return refuse("create", request.target, 422, "Invalid", message)(request)


def _as_sent(request: Request, answer: Answer) -> Answer:
    """Fields that the API server doesn't know are stored."""
    if request.verb == "create" and request.target in _KINDS and answer.status < 400:
        return Answer(answer.status, request.body)
    return answer


MUTANTS = (
    Mutant(
        "alternatives-from-the-last",
        "the scheduler tries alternatives from the last to the first",
        kills=(f"{_CHOICE}test_the_first_that_can_be_met_is_used", "PRI-04"),
        asks=(_requests_with(_from_the_last),),
    ),
    Mutant(
        "met-by-one-device",
        "an alternative is met by one device, however many it asks for",
        kills=(f"{_CHOICE}test_what_can_be_met_in_part_only_is_passed_over", "PRI-06"),
        asks=(_requests_with(_one_of_each),),
    ),
    Mutant(
        "nodes-all-alike",
        "every pod goes to the first node that it fits on, whatever alternative that has",
        kills=("PRI-04",),
        asks=(rewrite("pods", _on_the_first_node),),
    ),
    Mutant(
        "alternative-not-named",
        "an allocation names the request only, not the alternative",
        kills=("PRI-02",),
        sees=(edit("resourceclaims", "status.allocation.devices.results.*.request", _without_alternative),),
    ),
    Mutant(
        "for-any-alternative",
        "configuration and constraints of one alternative are for every other too",
        kills=(
            f"{_SCOPE}test_only_configuration_for_the_chosen_alternative_applies",
            f"{_SCOPE}test_only_constraints_for_the_chosen_alternative_apply[the second alternative]",
        ),
        asks=(rewrite("resourceclaims", _for_any_alternative),),
    ),
    Mutant(
        "any-alternatives",
        "the API server takes any number of alternatives, with anything in them",
        kills=(f"{_API}test_refused", f"{_API}test_a_pod_names_the_request_only"),
        judges=(*(accept("create", kind) for kind in _KINDS), accept("create", "pods")),
    ),
    Mutant(
        "seven-alternatives",
        "a request with eight alternatives is refused",
        kills=(f"{_API}test_eight_alternatives_are_stored_in_order",),
        asks=(_seven_alternatives,),
    ),
    Mutant(
        "alternatives-as-sent",
        "alternatives are stored with fields that they can't have",
        kills=(f"{_API}test_what_no_alternative_has_is_never_stored",),
        judges=(_as_sent,),
    ),
)
