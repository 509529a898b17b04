"""Explicit ResourceClaims, templates of them, and pods that use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clusters.driver_host import HostedDriver
from clusters.interface import Node
from harness.kube import RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, Object
from harness.waiting import NotYet, wait_until
from suites.devices import allocated
from suites.drivers import DeviceClass
from suites.workload import Container, Workloads, pod_manifest

NO_FIT = "cannot allocate all claims"
"""What the scheduler says of a node whose devices don't meet a pod's claims."""
_GONE_SECONDS = 60.0


def request(
    name: str,
    device_class: DeviceClass,
    *,
    count: int = 1,
    cel: str = "",
    everything: bool = False,
    **fields: Any,
) -> Object:
    """A request for `count` devices of a class that match `cel`, or for every one, with more `fields`."""
    exactly: Object = {"deviceClassName": device_class.name, **fields}
    exactly |= {"allocationMode": "All"} if everything else {"count": count}
    if cel:
        exactly["selectors"] = [{"cel": {"expression": cel}}]
    return {"name": name, "exactly": exactly}


def first_available(name: str, alternatives: Sequence[Object]) -> Object:
    """A request that is served by the first of some requests that can be."""
    subrequests = [{"name": each["name"], **each["exactly"]} for each in alternatives]
    return {"name": name, "firstAvailable": subrequests}


def gpu_config(driver: HostedDriver, env: Mapping[str, str], *requests: str) -> Object:
    """Configuration of a bundled driver for all requests, or for some: environment of the containers."""
    parameters = {"apiVersion": "dra-harness.dev/v1", "kind": "GpuConfig", "env": dict(env)}
    config: Object = {"opaque": {"driver": driver.name, "parameters": parameters}}
    return config | {"requests": list(requests)} if requests else config


def claim_manifest(
    name: str,
    requests: Sequence[Object],
    *constraints: Object,
    config: Sequence[Object] = (),
    **metadata: Any,
) -> Object:
    """A claim of some requests, under constraints such as `{"matchAttribute": ...}`, with configuration."""
    devices: Object = {"requests": list(requests)}
    if constraints:
        devices["constraints"] = list(constraints)
    if config:
        devices["config"] = list(config)
    return {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": "ResourceClaim",
        "metadata": {"name": name, **metadata},
        "spec": {"devices": devices},
    }


def create_claim(
    workloads: Workloads,
    name: str,
    requests: Sequence[Object],
    *constraints: Object,
    config: Sequence[Object] = (),
) -> Object:
    """Create a claim."""
    manifest = claim_manifest(name, requests, *constraints, config=config)
    return workloads.kube.create(RESOURCE_CLAIMS, manifest, workloads.namespace)


def template_manifest(name: str, requests: Sequence[Object]) -> Object:
    """A template of claims of some requests."""
    return {
        "apiVersion": RESOURCE_CLAIM_TEMPLATES.api_version,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": claim_manifest(name, requests)["spec"]},
    }


def create_template(workloads: Workloads, name: str, requests: Sequence[Object]) -> Object:
    """Create a template of claims."""
    manifest = template_manifest(name, requests)
    return workloads.kube.create(RESOURCE_CLAIM_TEMPLATES, manifest, workloads.namespace)


def from_claim(name: str, claim: str) -> Object:
    """An entry of a pod's resourceClaims that names a ResourceClaim."""
    return {"name": name, "resourceClaimName": claim}


def from_template(name: str, template: str) -> Object:
    """An entry of a pod's resourceClaims that gets its claim made from a ResourceClaimTemplate."""
    return {"name": name, "resourceClaimTemplateName": template}


def pod_with_claim(name: str, claim: str = "", *, template: str = "", node: str = "", **spec: Any) -> Object:
    """A pod that uses a claim, by default the one of its own name, or one made from a template."""
    source = from_template("device", template) if template else from_claim("device", claim or name)
    return pod_manifest(name, [Container(claims=["device"])], node=node, resourceClaims=[source], **spec)


def create_pod(workloads: Workloads, name: str, requests: Sequence[Object], *constraints: Object) -> Object:
    """Create a claim, and a pod of the same name whose container uses all of it."""
    create_claim(workloads, name, requests, *constraints)
    return workloads.create(pod_with_claim(name))


def get_claim(workloads: Workloads, name: str) -> Object:
    """A claim as it is now."""
    return workloads.kube.get(RESOURCE_CLAIMS, name, workloads.namespace)


def allocated_to(workloads: Workloads, name: str) -> list[str]:
    """The devices of a claim, sorted."""
    return allocated(get_claim(workloads, name))


def allocate(
    workloads: Workloads, claim: Object, driver: HostedDriver, node: Node, device: str = "gpu-0"
) -> None:
    """Write an allocation into a claim of one request, as the scheduler would, whoever has the device."""
    result = {
        "request": claim["spec"]["devices"]["requests"][0]["name"],
        "driver": driver.name,
        "pool": node.name,
        "device": device,
    }
    workloads.kube.patch(
        RESOURCE_CLAIMS,
        claim["metadata"]["name"],
        {"status": {"allocation": {"devices": {"results": [result]}}}},
        workloads.namespace,
        subresource="status",
    )


def wait_claim_gone(workloads: Workloads, claim: Object) -> None:
    """Wait until a claim's object is gone; another of its name may be there."""
    metadata = claim["metadata"]

    def gone() -> bool:
        found = workloads.kube.find(RESOURCE_CLAIMS, metadata["name"], workloads.namespace)
        if found and found["metadata"]["uid"] == metadata["uid"]:
            raise NotYet(found["metadata"])
        return True

    wait_until(gone, _GONE_SECONDS, f"claim {metadata['name']} to be gone")
