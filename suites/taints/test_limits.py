"""What the API server refuses: TNT-12."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.errors import RequirementFailed
from harness.kube import (
    DEVICE_TAINT_RULES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    ApiError,
    KubeClient,
    Object,
    Resource,
)
from suites.evidence import Observations
from suites.expect import expect, expect_equal, symptom
from suites.marks import deviation, requirement, without_driver
from suites.naming import Names
from suites.taints.support import KEY, Rules, now, rfc3339, taint

_MAX_TAINTS = 16
_MAX_TOLERATIONS = 16
_MAX_TAINTED_DEVICES = 64
_MAX_CONDITIONS = 8


def _refusal(kube: KubeClient, resource: Resource, manifest: Object, namespace: str | None = None) -> str:
    """The API server's reason to refuse an object."""
    return _reason(lambda: kube.create(resource, manifest, namespace, dry_run=True))


def _reason(write: Callable[[], Object]) -> str:
    """The API server's reason to refuse what is written."""
    try:
        kept = write()
    except ApiError as error:
        if error.status != 422:
            raise
        return error.message
    raise RequirementFailed("the API server refuses it", "it is accepted", kept)


def _slice(driver: str, devices: list[Object]) -> Object:
    return {
        "apiVersion": RESOURCE_SLICES.api_version,
        "kind": "ResourceSlice",
        "metadata": {"generateName": "check-"},
        "spec": {
            "driver": driver,
            "pool": {"name": "check", "generation": 1, "resourceSliceCount": 1},
            "allNodes": True,
            "devices": devices,
        },
    }


def _keys(count: int) -> list[str]:
    return [f"{KEY}-{index}" for index in range(count)]


@requirement("TNT-12")
@without_driver
def test_taints_of_a_device(names: Names, kube: KubeClient, evidence: Observations) -> None:
    """A device may have 16 taints, not 17."""

    def tainted(count: int) -> Object:
        return _slice(
            names.driver(),
            [{"name": "gpu-0", "taints": [taint("NoSchedule", key=key) for key in _keys(count)]}],
        )

    kept = kube.create(RESOURCE_SLICES, tainted(_MAX_TAINTS), dry_run=True)
    refusal = _refusal(kube, RESOURCE_SLICES, tainted(_MAX_TAINTS + 1))

    evidence("taints kept", len(kept["spec"]["devices"][0]["taints"]))
    evidence("answer to one more", refusal)
    expect_equal("taints kept", len(kept["spec"]["devices"][0]["taints"]), _MAX_TAINTS)
    expect("the reason names the taints", "devices[0].taints: Too many" in refusal, refusal)


@requirement("TNT-12")
@without_driver
def test_devices_of_a_slice_with_taints(names: Names, kube: KubeClient, evidence: Observations) -> None:
    """One taint halves what a slice may hold: 64 devices. Without it, as many more are fine."""

    def devices(count: int, *, taints: bool) -> Object:
        made: list[Object] = [{"name": f"gpu-{index}"} for index in range(count)]
        if taints:
            made[-1]["taints"] = [taint("None")]
        return _slice(names.driver(), made)

    kube.create(RESOURCE_SLICES, devices(_MAX_TAINTED_DEVICES, taints=True), dry_run=True)
    kube.create(RESOURCE_SLICES, devices(2 * _MAX_TAINTED_DEVICES, taints=False), dry_run=True)
    refusal = _refusal(kube, RESOURCE_SLICES, devices(_MAX_TAINTED_DEVICES + 1, taints=True))

    evidence("answer to 65 devices, one with a taint", refusal)
    named = "spec.devices: Too many" in refusal and str(_MAX_TAINTED_DEVICES) in refusal
    expect("the reason names the devices and the limit", named, refusal)


