"""Devices are used once and given back; a failed start leaves nothing: ER-15 to ER-18 and ER-21."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pytest

from clusters.interface import Cluster
from harness.kube import (
    ADMISSION_BINDINGS,
    ADMISSION_POLICIES,
    PODS,
    RESOURCE_CLAIMS,
    ApiError,
    KubeClient,
    Object,
)
from harness.waiting import NotYet, wait_until
from suites.catalogue import Form
from suites.claims import NO_FIT, create_claim, pod_with_claim, request
from suites.devices import allocated, given
from suites.drivers import DeviceClass, Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal, field, precondition
from suites.extended_resource.forms import both_forms
from suites.marks import exclusive, requirement
from suites.naming import LABEL, Names
from suites.quotas import CLAIM_COUNT, Quotas, wait_refused
from suites.workload import Container, Workloads, pod_manifest

_OLD_CLIENT = "dra-harness.dev/OldClient"
# Far above the scheduler's backoff, and far below the five minutes after which it tries any pod again.
_TRIED_AGAIN_SECONDS = 60.0
_CLAIM_GONE_SECONDS = 30.0
_LEFTOVER = "cannot schedule extended resource claim"
"""What the scheduler says of a special claim that an earlier attempt left behind."""


def _pod_of(kind: str, name: str, workloads: Workloads, device_class: DeviceClass, form: Form) -> Object:
    """A pod that asks for one device as an extended resource (`special`) or by a claim of its own."""
    if kind == "special":
        return pod_manifest(name, [Container(resources={device_class.resource(form): 1})])
    create_claim(workloads, name, [request("device", device_class)])
    return pod_with_claim(name)


@requirement("ER-15")
@both_forms
@exclusive
@pytest.mark.parametrize("freed", ["special", "explicit"])
def test_a_freed_device_wakes_the_other_kind(
    freed: str,
    form: Form,
    cluster: Cluster,
    drivers: Drivers,
    workloads: Workloads,
    evidence: Observations,
) -> None:
    """A device that a pod of one kind frees lets a waiting pod of the other kind run."""
    waiting = "explicit" if freed == "special" else "special"
    device_class = drivers.device_class(drivers.start(devices=1, nodes=cluster.nodes[:1]))
    workloads.run(_pod_of(freed, "holder", workloads, device_class, form))
    workloads.create(_pod_of(waiting, "waiter", workloads, device_class, form))
    refusal = workloads.wait_unschedulable("waiter", NO_FIT)

    workloads.delete("holder")
    workloads.wait_running("waiter", _TRIED_AGAIN_SECONDS)

    evidence(f"why the {waiting} pod waits", refusal)
    evidence("its device once it is free", given(workloads.report("waiter")))
    expect_equal("device of the pod that waited", given(workloads.report("waiter")), ["gpu-0"])


@requirement("ER-15")
@both_forms
def test_a_burst_of_both_kinds_shares_nothing(
    form: Form,
    cluster: Cluster,
    drivers: Drivers,
    workloads: Workloads,
    evidence: Observations,
) -> None:
    """Eight pods at once, of both kinds, on four devices: four run, each on a device of its own."""
    device_class = drivers.device_class(drivers.start(devices=4, nodes=cluster.nodes[:1]))
    names = [f"pod-{index}" for index in range(8)]
    kinds = ("special", "explicit")
    pods = [
        _pod_of(kinds[index % 2], name, workloads, device_class, form) for index, name in enumerate(names)
    ]
    for pod in pods:
        workloads.create(pod)

    decided = wait_until(lambda: _decisions(workloads, names), 60, "the scheduler's word on eight pods")

    held = sorted(device for claim in workloads.claims() for device in allocated(claim))
    evidence("pods placed and refused", decided)
    evidence("devices allocated", held)
    expect_equal("each device is allocated once", held, ["gpu-0", "gpu-1", "gpu-2", "gpu-3"])
    expect_equal("pods placed", sum(decided.values()), 4)


def _decisions(workloads: Workloads, names: Sequence[str]) -> dict[str, bool]:
    """Pod -> whether it was placed, once each was placed or refused."""
    decisions: dict[str, bool] = {}
    undecided = {}
    for name in names:
        pod = workloads.get(name)
        conditions = {each["type"]: each for each in pod["status"].get("conditions", ())}
        reason = conditions.get("PodScheduled", {}).get("reason")
        if "nodeName" in pod["spec"] or reason == "Unschedulable":
            decisions[name] = "nodeName" in pod["spec"]
        else:
            undecided[name] = reason
    if undecided:
        raise NotYet(undecided)
    return decisions


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
        name = workloads.special_claim("pod")["metadata"]["name"]
        workloads.delete("pod")
    else:
        args = ["--exit", "0" if end == "Succeeded" else "3"]
        workloads.create(pod_manifest("pod", [Container(resources={resource: 1}, args=args)]))
        ended = workloads.wait_phase("pod", end)
        name = field(ended, "status", "extendedResourceClaimStatus", "resourceClaimName")
    evidence("claim of the ended pod", name)

    workloads.wait_no_claims(_CLAIM_GONE_SECONDS)
    workloads.run(pod_manifest("next", [Container(resources={resource: 1})]))

    devices = given(workloads.report("next"))
    evidence("device of the next pod", devices)
    expect_equal("the only device serves the next pod", devices, ["gpu-0"])


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
    quotas = Quotas(kube, workloads.namespace)
    with precondition("a quota in force"):
        quotas.create({CLAIM_COUNT: 0})
        wait_refused(lambda: quotas.claim("trial", dry_run=True))

    workloads.create(pod_manifest("pod", [Container(resources={resource: 1})]))
    refusal = workloads.wait_event("pod", "create claim for extended resources")

    evidence("what the scheduler says", refusal)
    expect_equal("the node of the pod", workloads.get("pod")["spec"].get("nodeName"), None)
    quotas.change({CLAIM_COUNT: 1})
    workloads.wait_running("pod", _TRIED_AGAIN_SECONDS)
    names = [claim["metadata"]["name"] for claim in workloads.claims()]
    evidence("claims once there is quota", names)
    expect_equal("claims", names, [workloads.special_claim("pod")["metadata"]["name"]])


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
@exclusive
def test_a_refused_allocation_leaves_nothing(
    form: Form,
    drivers: Drivers,
    workloads: Workloads,
    kube: KubeClient,
    allocation_refused: str,
    evidence: Observations,
) -> None:
    """The claim is created, not its allocation: the same attempt takes it back; a later one succeeds."""
    device_class = drivers.device_class(drivers.start())
    _wait_refusing(workloads, device_class)

    workloads.create(pod_manifest("pod", [Container(resources={device_class.resource(form): 1})]))
    refusal = workloads.wait_event("pod", "refused by the check")
    evidence("what the scheduler says", refusal)
    workloads.wait_no_claims(_CLAIM_GONE_SECONDS)
    expect_equal("the node of the pod", workloads.get("pod")["spec"].get("nodeName"), None)
    kube.delete(ADMISSION_BINDINGS, allocation_refused)
    workloads.wait_running("pod", _TRIED_AGAIN_SECONDS)

    claim = workloads.special_claim("pod")
    left = [each["metadata"]["name"] for each in workloads.claims()]
    leftovers = [message for message in workloads.events("pod") if _LEFTOVER in message]
    evidence("claims once allocations are accepted", left)
    expect_equal("attempts that met a claim of an earlier one", leftovers, [])
    expect_equal("claims", left, [claim["metadata"]["name"]])
    expect_equal("devices in the container", given(workloads.report("pod")), allocated(claim), claim)


def _wait_refusing(workloads: Workloads, device_class: DeviceClass) -> None:
    """A policy takes a moment to be in force; a claim of the check's own shows when it is."""
    probe = create_claim(workloads, "probe", [request("device", device_class)])
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

    with precondition("an admission policy in force"):
        wait_until(refusing, 60, "the admission policy to be in force")
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
    """33 devices, in one container or in two, stay Pending with an event that says why; 32 run."""
    driver = drivers.start(devices=40, nodes=cluster.nodes[:1])
    resource = drivers.device_class(driver).resource(form)
    shapes = {"one-container": [33], "two-containers": [17, 16]}

    for name, amounts in shapes.items():
        containers = [Container(f"c{index}", {resource: amount}) for index, amount in enumerate(amounts)]
        workloads.create(pod_manifest(name, containers))
    messages = {name: workloads.wait_event(name, "claim limit of 32", "is too large") for name in shapes}
    evidence("events on the pods that ask for 33", messages)
    claims = [claim["metadata"]["name"] for claim in workloads.claims()]
    workloads.run(pod_manifest("most", [Container(resources={resource: 32})]))

    amount = len(given(workloads.report("most")))
    evidence("devices of the pod that asks for 32", amount)
    for name, message in messages.items():
        expect("the event names the limit or the number", re.search(r"\b(32|33)\b", message), message)
        expect(f"pod {name} is not placed", "nodeName" not in workloads.get(name)["spec"], name)
    expect_equal("claims of pods that ask for too much", claims, [])
    expect_equal("devices of the pod that asks for 32", amount, 32)


