"""Control planes that break a promise about which tainted devices claims get, and about what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from harness.kube import Object
from mutants.changes import Answer, Ask, Mutant, Request, accept, drop, rewrite
from suites.taints.support import KEY

_ANY: Object = {"operator": "Exists"}


def _parts(body: Object) -> Iterator[Object]:
    """What a claim, or a template of claims, asks for: every request or alternative."""
    spec = body["spec"].get("spec", body["spec"])
    for request in spec["devices"]["requests"]:
        yield from request.get("firstAvailable") or [request["exactly"]]


def _asks(change: Callable[[Object], None]) -> tuple[Ask, Ask]:
    """Claims and templates are made with other requests."""

    def change_all(body: Object) -> None:
        for part in _parts(body):
            change(part)

    return rewrite("resourceclaims", change_all), rewrite("resourceclaimtemplates", change_all)


def _tolerate(toleration: Object, when: Callable[[Object], object] = lambda part: True) -> tuple[Ask, Ask]:
    """What a claim asks for is as if it tolerated more."""

    def change(part: Object) -> None:
        if when(part):
            part.setdefault("tolerations", []).append(dict(toleration))

    return _asks(change)


def _tolerations(change: Callable[[Object], None]) -> tuple[Ask, Ask]:
    """Each toleration of a claim is heeded as if it were another."""

    def change_all(part: Object) -> None:
        for toleration in part.get("tolerations", ()):
            change(toleration)

    return _asks(change_all)


def _any_value(toleration: Object) -> None:
    if toleration.get("operator", "Equal") == "Equal":
        toleration["operator"] = "Exists"
        toleration.pop("value", None)


def _any_key(toleration: Object) -> None:
    if toleration.get("operator") == "Exists":
        toleration.pop("key", None)


def _any_effect(toleration: Object) -> None:
    toleration.pop("effect", None)


def _no_key(toleration: Object) -> None:
    toleration.setdefault("key", "no-key")


def _at_once(toleration: Object) -> None:
    if toleration.get("tolerationSeconds", 0) > 0:
        toleration["tolerationSeconds"] = 0


def _an_hour_later(toleration: Object) -> None:
    """Of a taint that is an hour old: as if the seconds counted from now."""
    if "tolerationSeconds" in toleration:
        toleration["tolerationSeconds"] += 3600


def _not_for_ever(toleration: Object) -> None:
    if toleration.get("effect") == "NoExecute":
        toleration.setdefault("tolerationSeconds", 0)


# Node taints and device taints.


def _past_the_device(pod: Object) -> None:
    """A pod that tolerates every taint of nodes gets past the device's: as if it didn't need one."""
    if _ANY in pod["spec"].get("tolerations", ()):
        del pod["spec"]["resourceClaims"]
        for container in pod["spec"]["containers"]:
            container["resources"].pop("claims", None)


def _past_the_node(pod: Object) -> None:
    """A pod with a claim gets past the node's taint."""
    if "resourceClaims" in pod["spec"]:
        pod["spec"].setdefault("tolerations", []).append({"key": KEY, "operator": "Exists"})


def _one_device_less(request: Request, obj: Object) -> Object:
    """Of several devices that a claim has, the last is not handed out."""
    results = obj.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    if request.resource == "resourceclaims" and len(results) > 1:
        del results[-1]
    return obj


# What is refused.


