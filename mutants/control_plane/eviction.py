"""Control planes that break a promise about rules that taint devices, and about whom taints delete."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from harness.kube import Object
from mutants.changes import Answer, Ask, Mutant, Request, edit, put, rewrite
from suites.taints.support import KEY

_DELETIONS = "device_taint_eviction_controller_pod_deletions_total"


# Who is deleted.


def _the_same_device_again(request: Request, answer: Answer) -> Answer:
    """Of two devices, pods are given the first, whichever is tainted."""
    if request.target != "pods/log" or not isinstance(answer.body, dict):
        return answer
    devices = [re.sub("/gpu-1$", "/gpu-0", path) for path in answer.body["devices"]]
    return Answer(answer.status, answer.body | {"devices": devices})


def _outlives_the_taint(request: Request, obj: Object) -> Object:
    """A pod with a special claim is not deleted."""
    if request.target == "pods" and "extendedResourceClaimStatus" in obj["status"]:
        obj["metadata"].pop("deletionTimestamp", None)
    return obj


def _freed_too_early(request: Request, obj: Object) -> Object:
    """The claim is free as soon as one of the pods that share it is gone."""
    if request.target == "resourceclaims" and len(obj.get("status", {}).get("reservedFor", ())) == 1:
        obj["status"].pop("allocation", None)
    return obj


def _in_the_same_boat(pod: Object) -> None:
    """One of the other pods goes with the one of the bad device."""
    if pod["metadata"]["name"] == "pod-5":
        pod["spec"]["resourceClaims"][0]["resourceClaimName"] = "pod-3"


# Rules.


def _rules(change: Callable[[Object], None]) -> Ask:
    """A rule is made with another spec, unless it's there to find out what the scheduler has seen."""

    def ask(request: Request) -> None:
        created = request.verb == "create" and request.target == "devicetaintrules"
        if created and request.body["spec"]["taint"]["key"] == KEY:
            change(request.body["spec"])

    return ask


def _without_effect(spec: Object) -> None:
    spec["taint"]["effect"] = "None"


def _acts_at_once(spec: Object) -> None:
    spec["taint"]["effect"] = "NoExecute"


def _acts_once_changed(body: Any) -> None:
    if "value" in body["spec"]["taint"]:
        body["spec"]["taint"]["effect"] = "NoExecute"


def _without(field: str) -> Callable[[Object], None]:
    def change(spec: Object) -> None:
        spec["deviceSelector"].pop(field, None)

    return change


def _own_driver(spec: Object) -> None:
    """The rule selects the check's own driver, though it names another one."""
    selector = spec["deviceSelector"]
    selector["driver"] = selector["driver"].replace("other-", "gpu-", 1)


def _everything(spec: Object) -> None:
    spec.setdefault("deviceSelector", {})


def _nothing(spec: Object) -> None:
    if not spec.get("deviceSelector"):
        spec.pop("deviceSelector", None)


def _one_more(message: Any) -> str:
    return re.sub(r"\d+", lambda number: str(int(number[0]) + 1), str(message))


def _an_old_time(body: Any) -> None:
    if "effect" in body["spec"]["taint"]:
        body["spec"]["taint"]["timeAdded"] = "2020-01-01T00:00:00Z"


def _on_change(change: Callable[[Any], None]) -> Ask:
    def ask(request: Request) -> None:
        if request.verb == "patch" and request.target == "devicetaintrules":
            change(request.body)

    return ask


def _twice(request: Request, text: str) -> str:
    """The controller counts every deletion twice."""
    if "metrics" not in request.path:
        return text
    return re.sub(
        rf"^({_DELETIONS}) (\S+)$",
        lambda found: f"{found[1]} {2 * float(found[2])}",
        text,
        flags=re.MULTILINE,
    )


_EVICTION = "taints/test_eviction.py::"
_RULES = "taints/test_rules.py::"
_SELECTOR = f"{_RULES}test_all_of_a_selector_must_match"

