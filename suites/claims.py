"""Explicit ResourceClaims: requests, constraints between their devices, and pods that use them."""

from __future__ import annotations

from collections.abc import Sequence

from harness.kube import RESOURCE_CLAIMS, Object
from suites.devices import allocated
from suites.drivers import DeviceClass
from suites.workload import Container, Workloads, pod_manifest

NO_FIT = "cannot allocate all claims"
"""What the scheduler says of a node whose devices don't meet a pod's claims."""


def request(
    name: str, device_class: DeviceClass, *, count: int = 1, cel: str = "", everything: bool = False
) -> Object:
    """A request for `count` devices of a class that match `cel`, or for every one of them."""
    exactly: Object = {"deviceClassName": device_class.name}
    exactly |= {"allocationMode": "All"} if everything else {"count": count}
    if cel:
        exactly["selectors"] = [{"cel": {"expression": cel}}]
    return {"name": name, "exactly": exactly}


def claim_manifest(name: str, requests: Sequence[Object], *constraints: Object) -> Object:
    """A claim of some requests, under constraints such as `{"matchAttribute": ...}`."""
    devices: Object = {"requests": list(requests)}
    if constraints:
        devices["constraints"] = list(constraints)
    return {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": devices},
    }


def create_pod(workloads: Workloads, name: str, requests: Sequence[Object], *constraints: Object) -> Object:
    """Create a claim, and a pod of the same name whose container uses all of it."""
    manifest = claim_manifest(name, requests, *constraints)
    workloads.kube.create(RESOURCE_CLAIMS, manifest, workloads.namespace)
    reference = [{"name": "devices", "resourceClaimName": name}]
    pod = pod_manifest(name, [Container()], resourceClaims=reference)
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "devices"}]}
    return workloads.create(pod)


def allocated_to(workloads: Workloads, name: str) -> list[str]:
    """The devices of a claim, sorted."""
    return allocated(workloads.kube.get(RESOURCE_CLAIMS, name, workloads.namespace))