def _fifteen_taints(request: Request) -> Answer | None:
    """Slices with more than 15 taints on a device are refused."""
    if request.verb != "create" or request.target != "resourceslices":
        return None
    if all(len(device.get("taints", ())) <= 15 for device in request.body["spec"]["devices"]):
        return None
    body = {"kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422}
    return Answer(422, body | {"message": "spec.devices[0].taints: Too many: must have at most 15 items"})


_SCHEDULING = "taints/test_scheduling.py::"
_EVICTION = "taints/test_eviction.py::"
_LIMITS = "taints/test_limits.py::"

MUTANTS = (
    Mutant(
        "taints-ignored",
        "a taint keeps no pod from its device, whether it comes from the slice or from a rule",
        kills=("TNT-01", "taints/test_rules.py::test_a_rule_keeps_pods_away", f"{_SCHEDULING}test_one_bad"),
        asks=_tolerate({"key": KEY} | _ANY),
    ),
    Mutant(
        "one-toleration-is-enough",
        "a claim that tolerates one taint of a device tolerates all of them",
        kills=("TNT-07",),
        asks=_tolerate(_ANY, lambda part: part.get("tolerations")),
    ),
    Mutant(
        "all-devices-exempt",
        "a request for all devices gets tainted ones too",
        kills=(f"{_SCHEDULING}test_all_devices_needs_every_toleration",),
        asks=_tolerate(_ANY, lambda part: part.get("allocationMode") == "All"),
    ),
    Mutant(
        "admin-access-past-taints",
        "a request with admin access gets tainted devices",
        kills=(f"{_SCHEDULING}test_admin_access_needs_a_toleration",),
        asks=_tolerate(_ANY, lambda part: part.get("adminAccess")),
    ),
    Mutant(
        "node-tolerations-for-devices",
        "a pod that tolerates the taints of nodes gets past those of devices",
        kills=(f"{_SCHEDULING}test_a_device_taint_is_none_of_the_node",),
        asks=(rewrite("pods", _past_the_device),),
    ),
    Mutant(
        "device-tolerations-for-nodes",
        "a pod whose claim tolerates the taints of devices gets past those of nodes",
        kills=(f"{_SCHEDULING}test_a_node_taint_is_none_of_the_device",),
        asks=(rewrite("pods", _past_the_node),),
    ),
    Mutant(
        "one-sound-device-less",
        "with one bad device a further one can't be had",
        kills=(f"{_SCHEDULING}test_one_bad_device_of_eight",),
        sees=(_one_device_less,),
    ),
    Mutant(
        "any-value-matches",
        "tolerations match whatever their value is",
        kills=(f"{_SCHEDULING}test_which_tolerations_match",),
        asks=_tolerations(_any_value),
    ),
    Mutant(
        "any-key-matches",
        "tolerations with the operator Exists match whatever their key is",
        kills=(f"{_SCHEDULING}test_which_tolerations_match",),
        asks=_tolerations(_any_key),
    ),
    Mutant(
        "any-effect-matches",
        "tolerations match whatever their effect is",
        kills=(f"{_SCHEDULING}test_which_tolerations_match",),
        asks=_tolerations(_any_effect),
    ),
    Mutant(
        "empty-key-matches-nothing",
        "a toleration without a key matches no taint",
        kills=(f"{_EVICTION}test_a_wide_toleration_keeps_the_pod[any key]",),
        asks=_tolerations(_no_key),
    ),
    Mutant(
        "seconds-are-nothing",
        "tolerationSeconds don't delay the deletion",
        kills=(f"{_EVICTION}test_toleration_seconds",),
        asks=_tolerations(_at_once),
    ),
    Mutant(
        "seconds-count-from-now",
        "tolerationSeconds count from when the taint is seen, not from its timeAdded",
        kills=(f"{_EVICTION}test_toleration_seconds_count_from_time_added",),
        asks=_tolerations(_an_hour_later),
    ),
    Mutant(
        "tolerated-for-a-while",
        "a pod that tolerates a taint for an unlimited time is deleted",
        kills=(f"{_EVICTION}test_toleration_seconds_delay_the_deletion",),
        asks=_tolerations(_not_for_ever),
    ),
    Mutant(
        "any-slice-accepted",
        "slices with too many taints, or too many devices with taints, are accepted",
        kills=(f"{_LIMITS}test_taints_of_a_device", f"{_LIMITS}test_devices_of_a_slice_with_taints"),
        judges=(accept("create", "resourceslices", 422),),
    ),
    Mutant(
        "fifteen-taints",
        "a device with 16 taints is refused",
        kills=(f"{_LIMITS}test_taints_of_a_device",),
        asks=(_fifteen_taints,),
    ),
    Mutant(
        "any-conditions-accepted",
        "more than 8 conditions of a rule are accepted",
        kills=(f"{_LIMITS}test_conditions_of_a_rule",),
        judges=(accept("patch", "devicetaintrules/status", 422),),
    ),
    Mutant(
        "any-effect-accepted",
        "rules with the effect PreferNoSchedule are accepted",
        kills=(f"{_LIMITS}test_effects",),
        judges=(accept("create", "devicetaintrules", 422),),
    ),
    Mutant(
        "time-added-missing",
        "timeAdded of a taint is not filled in",
        kills=("TNT-09",),
        sees=(
            drop("devicetaintrules", "spec.taint.timeAdded"),
            drop("resourceslices", "spec.devices.*.taints.*.timeAdded"),
        ),
    ),
)
