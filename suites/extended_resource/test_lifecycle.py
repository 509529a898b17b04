"""Devices are used once and given back; a failed start leaves nothing: ER-15 to ER-18 and ER-21."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clusters.interface import Cluster
from harness.kube import (
    ADMISSION_BINDINGS,
    ADMISSION_POLICIES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    ApiError,
    KubeClient,
    Object,
)
from harness.waiting import NotYet, wait_until
from suites.catalogue import Form
from suites.devices import allocated, given
from suites.drivers import DeviceClass, Drivers
from suites.evidence import Observations
from suites.marks import both_forms, requirement
from suites.naming import LABEL, Names
from suites.workload import Container, Workloads, pod_manifest

_NO_ROOM = ("cannot allocate all claims", "Insufficient", "cannot fit resource")
CLAIM_COUNT = "count/resourceclaims.resource.k8s.io"


@requirement("ER-15")
@both_forms
def test_one_pool_for_both_ways_of_asking(
    form: Form,
    cluster: Cluster,
    drivers: Drivers,
    workloads: Workloads,
    evidence: Observations,
) -> None:
    """Extended resources and explicit claims draw on the same devices, never more than there are."""
    driver = drivers.start(devices=2, nodes=cluster.nodes[:1])
    device_class = drivers.device_class(driver)
    resource = device_class.resource(form)
    _create_claim(workloads, "explicit", device_class)
    explicit = pod_manifest("explicit", [Container()], resourceClaims=_claim_reference("explicit"))
    explicit["spec"]["containers"][0]["resources"] = {"claims": [{"name": "device"}]}
    workloads.run(explicit)
    workloads.run(pod_manifest("first", [Container(resources={resource: 1})]))

    workloads.create(pod_manifest("second", [Container(resources={resource: 1})]))
    refusal = workloads.wait_unschedulable("second", *_NO_ROOM)
    held = [device for claim in workloads.claims() for device in allocated(claim)]
    workloads.delete("first")
    workloads.wait_running("second")

    evidence("devices held while all are in use", sorted(held))
    evidence("why the next pod waits", refusal)
    evidence("its device once one is free", given(workloads.report("second")))
    assert sorted(held) == ["gpu-0", "gpu-1"], "both devices are held, each once"
    after = [device for claim in workloads.claims() for device in allocated(claim)]
    assert sorted(after) == ["gpu-0", "gpu-1"]


def _create_claim(workloads: Workloads, name: str, device_class: DeviceClass) -> Object:
    request = {"name": "device", "exactly": {"deviceClassName": device_class.name}}
    manifest = {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [request]}},
    }
    return workloads.kube.create(RESOURCE_CLAIMS, manifest, workloads.namespace)


def _claim_reference(name: str) -> list[Object]:
    return [{"name": "device", "resourceClaimName": name}]


@requirement("ER-16")
@both_forms
@pytest.mark.parametrize("end", ["deleted", "Succeeded", "Failed"])
def test_devices_come_back(
    end: str,
    form: Form,
    cluster: Cluster,
    drivers: Drivers,
    workloads: Workloads,
    evidence: Observations,
) -> None:
    """When the pod is deleted, or ends well or badly, its claim goes and its device serves the next pod."""
    driver = drivers.start(devices=1, nodes=cluster.nodes[:1])
    resource = drivers.device_class(driver).resource(form)
    if end == "deleted":
        workloads.run(pod_manifest("pod", [Container(resources={resource: 1})]))
        claim = workloads.special_claim("pod")
        workloads.delete("pod")
    else:
        code = "0" if end == "Succeeded" else "3"
        args = ["--exit", code]
        workloads.create(pod_manifest("pod", [Container(resources={resource: 1}, args=args)]))
        ended = workloads.wait_phase("pod", end)
        claim = {"metadata": {"name": ended["status"]["extendedResourceClaimStatus"]["resourceClaimName"]}}

    workloads.wait_no_claims()
    workloads.run(pod_manifest("next", [Container(resources={resource: 1})]))

    evidence("claim of the ended pod", claim["metadata"]["name"])
    evidence("claims afterwards", [each["metadata"]["name"] for each in workloads.claims("next")])
    evidence("device of the next pod", given(workloads.report("next")))
    assert given(workloads.report("next")) == ["gpu-0"], "the only device serves the next pod"


@requirement("ER-17")
@both_forms
def test_a_refused_claim_leaves_nothing(
    form: Form,
    drivers: Drivers,
    workloads: Workloads,
    kube: KubeClient,
    evidence: Observations,
) -> None:
    """Quota refuses the special claim: the pod waits, nothing is left, and it runs once there is room."""
    resource = drivers.device_class(drivers.start()).resource(form)
    _set_claim_quota(kube, workloads.namespace, 0)

    workloads.create(pod_manifest("pod", [Container(resources={resource: 1})]))
    refusal = workloads.wait_event("pod", "create claim for extended resources")

    evidence("what the scheduler says", refusal)
    assert workloads.claims() == [], "no claim without quota for one"
    assert "nodeName" not in workloads.get("pod")["spec"]
    kube.patch(RESOURCE_QUOTAS, "claims", {"spec": {"hard": {CLAIM_COUNT: "1"}}}, workloads.namespace)
    workloads.wait_running("pod")
    evidence("devices once there is quota", given(workloads.report("pod")))
    assert len(workloads.claims()) == 1


def _set_claim_quota(kube: KubeClient, namespace: str, claims: int) -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "claims"},
        "spec": {"hard": {CLAIM_COUNT: str(claims)}},
    }
    kube.create(RESOURCE_QUOTAS, manifest, namespace)

    def counted() -> bool:
        # Until the quota controller has counted, admission says "status unknown for quota".
        return CLAIM_COUNT in kube.get(RESOURCE_QUOTAS, "claims", namespace)["status"].get("hard", {})

    wait_until(counted, 30, "the quota to be counted")


@pytest.fixture
def allocation_refused(kube: KubeClient, names: Names, namespace: str) -> Iterator[str]:
    """An admission policy that refuses to write allocations in the check's namespace; its name."""
    name = names.name("refuse-allocation")
    labels = {LABEL: names.run_id}
    policy = {
        "apiVersion": ADMISSION_POLICIES.api_version,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": ["resource.k8s.io"],
                        "apiVersions": ["*"],
                        "operations": ["UPDATE"],
                        "resources": ["resourceclaims/status"],
                    }
                ]
            },
            "validations": [
                {"expression": "!has(object.status.allocation)", "message": "refused by the check"}
            ],
        },
    }
    binding = {
        "apiVersion": ADMISSION_BINDINGS.api_version,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
            },
        },
    }
    kube.create(ADMISSION_POLICIES, policy)
    kube.create(ADMISSION_BINDINGS, binding)
    yield name
    kube.delete(ADMISSION_BINDINGS, name)
    kube.delete(ADMISSION_POLICIES, name)