@requirement("ER-21")
@both_forms
def test_old_clients_do_not_clear_the_status(
    form: Form, drivers: Drivers, workloads: Workloads, kube: KubeClient, evidence: Observations
) -> None:
    """A status written by a client that does not know `extendedResourceClaimStatus` keeps it."""
    resource = drivers.device_class(drivers.start()).resource(form)
    pod = workloads.run(pod_manifest("pod", [Container(resources={resource: 1})]))
    before = field(pod, "status", "extendedResourceClaimStatus")

    written = _write_status_without(kube, workloads, "extendedResourceClaimStatus")

    stored = workloads.get("pod")
    after = stored["status"].get("extendedResourceClaimStatus")
    evidence("before", before)
    evidence("answer to the old client", written["status"].get("extendedResourceClaimStatus"))
    evidence("after", after)
    landed = [each["type"] for each in stored["status"]["conditions"] if each["type"] == _OLD_CLIENT]
    expect_equal("the old client's write has landed", landed, [_OLD_CLIENT], stored)
    expect_equal("status.extendedResourceClaimStatus after the old client's write", after, before, stored)


def _write_status_without(kube: KubeClient, workloads: Workloads, field: str) -> Object:
    def written() -> Object:
        pod = workloads.get("pod")
        del pod["status"][field]
        condition = {"type": _OLD_CLIENT, "status": "True"}
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