@requirement("TNT-12")
@without_driver
@deviation("KEP-5055 tolerations limit")
@pytest.mark.parametrize("where", ["request", "subrequest", "template"])
def test_tolerations_of_a_request(
    where: str, namespace: str, kube: KubeClient, evidence: Observations
) -> None:
    """A request may have 16 tolerations, not 17: in a claim, an alternative of a claim, a template."""
    resource = RESOURCE_CLAIM_TEMPLATES if where == "template" else RESOURCE_CLAIMS
    kube.create(resource, _with_tolerations(where, _MAX_TOLERATIONS), namespace, dry_run=True)

    evidence("accepted", f"{_MAX_TOLERATIONS} tolerations")

    with symptom("KEP-5055 tolerations limit", "it is accepted"):
        refusal = _refusal(kube, resource, _with_tolerations(where, _MAX_TOLERATIONS + 1), namespace)

    evidence("answer to one more", refusal)
    expect("the reason names the tolerations", "tolerations: Too many" in refusal, refusal)


def _with_tolerations(where: str, count: int) -> Object:
    tolerations = [{"key": key, "operator": "Exists"} for key in _keys(count)]
    asked: dict[str, Any] = {"deviceClassName": "check", "tolerations": tolerations}
    request: Object = {"name": "device"}
    if where == "subrequest":
        request["firstAvailable"] = [{"name": "first", **asked}]
    else:
        request["exactly"] = asked
    spec: Object = {"devices": {"requests": [request]}}
    kind = "ResourceClaimTemplate" if where == "template" else "ResourceClaim"
    return {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": kind,
        "metadata": {"generateName": "check-"},
        "spec": {"spec": spec} if where == "template" else spec,
    }


@requirement("TNT-12")
@without_driver
def test_conditions_of_a_rule(names: Names, rules: Rules, kube: KubeClient, evidence: Observations) -> None:
    """The status of a rule may have 8 conditions, not 9."""
    rule = rules.create("limits", taint("None"), {"driver": names.driver()})

    def write(count: int) -> Object:
        common = {"status": "True", "reason": "Check", "message": "", "lastTransitionTime": rfc3339(now())}
        conditions = [{"type": f"Check{index}", **common} for index in range(count)]
        return kube.patch(
            DEVICE_TAINT_RULES,
            rule["metadata"]["name"],
            {"status": {"conditions": conditions}},
            subresource="status",
            query={"dryRun": "All"},
        )

    kept = write(_MAX_CONDITIONS)
    refusal = _reason(lambda: write(_MAX_CONDITIONS + 1))

    evidence("conditions kept", len(kept["status"]["conditions"]))
    evidence("answer to one more", refusal)
    expect_equal("conditions kept", len(kept["status"]["conditions"]), _MAX_CONDITIONS)
    expect("the reason names the conditions", "status.conditions: Too many" in refusal, refusal)


@requirement("TNT-12")
@without_driver
def test_effects(names: Names, kube: KubeClient, namespace: str, evidence: Observations) -> None:
    """Slices, rules and claims take the effects None, NoSchedule and NoExecute, not PreferNoSchedule."""

    def objects(effect: str) -> dict[str, tuple[Resource, Object, str | None]]:
        rule = {
            "apiVersion": DEVICE_TAINT_RULES.api_version,
            "kind": "DeviceTaintRule",
            "metadata": {"generateName": "check-"},
            "spec": {"deviceSelector": {"driver": names.driver()}, "taint": taint(effect)},
        }
        claim = _with_tolerations("request", 1)
        claim["spec"]["devices"]["requests"][0]["exactly"]["tolerations"][0]["effect"] = effect
        return {
            "slice": (
                RESOURCE_SLICES,
                _slice(names.driver(), [{"name": "a", "taints": [taint(effect)]}]),
                None,
            ),
            "rule": (DEVICE_TAINT_RULES, rule, None),
            "toleration": (RESOURCE_CLAIMS, claim, namespace),
        }

    for effect in ("None", "NoSchedule", "NoExecute"):
        for resource, manifest, where in objects(effect).values():
            kube.create(resource, manifest, where, dry_run=True)
    refusals = {
        kind: _refusal(kube, resource, manifest, where)
        for kind, (resource, manifest, where) in objects("PreferNoSchedule").items()
    }

    evidence("answers to the effect PreferNoSchedule", refusals)
    for kind, refusal in refusals.items():
        named = 'Unsupported value: "PreferNoSchedule"' in refusal
        expect(f"the reason to refuse the {kind} is the effect", named, refusal)
