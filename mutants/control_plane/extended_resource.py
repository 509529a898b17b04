"""Control planes that break a promise about extended resources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from harness.kube import Object
from mutants.changes import (
    Mutant,
    Request,
    drop,
    edit,
    freeze,
    ignore,
    invent,
    put,
    refuse,
    rewrite,
)

_IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
_MAPPINGS = "status.extendedResourceClaimStatus.requestMappings"
_SERVING = "extended_resource/test_serving.py::"
_CLASSES = "extended_resource/test_classes.py::"
_LIFECYCLE = "extended_resource/test_lifecycle.py::"

LEFTOVER: Object = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {
        "name": "leftover",
        "uid": "00000000-0000-4000-8000-000000000000",
        "ownerReferences": [{"kind": "Pod", "name": "nobody", "uid": "00000000-0000-4000-8000-000000000001"}],
    },
    "spec": {},
    "status": {},
}
"""A claim that nobody needs."""


def unschedulable(pod: Object) -> bool:
    """Whether the scheduler has refused a pod."""
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)


def _amounts(pod: Any) -> Iterator[dict[str, str]]:
    """The limits and requests of a pod's containers."""
    for container in [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]:
        for kind in ("limits", "requests"):
            yield container.get("resources", {}).get(kind) or {}


def _extended(pod: Any) -> set[str]:
    return {name for amounts in _amounts(pod) for name in amounts if "/" in name}


def _with_amount(change: Callable[[int], int]) -> Callable[[Any], None]:
    def rewrite_pod(pod: Any) -> None:
        for amounts in _amounts(pod):
            for name in amounts:
                if "/" in name:
                    amounts[name] = str(change(int(amounts[name])))

    return rewrite_pod


def _init_containers_stay(pod: Any) -> None:
    """As a scheduler that counts init containers like sidecars."""
    for container in pod["spec"].get("initContainers", ()):
        container["restartPolicy"] = "Always"
        container.pop("args", None)


class _AnotherClass:
    """Pods get the devices of the class that `choose` picks, of all that were created with a name in turn.

    The cluster doesn't learn the names: each pod asks for the class that is to serve it by its implicit one.
    """

    def __init__(self, choose: Callable[[Sequence[str]], str]) -> None:
        self._choose = choose
        self._classes: dict[str, list[str]] = {}

    def __call__(self, request: Request) -> None:
        if request.verb == "create" and request.target == "deviceclasses":
            if resource := request.body["spec"].pop("extendedResourceName", None):
                self._classes.setdefault(resource, []).append(request.body["metadata"]["name"])
        elif request.verb == "create" and request.target == "pods":
            for amounts in _amounts(request.body):
                for resource in self._classes.keys() & amounts.keys():
                    chosen = self._choose(self._classes[resource])
                    amounts[_IMPLICIT_PREFIX + chosen] = amounts.pop(resource)


class _NodeCapacity:
    """Nodes count whatever extended resource a pod has asked for as their own."""

    def __init__(self) -> None:
        self._resources: set[str] = set()

    def ask(self, request: Request) -> None:
        """Learn the resources of a pod."""
        if request.verb == "create" and request.target == "pods":
            self._resources |= _extended(request.body)

    def see(self, request: Request, obj: Object) -> Object:
        """Show them on nodes."""
        if request.resource == "nodes" and "allocatable" in obj.get("status", {}):
            obj["status"]["allocatable"] |= dict.fromkeys(self._resources, "1")
        return obj


class _OldClientsClear:
    """Whoever writes the status of a pod without its claim status clears that."""

    def __init__(self) -> None:
        self._cleared: set[tuple[str, str]] = set()

    def ask(self, request: Request) -> None:
        """Learn who did."""
        if request.verb == "update" and request.target == "pods/status":
            self._cleared.add((request.namespace, request.name))

    def see(self, request: Request, obj: Object) -> Object:
        """Show the pod without."""
        if (request.resource, request.namespace, request.name) in {("pods", *each) for each in self._cleared}:
            obj.get("status", {}).pop("extendedResourceClaimStatus", None)
        return obj


_capacity = _NodeCapacity()
_old_clients = _OldClientsClear()