@requirement("ER-17")
@both_forms
def test_a_refused_allocation_leaves_nothing(
    form: Form,
    drivers: Drivers,
    workloads: Workloads,
    kube: KubeClient,
    allocation_refused: str,
    evidence: Observations,
) -> None:
    """The claim is created but not its allocation: the scheduler takes it back, and succeeds later."""
    device_class = drivers.device_class(drivers.start())
    _wait_refusing(workloads, device_class)

    workloads.create(pod_manifest("pod", [Container(resources={device_class.resource(form): 1})]))
    refusal = workloads.wait_event("pod", "refused by the check")

    evidence("what the scheduler says", refusal)
    workloads.wait_no_claims()
    assert "nodeName" not in workloads.get("pod")["spec"]
    kube.delete(ADMISSION_BINDINGS, allocation_refused)
    workloads.wait_running("pod")
    claim = workloads.special_claim("pod")
    evidence(
        "claims once allocations are accepted", [each["metadata"]["name"] for each in workloads.claims()]
    )
    assert [each["metadata"]["name"] for each in workloads.claims()] == [claim["metadata"]["name"]]
    assert given(workloads.report("pod")) == allocated(claim)


def _wait_refusing(workloads: Workloads, device_class: DeviceClass) -> None:
    """A policy takes a moment to be in force; a claim of the check's own shows when it is."""
    probe = _create_claim(workloads, "probe", device_class)
    result = {"request": "device", "driver": "probe.dra-harness.dev", "pool": "probe", "device": "probe"}
    status = {"allocation": {"devices": {"results": [result]}}}

    def refusing() -> bool:
        try:
            workloads.kube.patch(
                RESOURCE_CLAIMS,
                "probe",
                {"status": status},
                workloads.namespace,
                subresource="status",
                query={"dryRun": "All"},
            )
        except ApiError as error:
            return "refused by the check" in error.message
        raise NotYet("an allocation is still accepted")

    wait_until(refusing, 30, "the admission policy to be in force")
    workloads.kube.delete(RESOURCE_CLAIMS, probe["metadata"]["name"], workloads.namespace)


@requirement("ER-18")
@both_forms
def test_more_than_32_devices_in_one_pod(
    form: Form,
    cluster: Cluster,
    drivers: Drivers,
    workloads: Workloads,
    evidence: Observations,
) -> None:
    """33 devices stay Pending with an event that says why; 32 from the same node run."""
    driver = drivers.start(devices=40, nodes=cluster.nodes[:1])
    resource = drivers.device_class(driver).resource(form)

    workloads.create(pod_manifest("too-many", [Container(resources={resource: 33})]))
    message = workloads.wait_event("too-many", "claim limit of 32", "is too large", "exceeds")
    workloads.run(pod_manifest("most", [Container(resources={resource: 32})]))

    evidence("event on the pod that asks for 33", message)
    evidence("devices of the pod that asks for 32", len(given(workloads.report("most"))))
    assert "nodeName" not in workloads.get("too-many")["spec"]
    assert "32" in message or "33" in message, "the event names the limit or the number asked for"
    assert len(given(workloads.report("most"))) == 32


@requirement("ER-21")
@both_forms
def test_old_clients_do_not_clear_the_status(
    form: Form, drivers: Drivers, workloads: Workloads, kube: KubeClient, evidence: Observations
) -> None:
    """A status written by a client that does not know `extendedResourceClaimStatus` keeps it."""
    resource = drivers.device_class(drivers.start()).resource(form)
    pod = workloads.run(pod_manifest("pod", [Container(resources={resource: 1})]))
    before = pod["status"]["extendedResourceClaimStatus"]

    written = _write_status_without(kube, workloads, "extendedResourceClaimStatus")

    after = workloads.get("pod")["status"].get("extendedResourceClaimStatus")
    evidence("before", before)
    evidence("answer to the old client", written["status"].get("extendedResourceClaimStatus"))
    evidence("after", after)
    assert after == before


def _write_status_without(kube: KubeClient, workloads: Workloads, field: str) -> Object:
    def written() -> Object:
        pod = workloads.get("pod")
        del pod["status"][field]
        condition = {"type": "dra-harness.dev/OldClient", "status": "True"}
        pod["status"]["conditions"] = [
            each for each in pod["status"]["conditions"] if each["type"] != condition["type"]
        ] + [condition]
        try:
            return kube.replace(PODS, pod, workloads.namespace, subresource="status")
        except ApiError as error:
            if error.status != 409:
                raise
            raise NotYet("the pod changed meanwhile") from error

    return wait_until(written, 30, "a status written by an old client")
