"""Manifests of what a load run makes: device classes, claim templates, quotas and pods."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from clusters.components.image import pod_container
from clusters.local.simulated import SIMULATED
from harness.kube import (
    DEVICE_CLASSES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    Object,
    Resource,
)
from load.model import PodKind
from load.naming import Names
from load.profiles.schema import Place, PodShape, Tolerance, Via

MOST_DEVICES = 32
"""Devices that one claim can be given: AllocationResultsMaxSize of resource.k8s.io/v1."""
TOLERATION_SECONDS = 3600
"""How long claims tolerate NoExecute that tolerate it for a time: longer than any scenario's taints last."""

_NO_IMAGE = "none.invalid/none"


def device_class(names: Names, name: str, driver: str, extended_resource: str = "") -> Object:
    """A DeviceClass of all of a driver's devices."""
    spec: Object = {"selectors": [_cel(f"device.driver == {json.dumps(driver)}")]}
    if extended_resource:
        spec["extendedResourceName"] = extended_resource
    return _object(DEVICE_CLASSES, "DeviceClass", name, names.labels, spec=spec)


def claim_spec(names: Names, shape: PodShape, driver: str) -> Object:
    """The spec of the claims of a pod with `via: template`.

    In `cel`, `{driver}` stands for the driver's name; a `match` without a domain is the driver's attribute.
    """
    exactly: Object = {"deviceClassName": names.device_class, "count": shape.devices}
    if tolerations := claim_tolerations(shape.tolerance):
        exactly["tolerations"] = tolerations
    if shape.cel:
        exactly["selectors"] = [_cel(shape.cel.replace("{driver}", driver))]
    requests = [{"name": f"device-{index}", "exactly": exactly} for index in range(shape.requests)]
    devices: Object = {"requests": requests}
    if shape.match:
        qualified = shape.match if "/" in shape.match else f"{driver}/{shape.match}"
        devices["constraints"] = [{"matchAttribute": qualified}]
    return {"devices": devices}


def claim_tolerations(tolerance: Tolerance) -> list[Object]:
    """Tolerations of all device taints.

    The effects are named: the eviction controller doesn't take one without an effect for NoExecute.
    """
    if tolerance is Tolerance.NONE:
        return []
    execute: Object = {"operator": "Exists", "effect": "NoExecute"}
    if tolerance is Tolerance.SECONDS:
        execute["tolerationSeconds"] = TOLERATION_SECONDS
    return [{"operator": "Exists", "effect": "NoSchedule"}, execute]


def claim_template(names: Names, shape: PodShape, driver: str) -> Object:
    """The ResourceClaimTemplate of a shape, under its name; the claims carry the run's label."""
    spec = {"metadata": {"labels": names.labels}, "spec": claim_spec(names, shape, driver)}
    return _object(RESOURCE_CLAIM_TEMPLATES, "ResourceClaimTemplate", shape.name, names.labels, spec=spec)


def claim(names: Names, name: str, devices: int, tolerance: Tolerance = Tolerance.NONE) -> Object:
    """A ResourceClaim for so many devices of the run's class, at most `MOST_DEVICES`."""
    exactly: Object = {"deviceClassName": names.device_class, "count": devices}
    if tolerations := claim_tolerations(tolerance):
        exactly["tolerations"] = tolerations
    spec = {"devices": {"requests": [{"name": "devices", "exactly": exactly}]}}
    return _object(RESOURCE_CLAIMS, "ResourceClaim", name, names.labels, spec=spec)


def quota(names: Names, hard: Mapping[str, str]) -> Object:
    """The ResourceQuota of a namespace; see `device_quota` and `extended_quota` for the keys."""
    return _object(RESOURCE_QUOTAS, "ResourceQuota", "quota", names.labels, spec={"hard": dict(hard)})


def device_quota(device_class: str, devices: int) -> dict[str, str]:
    """At most so many devices of a class in claims, counted as claims are created."""
    return {f"{device_class}.deviceclass.resource.k8s.io/devices": str(devices)}


def extended_quota(resource: str, devices: int) -> dict[str, str]:
    """At most so many of an extended resource, counted as pods and claims are created."""
    return {f"requests.{resource}": str(devices)}


def pod_kind(names: Names, shape: PodShape) -> PodKind:
    """What the generator is told of a shape; its namespaces get the run's prefix."""
    return PodKind(
        name=shape.name,
        weight=shape.weight,
        manifest=pod_manifest(names, shape),
        claims=shape.claims_per_pod,
        claims_by_scheduler=shape.via in (Via.EXPLICIT, Via.IMPLICIT),
        namespaces=[names.name(namespace) for namespace in shape.namespaces],
    )


def pod_manifest(names: Names, shape: PodShape) -> Object:
    """The pod of a shape, without a name."""
    templates = [shape.name] * shape.claims if shape.via is Via.TEMPLATE else []
    references = [
        {"name": f"claim-{index}", "resourceClaimTemplateName": template}
        for index, template in enumerate(templates)
    ]
    resource = {Via.EXPLICIT: names.extended_resource, Via.IMPLICIT: names.implicit_resource}.get(shape.via)
    amounts = {resource: str(shape.devices)} if resource else {}
    return _pod(names, references, amounts, simulated=shape.place is Place.SIMULATED)


def filler(names: Names, name: str, node: str, claims: Sequence[str]) -> Object:
    """A pod that holds claims on a simulated node until it is deleted."""
    references = [
        {"name": f"claim-{index}", "resourceClaimName": claim} for index, claim in enumerate(claims)
    ]
    manifest = _pod(names, references, {}, simulated=True)
    manifest["metadata"]["name"] = name
    manifest["spec"]["nodeSelector"] |= {"kubernetes.io/hostname": node}
    return manifest


def _pod(
    names: Names, references: Sequence[Object], amounts: Mapping[str, str], *, simulated: bool
) -> Object:
    nothing = {"image": _NO_IMAGE, "imagePullPolicy": "Never"}
    container: Object = {"name": "main", **(nothing if simulated else pod_container())}
    resources: Object = {}
    if references:
        resources["claims"] = [{"name": reference["name"]} for reference in references]
    if amounts:
        resources |= {"requests": dict(amounts), "limits": dict(amounts)}
    if resources:
        container["resources"] = resources
    spec: Object = {
        "containers": [container],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
    }
    if references:
        spec["resourceClaims"] = list(references)
    if simulated:  # real nodes have no label to select by; the taint keeps other pods from the simulated ones
        spec["nodeSelector"] = {SIMULATED: "true"}
        spec["tolerations"] = [{"key": SIMULATED, "operator": "Exists"}]
    metadata = {"labels": names.labels}
    return {"apiVersion": PODS.api_version, "kind": "Pod", "metadata": metadata, "spec": spec}


def _object(resource: Resource, kind: str, name: str, labels: Mapping[str, str], **content: Any) -> Object:
    metadata = {"name": name, "labels": dict(labels)}
    return {"apiVersion": resource.api_version, "kind": kind, "metadata": metadata, **content}


def _cel(expression: str) -> Object:
    return {"cel": {"expression": expression}}