MUTANTS = (
    Mutant(
        "one-device-less",
        "the scheduler allocates one device less than each container asks for",
        kills=("ER-01",),
        asks=(rewrite("pods", _with_amount(lambda amount: max(0, amount - 1))),),
    ),
    Mutant(
        "implicit-name-refused",
        "a pod can't ask for a class by its implicit name",
        kills=(f"{_SERVING}test_the_implicit_name_needs_no_field",),
        asks=(
            refuse(
                "create",
                "pods",
                422,
                "Invalid",
                "the prefix deviceclass.resource.kubernetes.io is reserved",
                when=lambda request: any(
                    name.startswith(_IMPLICIT_PREFIX) for name in _extended(request.body)
                ),
            ),
        ),
    ),
    Mutant(
        "served-by-another-class",
        "the implicit name of a class is served by another one",
        kills=(f"{_SERVING}test_the_implicit_name_needs_no_field",),
        sees=(
            edit(
                "resourceclaims",
                "spec.devices.requests.*.exactly.deviceClassName",
                lambda name: f"not-{name}",
            ),
        ),
    ),
    Mutant(
        "a-claim-too-many",
        "the namespace has a special claim that nobody needs, and it stays",
        kills=(
            "ER-03",
            f"{_SERVING}test_a_zero_quantity_makes_no_claim",
            "ER-13",
            "ER-16",
            f"{_LIFECYCLE}test_a_refused_claim_leaves_nothing",
            f"{_LIFECYCLE}test_a_refused_allocation_leaves_nothing[explicit]",
            "ER-18",
        ),
        judges=(invent("resourceclaims", LEFTOVER),),
    ),
    Mutant(
        "claims-without-annotation",
        "the scheduler does not annotate the claims that it makes",
        kills=("ER-04",),
        sees=(drop("resourceclaims", ("metadata", "annotations")),),
    ),
    Mutant(
        "claims-with-pod-claim-name",
        "special claims carry the annotation of claims from a template",
        kills=("ER-04",),
        sees=(
            put(
                "resourceclaims",
                ("metadata", "annotations", "resource.kubernetes.io/pod-claim-name"),
                "claim",
            ),
        ),
    ),
    Mutant(
        "claims-not-controlled",
        "a pod owns its special claim without controlling it",
        kills=("ER-04",),
        sees=(put("resourceclaims", "metadata.ownerReferences.*.controller", False),),
    ),
    Mutant(
        "a-mapping-less",
        "the pod's status lacks the mapping of one container's request",
        kills=("ER-05",),
        sees=(edit("pods", _MAPPINGS, lambda mappings: (mappings or [])[1:]),),
    ),
    Mutant(
        "init-containers-hold-devices",
        "init containers that ended keep their devices",
        kills=("ER-07",),
        asks=(rewrite("pods", _init_containers_stay),),
    ),
    Mutant(
        "zero-is-one",
        "who asks for no device gets one",
        kills=("ER-08",),
        asks=(rewrite("pods", _with_amount(lambda amount: max(1, amount))),),
    ),
    Mutant(
        "the-older-class-serves",
        "of two classes with a name the one created first serves it",
        kills=(f"{_CLASSES}test_the_later_class_wins",),
        asks=(_AnotherClass(lambda classes: classes[0]),),
    ),
    Mutant(
        "the-last-name-serves",
        "of two classes created in one second the one whose name sorts last serves",
        kills=(f"{_CLASSES}test_a_tie_goes_to_the_first_name",),
        asks=(_AnotherClass(max),),
    ),
    Mutant(
        "refused-for-good",
        "a pod that was refused once is never looked at again",
        kills=(
            f"{_SERVING}test_a_pod_older_than_the_class[explicit]",
            f"{_LIFECYCLE}test_a_freed_device_wakes_the_other_kind[special-explicit]",
            f"{_LIFECYCLE}test_a_freed_device_wakes_the_other_kind[explicit-explicit]",
            f"{_LIFECYCLE}test_a_refused_claim_leaves_nothing[explicit]",
        ),
        sees=(freeze("pods", unschedulable),),
    ),
    Mutant(
        "placed-anyway",
        "pods are placed that must not be: without a class, a free device or their claim",
        kills=(
            "ER-11",
            f"{_LIFECYCLE}test_a_freed_device_wakes_the_other_kind",
            "ER-17",
            "ER-18",
        ),
        sees=(edit("pods", "spec.nodeName", lambda node: node or "somewhere"),),
    ),
    Mutant(
        "plugin-pods-with-claims",
        "a pod on a device plugin's node has a special claim too",
        kills=("ER-12",),
        sees=(edit("pods", "status.extendedResourceClaimStatus", lambda status: status or {}),),
    ),
    Mutant(
        "dra-before-the-plugin",
        "where a node has both, DRA serves the pod",
        kills=("ER-13",),
        asks=(_AnotherClass(lambda classes: classes[-1]),),
    ),
    Mutant(
        "a-new-class-serves-nobody",
        "device classes of running clusters are not taken notice of",
        kills=("ER-14",),
        asks=(ignore("create", "deviceclasses"),),
    ),
    Mutant(
        "one-device-for-all",
        "a device is given out again and again",
        kills=(f"{_LIFECYCLE}test_a_burst_of_both_kinds_shares_nothing",),
        sees=(put("resourceclaims", "status.allocation.devices.results.*.device", "gpu-0"),),
    ),
    Mutant(
        "nodes-with-capacity",
        "the kubelet adds DRA's devices to its node's allocatable",
        kills=("ER-19",),
        asks=(_capacity.ask,),
        sees=(_capacity.see,),
    ),
    Mutant(
        "old-clients-clear",
        "a status written without extendedResourceClaimStatus clears it",
        kills=("ER-21",),
        asks=(_old_clients.ask,),
        sees=(_old_clients.see,),
    ),
)