MUTANTS = (
    Mutant(
        "replacement-on-the-tainted-device",
        "the pod that replaces a deleted one gets the same device",
        kills=("TNT-03",),
        judges=(_the_same_device_again,),
    ),
    Mutant(
        "special-claims-outlive-taints",
        "pods of extended resources are not deleted because of a taint (k/k#141290)",
        kills=(f"{_EVICTION}test_extended_resource_pods_are_deleted",),
        sees=(_outlives_the_taint,),
    ),
    Mutant(
        "claim-freed-by-the-first",
        "a shared claim is deallocated once the first of its pods is gone",
        kills=(f"{_EVICTION}test_a_shared_claim_is_freed_by_the_last_pod",),
        sees=(_freed_too_early,),
    ),
    Mutant(
        "another-pod-deleted",
        "a pod with a sound device is deleted because of another device's taint",
        kills=(f"{_EVICTION}test_the_pods_of_the_other_devices_go_on",),
        asks=(rewrite("pods", _in_the_same_boat),),
    ),
    Mutant(
        "rules-ignored",
        "rules do nothing",
        kills=(f"{_RULES}test_a_rule_keeps_pods_away", f"{_SELECTOR}[driver]", "TNT-06", "TNT-11"),
        asks=(_rules(_without_effect),),
    ),
    Mutant(
        "no-schedule-deletes",
        "a rule with the effect NoSchedule deletes pods",
        kills=(f"{_RULES}test_a_rule_deletes_whom_it_should",),
        asks=(_rules(_acts_at_once),),
    ),
    Mutant(
        "dry-run-acts",
        "a rule with the effect None deletes pods, once it is changed",
        kills=("TNT-05",),
        asks=(_on_change(_acts_once_changed),),
    ),
    Mutant(
        "dry-run-miscounts",
        "a rule with the effect None says that it would delete one pod more than it would",
        kills=("TNT-05",),
        sees=(edit("devicetaintrules", "status.conditions.*.message", _one_more),),
    ),
    Mutant(
        "condition-of-the-first-generation",
        "observedGeneration of a rule's condition doesn't follow the rule",
        kills=("TNT-06",),
        sees=(put("devicetaintrules", "status.conditions.*.observedGeneration", 1),),
    ),
    Mutant(
        "never-in-progress",
        "EvictionInProgress is False while a pod is still to be deleted",
        kills=("TNT-06",),
        sees=(put("devicetaintrules", "status.conditions.*.status", "False"),),
    ),
    Mutant(
        "time-added-outlives-the-effect",
        "timeAdded does not start anew when the effect changes",
        kills=(f"{_RULES}test_time_added_of_a_rule",),
        asks=(_on_change(_an_old_time),),
    ),
    Mutant(
        "any-driver-selected",
        "a rule selects devices of another driver than it names",
        kills=(f"{_SELECTOR}[another driver]",),
        asks=(_rules(_own_driver),),
    ),
    Mutant(
        "any-pool-selected",
        "a rule selects devices of every pool, whichever it names",
        kills=(f"{_SELECTOR}[driver and pool]", f"{_SELECTOR}[driver, pool and device]"),
        asks=(_rules(_without("pool")),),
    ),
    Mutant(
        "any-device-selected",
        "a rule selects every device, whichever it names",
        kills=(
            f"{_SELECTOR}[driver and device]",
            f"{_SELECTOR}[driver, pool and device]",
            f"{_SELECTOR}[no such device]",
        ),
        asks=(_rules(_without("device")),),
    ),
    Mutant(
        "no-selector-selects-everything",
        "a rule without a selector selects every device (k/k#141620)",
        kills=(f"{_RULES}test_without_a_selector_a_rule_selects_nothing",),
        asks=(_rules(_everything),),
    ),
    Mutant(
        "empty-selector-selects-nothing",
        "a rule with an empty selector selects no device",
        kills=(f"{_RULES}test_an_empty_selector_selects_everything",),
        asks=(_rules(_nothing),),
    ),
    Mutant(
        "deletions-counted-twice",
        "the controller's counter grows by more than the pods that it deleted",
        kills=("TNT-16",),
        reads=(_twice,),
    ),
)
