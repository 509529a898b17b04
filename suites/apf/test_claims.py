"""Others than the scheduler are held up: the controller of claims (APF-05), kubelet and driver (APF-06)."""

from __future__ import annotations

import pytest

from clusters import metrics
from clusters.interface import Cluster
from harness.kube import KubeClient
from harness.waiting import wait_until
from suites.apf.squeeze import Squeeze, claim_controller, driver, kubelet
from suites.catalogue import Form
from suites.claims import create_template, pod_with_claim, request
from suites.devices import allocated, given
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal
from suites.marks import exclusive, requirement
from suites.workload import Container, Workloads, owner_names, pod_manifest

_REJECTED = "too many requests"
# A kubelet that is ahead of the Node authorizer is refused the claim at first, which is no news here.
_DRIVER_FAILED = "NodePrepareResources failed for ResourceClaim"
# The kubelet tries again after its client's ten attempts and a pause of some ten seconds.
_RETRY_SECONDS = 120.0


@requirement("APF-05")
@exclusive
def test_claims_of_templates_come_late_but_come(
    cluster: Cluster,
    squeeze: Squeeze,
    drivers: Drivers,
    workloads: Workloads,
    kube: KubeClient,
    evidence: Observations,
) -> None:
    """Each pod has an event that says why it has no claim, the controller tries again, and all claims come.

    The controller's counter of retries is for the whole cluster, so this runs alone.
    """
    device_class = drivers.device_class(drivers.start(devices=3))
    create_template(workloads, "template", [request("device", device_class)])
    names = [f"pod-{index}" for index in range(3)]

    def retries() -> int:
        samples = metrics.read(cluster, kube, metrics.CONTROLLER_MANAGER)
        return int(metrics.total(samples, "workqueue_retries_total", name="resource_claim"))

    before = retries()
    squeeze.start(claim_controller(kube), ["create"])
    for name in names:
        workloads.create(pod_with_claim(name, template="template"))
    words = {name: workloads.wait_event(name, "PodResourceClaim device") for name in names}
    counted = wait_until(lambda: retries() - before, 30, "the controller's retries to be counted")

    evidence("events", sorted(set(words.values())))
    evidence("retries of the controller's queue", counted)
    for each in words.values():
        expect("the reason is right", each.startswith("FailedResourceClaimCreation: "), each)
        expect(f"the event says {_REJECTED!r}", _REJECTED in each, each)
    expect_equal("claims meanwhile", workloads.claims(), [])
    squeeze.stop()
    for name in names:
        workloads.wait_running(name)
    claims = workloads.claims()
    evidence("claims afterwards", {claim["metadata"]["name"]: allocated(claim) for claim in claims})
    owners = sorted(owner for claim in claims for owner in owner_names(claim))
    expect_equal("owners of the claims, one for each pod", owners, names)


@requirement("APF-06")
@pytest.mark.parametrize("reader", ["kubelet", "driver"])
def test_throttled_reads_delay_a_pod(
    reader: str,
    cluster: Cluster,
    squeeze: Squeeze,
    drivers: Drivers,
    workloads: Workloads,
    kube: KubeClient,
    evidence: Observations,
) -> None:
    """While the claim can't be read the pod waits on its node; then preparing is tried again and it runs."""
    node = cluster.nodes[0]
    hosted = drivers.start(nodes=[node])
    resource = drivers.device_class(hosted).resource(Form.EXPLICIT)
    squeeze.start(kubelet(kube, node.name) if reader == "kubelet" else driver(cluster), ["get"])

    workloads.create(pod_manifest("pod", [Container(resources={resource: 1})]))
    words = workloads.wait_event("pod", _REJECTED if reader == "kubelet" else _DRIVER_FAILED)
    waiting, rejections = workloads.get("pod"), squeeze.rejections()
    squeeze.stop()
    workloads.wait_running("pod", _RETRY_SECONDS)

    claim = workloads.special_claim("pod")
    calls = [
        call
        for call in hosted.client.calls(claim_uid=claim["metadata"]["uid"])
        if call.method == "NodePrepareResources"
    ]
    evidence("event", words)
    evidence("reads rejected", rejections)
    evidence("calls to the driver", [(call.method, call.error) for call in calls])
    expect(f"the {reader}'s reads are rejected", rejections > 0, rejections)
    expect_equal("node of the waiting pod", waiting["spec"].get("nodeName"), node.name)
    expect_equal("phase of the waiting pod", waiting["status"]["phase"], "Pending")
    expect_equal("devices in the container", given(workloads.report("pod")), allocated(claim))
    if reader == "kubelet":
        expect(f"the event says {_REJECTED!r}", _REJECTED in words, words)
        expect_equal("calls, none before the kubelet could read the claim", len(calls), 1)
    else:
        expect("the driver is asked again", len(calls) >= 2, len(calls))
