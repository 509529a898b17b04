"""What pods with extended resources are charged: QTA-02 to QTA-06."""

from __future__ import annotations

import pytest

from clusters import metrics
from clusters.interface import Cluster
from harness.kube import KubeClient
from suites.catalogue import Form
from suites.claims import request
from suites.drivers import DeviceClass, Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal
from suites.marks import both_forms, exclusive, needs_nodes, requirement
from suites.naming import Names
from suites.quotas import (
    CLAIM_COUNT,
    Quotas,
    by_class,
    by_explicit_name,
    by_implicit_name,
    refusal,
)
from suites.workload import Container, Workloads, pod_manifest

_CREATES = (
    "dynamic_resource_allocation_resourceclaim_creates_total",
    "scheduler_resourceclaim_creates_total",
)


@requirement("QTA-02")
@both_forms
def test_a_special_claim_is_charged_like_any_other(
    form: Form, drivers: Drivers, workloads: Workloads, kube: KubeClient, evidence: Observations
) -> None:
    """It counts as one claim and for its devices, beside a user's claim, and is given back with the pod."""
    device_class = drivers.device_class(drivers.start(devices=2))
    quotas = Quotas(kube, workloads.namespace)
    quotas.create({CLAIM_COUNT: 9, by_class(device_class): 5})
    quotas.wait_enforced(device_class, by_class(device_class))

    workloads.run(pod_manifest("pod", [Container(resources={device_class.resource(form): 2})]))
    with_pod = quotas.used()
    quotas.claim("user", request("device", device_class, count=3))
    with_both = quotas.used()
    words = refusal(
        lambda: quotas.claim("more", request("device", device_class)),
        f"{by_class(device_class)}=1",
    )
    recounted = quotas.recount()
    workloads.delete("pod")

    evidence("charged with the pod", with_pod)
    evidence("charged with a user's claim as well", with_both)
    evidence("a further device", words)
    expect_equal("charged with the pod", with_pod, {CLAIM_COUNT: 1, by_class(device_class): 2})
    expect_equal("charged with both", with_both, {CLAIM_COUNT: 2, by_class(device_class): 5})
    expect_equal("the quota controller counts the same", recounted, with_both)
    quotas.wait_used({CLAIM_COUNT: 1, by_class(device_class): 3})


class Mixed:
    """One extended resource name: node 0 serves it through a device plugin, node 1 through DRA."""

    def __init__(self, cluster: Cluster, drivers: Drivers, names: Names, workloads: Workloads) -> None:
        self._plugin_node, self._dra_node = cluster.nodes[:2]
        self._workloads = workloads
        resource = names.extended_resource()
        drivers.start_device_plugin(resource, {self._plugin_node.name: 2})
        driver = drivers.start(devices=4, nodes=[self._dra_node])
        self.device_class: DeviceClass = drivers.device_class(driver, extended_resource=resource)
        self.quotas = Quotas(workloads.kube, workloads.namespace)

    def run_on_plugin(self, name: str, devices: int) -> None:
        """Run a pod whose devices come from the device plugin."""
        resource = self.device_class.resource(Form.EXPLICIT)
        manifest = pod_manifest(name, [Container(resources={resource: devices})], node=self._plugin_node.name)
        pod = self._workloads.run(manifest)
        expect(
            "the device plugin serves the pod",
            "extendedResourceClaimStatus" not in pod["status"],
            pod["status"],
        )

    def run_on_dra(self, name: str, *forms: Form) -> None:
        """Run a pod with one DRA device for each of the forms, in one container."""
        resources = {self.device_class.resource(form): 1 for form in forms}
        manifest = pod_manifest(name, [Container(resources=resources)], node=self._dra_node.name)
        pod = self._workloads.run(manifest)
        expect("DRA serves the pod", "extendedResourceClaimStatus" in pod["status"], pod["status"])


