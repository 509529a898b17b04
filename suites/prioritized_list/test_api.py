"""What the API server takes as alternatives, and what it refuses: PRI-03."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from harness.kube import (
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    ApiError,
    KubeClient,
    Object,
    Resource,
)
from suites.claims import claim_manifest, from_claim, template_manifest
from suites.evidence import Observations
from suites.expect import expect, expect_equal
from suites.marks import requirement, without_driver
from suites.workload import Container, pod_manifest

_EITHER = "exactly one of `exactly` or `firstAvailable` is required"


def _alternative(name: str, **fields: Any) -> Object:
    return {"name": name, "deviceClassName": "gpu.example.com", **fields}


def _request(alternatives: Iterable[Object], **fields: Any) -> Object:
    return {"name": "gpu", "firstAvailable": list(alternatives), **fields}


def _alternatives(count: int) -> list[Object]:
    return [_alternative(f"a{index}") for index in range(count)]


REFUSED: dict[str, tuple[Object, int, str]] = {
    "9 alternatives": (_request(_alternatives(9)), 422, "must have at most 8 items"),
    "no alternative": (_request([]), 422, _EITHER),
    "two of one name": (_request([_alternative("a"), _alternative("a")]), 422, "Duplicate value"),
    "alternatives beside a plain request": (
        _request(_alternatives(1), exactly={"deviceClassName": "gpu.example.com"}),
        422,
        _EITHER,
    ),
    "alternatives within an alternative": (
        _request([_alternative("a", firstAvailable=_alternatives(2))]),
        400,
        'unknown field "{spec}.devices.requests[0].firstAvailable[0].firstAvailable"',
    ),
    "admin access in an alternative": (
        _request([_alternative("a", adminAccess=True)]),
        400,
        'unknown field "{spec}.devices.requests[0].firstAvailable[0].adminAccess"',
    ),
}
"""Requests, and how a client is refused that asks for strict reading, as kubectl does: status and words."""

_KINDS = pytest.mark.parametrize(
    ("resource", "spec"),
    [
        pytest.param(RESOURCE_CLAIMS, "spec", id="claim"),
        pytest.param(RESOURCE_CLAIM_TEMPLATES, "spec.spec", id="template"),
    ],
)


def _create(kube: KubeClient, namespace: str, resource: Resource, wanted: Object, *, strict: bool) -> Object:
    """Create a claim, or a template of claims, on trial, and return the one request as it would be stored."""
    manifest = claim_manifest if resource is RESOURCE_CLAIMS else template_manifest
    stored = kube.create(resource, manifest("probe", [wanted]), namespace, dry_run=True, strict=strict)
    spec = stored["spec"] if resource is RESOURCE_CLAIMS else stored["spec"]["spec"]
    request: Object = spec["devices"]["requests"][0]
    return request


@requirement("PRI-03")
@without_driver
@_KINDS
def test_eight_alternatives_are_stored_in_order(
    resource: Resource, spec: str, kube: KubeClient, namespace: str, evidence: Observations
) -> None:
    """As many as are allowed come back as they were written."""
    wanted = _request(reversed(_alternatives(8)))

    stored = _create(kube, namespace, resource, wanted, strict=True)

    names = [each["name"] for each in stored["firstAvailable"]]
    evidence(f"names of the alternatives in {spec}, as stored", names)
    expect_equal("their order", names, [each["name"] for each in wanted["firstAvailable"]])


@requirement("PRI-03")
@without_driver
@_KINDS
@pytest.mark.parametrize(("wanted", "status", "text"), REFUSED.values(), ids=REFUSED)
def test_refused(
    wanted: Object,
    status: int,
    text: str,
    resource: Resource,
    spec: str,
    kube: KubeClient,
    namespace: str,
    evidence: Observations,
) -> None:
    """Too many or no alternatives, and what an alternative can't have, are refused, each for its reason."""
    with pytest.raises(ApiError) as refused:
        _create(kube, namespace, resource, wanted, strict=True)

    message = refused.value.message
    evidence("what the API server says", message)
    expect_equal("status of the refusal", refused.value.status, status)
    expect(f"the refusal says {text.format(spec=spec)!r}", text.format(spec=spec) in message, message)


@requirement("PRI-03")
@without_driver
@_KINDS
@pytest.mark.parametrize("field", ["adminAccess", "firstAvailable"])
def test_what_no_alternative_has_is_never_stored(
    field: str, resource: Resource, spec: str, kube: KubeClient, namespace: str, evidence: Observations
) -> None:
    """A client that doesn't ask for strict reading gets alternatives without the field, not access by it."""
    value = True if field == "adminAccess" else _alternatives(2)

    wanted = _request([_alternative("a", **{field: value})])
    (stored,) = _create(kube, namespace, resource, wanted, strict=False)["firstAvailable"]

    evidence(f"the alternative in {spec}, as stored", stored)
    expect(f"it has no {field}", field not in stored, stored)


@requirement("PRI-03")
@without_driver
def test_a_pod_names_the_request_only(kube: KubeClient, namespace: str, evidence: Observations) -> None:
    """A container may refer to a request by its name, and not to an alternative of it."""
    for reference in ("device", "device/gpu"):
        kube.create(PODS, _pod(reference), namespace, dry_run=True)

    with pytest.raises(ApiError) as refused:
        kube.create(PODS, _pod("device/gpu/a0"), namespace, dry_run=True)

    message = refused.value.message
    evidence("what the API server says", message)
    place = 'spec.containers[0].resources.claims[0].request: Invalid value: "gpu/a0"'
    expect_equal("status of the refusal", refused.value.status, 422)
    expect(f"the refusal says {place!r}", place in message, message)


def _pod(reference: str) -> Object:
    claims = [from_claim("device", "claim")]
    return pod_manifest("probe", [Container(claims=[reference])], resourceClaims=claims)
