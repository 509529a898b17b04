"""Control planes that break a promise about attributes with lists, and about constraints on attributes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from harness.kube import Object
from mutants.changes import Answer, Mutant, Request, accept, edit, refuse, reword, rewrite, strip

_API = "list_attributes/test_api.py::"
_CONSTRAINTS = "list_attributes/test_constraints.py::"
_GATES = "list_attributes/test_gates.py::"
_SELECTORS = "list_attributes/test_selectors.py::"
_PLACEMENT = "numa/test_placement.py::"
_ALTERNATIVES = "prioritized_list/test_scope.py::test_only_constraints_for_the_chosen_alternative_apply"

_ATTRIBUTES = "spec.devices.*.attributes.*"
_LISTS = ("bools", "ints", "strings", "versions")

_ATTRIBUTE = r'(device\.attributes\["[^"]+"\]\.\w+)'
_INCLUDES = re.compile(_ATTRIBUTE + r"\.includes\((.+)\)$")
_EQUALS = re.compile(_ATTRIBUTE + r" == (.+)$")


def _too_much(request: Request) -> Answer | None:
    """An API server whose limits are each one lower than promised, with lists or without."""
    if request.verb != "create" or request.target != "resourceslices":
        return None
    devices = request.body["spec"]["devices"]
    fits = len(devices) <= 63 and all(
        len(_values(device)) <= 47 and all(len(str(value).encode()) <= 63 for value in _values(device))
        for device in devices
    )
    if fits:
        return None
    return refuse("create", "resourceslices", 422, "Invalid", "spec.devices: Too many")(request)


def _values(device: Object) -> list[Any]:
    forms = [value for attribute in device["attributes"].values() for value in attribute.values()]
    return [each for value in forms for each in (value if isinstance(value, list) else [value])]


def _as_list(attribute: Object) -> Object:
    return {
        form if form in _LISTS else f"{form}s": value if form in _LISTS else [value]
        for form, value in attribute.items()
    }


def _as_set(attribute: Object) -> Object:
    return {
        form: list(dict.fromkeys(value)) if form in _LISTS else value for form, value in attribute.items()
    }


def _lists_lost_in_writing(request: Request, obj: Object) -> Object:
    if request.verb == "update" and request.target == "resourceslices":
        for device in obj["spec"]["devices"]:
            for attribute in device["attributes"].values():
                for form in _LISTS:
                    attribute.pop(form, None)
    return obj


def _takes(kind: str, *, for_: str) -> Callable[[Any], None]:
    """As a scheduler that takes one kind of constraint for another."""

    def change(claim: Any) -> None:
        for constraint in claim["spec"]["devices"].get("constraints", ()):
            if kind in constraint:
                constraint[for_] = constraint.pop(kind)

    return change


def _evaluates(pattern: re.Pattern[str], as_: str) -> Callable[[Any], None]:
    """As if CEL gave an expression another meaning."""

    def change(body: Any) -> None:
        for cel in _expressions(body):
            cel["expression"] = pattern.sub(as_, cel["expression"])

    return change


def _expressions(value: Any) -> Iterator[Object]:
    if isinstance(value, dict):
        if "expression" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for child in value:
            yield from _expressions(child)


_SINGLE_ONLY = _evaluates(_INCLUDES, r"\1 == \2")

MUTANTS = (
    Mutant(
        "any-attributes",
        "the API server takes attributes of any form and number",
        kills=(f"{_API}test_refused",),
        judges=(accept("create", "resourceslices"),),
    ),
    Mutant(
        "refused-without-reason",
        "the API server refuses attributes without saying why",
        kills=(f"{_API}test_refused",),
        judges=(reword("resourceslices", "the slice is invalid"),),
    ),
    Mutant(
        "one-value-less",
        "the API server takes one device, one value and one byte less than it must",
        kills=tuple(
            f"{_API}test_accepted[{case}]"
            for case in (
                "48 values in lists and single",
                "64 devices, one with a list",
                "65 devices without lists",
                "a string of 64 bytes",
                "32 characters of two bytes each",
            )
        ),
        asks=(_too_much,),
    ),
    Mutant(
        "single-values-as-lists",
        "the API server stores a single value as a list of one",
        kills=(f"{_API}test_accepted[each single form]",),
        sees=(edit("resourceslices", _ATTRIBUTES, _as_list),),
    ),
    Mutant(
        "lists-as-sets",
        "the API server stores each value of a list once",
        kills=(f"{_API}test_accepted[each list form]",),
        sees=(edit("resourceslices", _ATTRIBUTES, _as_set),),
    ),
    Mutant(
        "constraints-ignored",
        "the scheduler allocates devices whatever a claim's constraints say",
        kills=(
            f"{_CONSTRAINTS}test_not_met",
            f"{_CONSTRAINTS}test_only_the_requests_that_it_names_are_bound",
            f"{_CONSTRAINTS}test_distinct_devices_are_picked_out",
            "LST-05",
            f"{_GATES}test_without_the_gate_lists_wait",
            f"{_PLACEMENT}test_lists_of_two_drivers_meet",
            f"{_PLACEMENT}test_gpu_and_card_below_one_pcie_root",
            "NUM-06",
            f"{_ALTERNATIVES}[the request]",
            f"{_ALTERNATIVES}[the first alternative]",
        ),
        asks=(strip("resourceclaims", "spec.devices.constraints"),),
    ),
    Mutant(
        "match-for-distinct",
        "the scheduler takes matchAttribute for distinctAttribute",
        kills=(
            f"{_CONSTRAINTS}test_met[matchAttribute]",
            f"{_PLACEMENT}test_the_machine_with_a_common_node_is_found",
        ),
        asks=(rewrite("resourceclaims", _takes("matchAttribute", for_="distinctAttribute")),),
    ),
    Mutant(
        "distinct-for-match",
        "the scheduler takes distinctAttribute for matchAttribute",
        kills=(f"{_CONSTRAINTS}test_met[distinctAttribute]",),
        asks=(rewrite("resourceclaims", _takes("distinctAttribute", for_="matchAttribute")),),
    ),
    Mutant(
        "includes-no-lists",
        "includes() works on single values only",
        kills=(f"{_SELECTORS}test_includes_works_on_both_forms",),
        asks=(rewrite("resourceclaims", _SINGLE_ONLY), rewrite("deviceclasses", _SINGLE_ONLY)),
    ),
    Mutant(
        "a-list-equals-its-value",
        "comparing a list with one of its values selects the device",
        kills=(f"{_SELECTORS}test_a_list_never_equals_its_only_value",),
        asks=(rewrite("resourceclaims", _evaluates(_EQUALS, r"\1.includes(\2)")),),
    ),
    Mutant(
        "any-expression",
        "the API server takes expressions that call includes() wrongly",
        kills=(f"{_SELECTORS}test_the_api_server_checks_calls_of_includes",),
        judges=(accept("create", "resourceclaims"),),
    ),
    Mutant(
        "writing-loses-lists",
        "with the gate off, writing a slice again loses its lists",
        kills=(f"{_GATES}test_stored_lists_are_kept",),
        sees=(_lists_lost_in_writing,),
    ),
)