@pytest.fixture
def mixed(cluster: Cluster, drivers: Drivers, names: Names, workloads: Workloads) -> Mixed:
    """A name that both a device plugin and DRA serve."""
    return Mixed(cluster, drivers, names, workloads)


@requirement("QTA-03")
@needs_nodes(2)
def test_the_explicit_name_covers_everything(
    mixed: Mixed, workloads: Workloads, evidence: Observations
) -> None:
    """Device-plugin pods, DRA pods and claims add up; a pod and its special claim count once."""
    entry = by_explicit_name(mixed.device_class)
    mixed.quotas.create({entry: 7})
    mixed.quotas.wait_enforced(mixed.device_class, entry)
    charged: dict[str, int] = {}

    def note(step: str) -> None:
        charged[step] = mixed.quotas.used()[entry]

    mixed.run_on_plugin("plugin", 2)
    note("pod of the device plugin, 2 devices")
    mixed.run_on_dra("explicit", Form.EXPLICIT)
    note("pod of DRA, 1 device by the explicit name")
    mixed.run_on_dra("both", Form.EXPLICIT, Form.IMPLICIT)
    note("pod of DRA, 1 device by each name")
    mixed.quotas.claim("user", request("device", mixed.device_class, count=2))
    note("claim of 2 devices")

    evidence("charged after each step", charged)
    expect_equal("charged after each step", list(charged.values()), [2, 3, 5, 7])
    expect_equal("the quota controller counts the same", mixed.quotas.recount(), {entry: 7})
    resource = mixed.device_class.resource(Form.EXPLICIT)
    pod = pod_manifest("beyond", [Container(resources={resource: 1})])
    evidence(
        "a further pod", refusal(lambda: workloads.create(pod), f"requested: {entry}=1, used: {entry}=7")
    )
    evidence(
        "a further claim",
        refusal(
            lambda: mixed.quotas.claim("beyond", request("device", mixed.device_class)),
            f"requested: {entry}=1, used: {entry}=7",
        ),
    )


@requirement("QTA-04")
@needs_nodes(2)
def test_the_implicit_name_covers_dra_alone(
    mixed: Mixed, workloads: Workloads, evidence: Observations
) -> None:
    """What a device plugin hands out is not charged; what DRA does is, by whichever name or claim."""
    entry = by_implicit_name(mixed.device_class)
    mixed.quotas.create({entry: 4})
    mixed.quotas.wait_enforced(mixed.device_class, entry)
    charged: dict[str, int] = {}

    def note(step: str) -> None:
        charged[step] = mixed.quotas.used()[entry]

    mixed.run_on_plugin("plugin", 2)
    note("pod of the device plugin, 2 devices")
    mixed.run_on_dra("explicit", Form.EXPLICIT)
    note("pod of DRA, 1 device by the explicit name")
    mixed.run_on_dra("implicit", Form.IMPLICIT)
    note("pod of DRA, 1 device by the implicit name")
    mixed.quotas.claim("user", request("device", mixed.device_class, count=2))
    note("claim of 2 devices")

    evidence("charged after each step", charged)
    expect_equal("charged after each step", list(charged.values()), [0, 1, 2, 4])
    expect_equal("the quota controller counts the same", mixed.quotas.recount(), {entry: 4})
    resource = mixed.device_class.resource(Form.IMPLICIT)
    pod = pod_manifest("beyond", [Container(resources={resource: 1})])
    words = refusal(lambda: workloads.create(pod), f"requested: {entry}=1, used: {entry}=4")
    evidence("a further pod", words)


@requirement("QTA-05")
@needs_nodes(2)
def test_the_worked_example(mixed: Mixed, evidence: Observations) -> None:
    """A plugin pod, a DRA pod by each name, one device each, and a claim of two: 5, 4 and 4 are used."""
    device_class = mixed.device_class
    entries = {
        by_explicit_name(device_class): 5,
        by_implicit_name(device_class): 4,
        by_class(device_class): 4,
    }
    mixed.quotas.create(dict.fromkeys(entries, 10))
    mixed.quotas.wait_enforced(device_class, *entries)

    mixed.run_on_plugin("plugin", 1)
    mixed.run_on_dra("explicit", Form.EXPLICIT)
    mixed.run_on_dra("implicit", Form.IMPLICIT)
    mixed.quotas.claim("user", request("device", device_class, count=2))

    used, recounted = mixed.quotas.used(), mixed.quotas.recount()
    evidence("used", used)
    evidence("counted afresh by the quota controller", recounted)
    expect_equal("used", used, entries)
    expect_equal("the quota controller counts the same", recounted, entries)


def _pod_within_its_own_quota(
    form: Form, device_class: DeviceClass, quotas: Quotas, workloads: Workloads
) -> str:
    """Create a pod that its quota has room for while a user's claim has taken the class's.

    Returns:
        What the scheduler says about the special claim.
    """
    resource = device_class.resource(form)
    quotas.create({f"requests.{resource}": 9, by_class(device_class): 1})
    quotas.wait_enforced(device_class, by_class(device_class))
    quotas.claim("user", request("device", device_class))
    workloads.create(pod_manifest("pod", [Container(resources={resource: 1})]))
    return workloads.wait_event("pod", "create claim for extended resources")


@requirement("QTA-06")
@both_forms
def test_a_pod_waits_for_the_quota_of_its_claim(
    form: Form, drivers: Drivers, workloads: Workloads, kube: KubeClient, evidence: Observations
) -> None:
    """The pod is accepted and stays Pending, its event names the quota, and it runs once that is raised."""
    device_class = drivers.device_class(drivers.start(devices=2))
    quotas = Quotas(kube, workloads.namespace)

    words = _pod_within_its_own_quota(form, device_class, quotas, workloads)

    evidence("what the scheduler says", words)
    entry = by_class(device_class)
    expect("the reason is FailedScheduling", words.startswith("FailedScheduling: "), words)
    quota = f"exceeded quota: quota, requested: {entry}=1, used: {entry}=1, limited: {entry}=1"
    expect(f"the event says {quota!r}", quota in words, words)
    pod = workloads.get("pod")
    expect("the pod is not placed", "nodeName" not in pod["spec"], pod["spec"].get("nodeName"))
    expect_equal("phase", pod["status"]["phase"], "Pending")
    claims = [claim["metadata"]["name"] for claim in workloads.claims()]
    expect_equal("claims, none of them a special one", claims, ["user"])
    quotas.change({entry: 2})
    workloads.wait_running("pod")
    evidence("charged once the pod runs", quotas.used())
    expect_equal("charged to the class once the pod runs", quotas.used()[entry], 2)


@requirement("QTA-06")
@exclusive
def test_failed_creations_of_claims_are_counted(
    cluster: Cluster, drivers: Drivers, workloads: Workloads, kube: KubeClient, evidence: Observations
) -> None:
    """The scheduler counts the creations that quota refuses as failures, and the one that goes through.

    Its counters are for the whole cluster, so this runs alone.
    """
    device_class = drivers.device_class(drivers.start(devices=2))
    quotas = Quotas(kube, workloads.namespace)

    def creates(status: str) -> float:
        samples = metrics.read(cluster, kube, metrics.SCHEDULER)
        return metrics.total(samples, *_CREATES, status=status)

    failed, succeeded = creates("failure"), creates("success")

    _pod_within_its_own_quota(Form.EXPLICIT, device_class, quotas, workloads)

    failures = creates("failure") - failed
    evidence("failures counted while the quota is used up", failures)
    expect("failures are counted", failures >= 1, failures)
    expect_equal("successes before there is quota", creates("success") - succeeded, 0)
    quotas.change({by_class(device_class): 2})
    workloads.wait_running("pod")
    successes = creates("success") - succeeded
    evidence("successes counted afterwards", successes)
    expect_equal("successes once there is quota", successes, 1)
