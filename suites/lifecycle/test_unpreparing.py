"""What has to be undone once a pod ends: LIF-02, LIF-04 and LIF-13."""

from __future__ import annotations

import uuid

import pytest

from harness.kube import PODS, RESOURCE_CLAIMS, Object
from suites import calls
from suites.claims import claim_manifest, get_claim, request, wait_claim_gone
from suites.devices import allocated, given
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal
from suites.kubelet import Kubelet
from suites.lifecycle.rig import Bench, expect_not_started
from suites.marks import requirement
from suites.workload import Workloads

_WORDS = "not yet, says the check"
_SUCCESSOR_SECONDS = 90.0
"""The kubelet's reconciliation of claims, which tries again at the latest, is due every 60 s."""


@requirement("LIF-02")
def test_what_was_prepared_is_undone(drivers: Drivers, workloads: Workloads, evidence: Observations) -> None:
    """After unpreparing no CDI spec is left, and another claim can have the device."""
    bench = Bench(drivers, workloads)
    claim, successor = bench.allocated_claim("a-claim"), bench.allocated_claim("successor")

    with Kubelet(bench.driver, bench.node) as kubelet:
        kubelet.prepare(claim)
        specs = bench.cdi_specs()
        kubelet.unprepare(claim)
        left = bench.cdi_specs()
        devices = [device.name for device in kubelet.prepare(successor)]
        kubelet.unprepare(successor)

    evidence("CDI specs while it was prepared", specs)
    expect("a prepared claim has a CDI spec", specs, specs)
    expect_equal("CDI specs once it was unprepared", left, [])
    expect_equal("devices of the next claim", devices, ["gpu-0"], successor)


@requirement("LIF-02")
@pytest.mark.parametrize("claim_is", ["unprepared", "deleted", "unknown"])
def test_unpreparing_succeeds_whatever_the_claim_is(
    claim_is: str, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Unprepare a claim once more, one whose object is gone, and one that the driver has never seen."""
    bench = Bench(drivers, workloads)
    claim = bench.allocated_claim("a-claim")

    with Kubelet(bench.driver, bench.node) as kubelet:
        kubelet.prepare(claim)
        if claim_is == "unprepared":
            kubelet.unprepare(claim)
        elif claim_is == "deleted":
            workloads.kube.delete(RESOURCE_CLAIMS, "a-claim", workloads.namespace)
            wait_claim_gone(workloads, claim)
        else:
            kubelet.unprepare(_never_seen(bench, workloads))
        kubelet.unprepare(claim)

    ended = calls.wait_ended(bench.driver, calls.UNPREPARE, claim)[-1]
    evidence("the driver's answer", ended.response)
    expect_equal("CDI specs in the end", bench.cdi_specs(), [])


def _never_seen(bench: Bench, workloads: Workloads) -> Object:
    requests = [request("device", bench.device_class)]
    return claim_manifest("never-seen", requests, namespace=workloads.namespace, uid=str(uuid.uuid4()))


@requirement("LIF-04")
@pytest.mark.parametrize("scope", ["claim", "call"])
def test_a_pod_stays_until_its_claim_is_unprepared(
    scope: str, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Unpreparing fails and is tried again: the pod stays Terminating, with its device, until it succeeds."""
    bench = Bench(drivers, workloads)
    claim = bench.run("pod")
    kind = "claim-error" if scope == "claim" else "error"

    with calls.fault(bench.driver, calls.UNPREPARE, kind, message=_WORDS):
        workloads.kube.delete(PODS, "pod", workloads.namespace)
        failed = calls.wait_ended(bench.driver, calls.UNPREPARE, claim, 2)
        pod = workloads.kube.find(PODS, "pod", workloads.namespace)
        meanwhile = get_claim(workloads, "pod")
    workloads.wait_gone("pod")

    evidence("answers while it failed", [calls.error_of(call, claim) for call in failed])
    last = calls.about(bench.driver, calls.UNPREPARE, claim)[-1]
    terminating = pod is not None and "deletionTimestamp" in pod["metadata"]
    expect("the pod is Terminating while its claim is prepared", terminating, pod and pod["metadata"])
    expect_equal("devices of the claim meanwhile", allocated(meanwhile), ["gpu-0"], meanwhile)
    reserved = [each["name"] for each in meanwhile["status"].get("reservedFor", ())]
    expect_equal("pods that the claim is reserved for meanwhile", reserved, ["pod"], meanwhile)
    expect_equal("the driver's last word", calls.error_of(last, claim), "")


@requirement("LIF-13")
@pytest.mark.parametrize("successor", ["pod", "next"])
def test_a_successor_waits_for_a_pod_deleted_by_force(
    successor: str, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Pod and claim are gone, unpreparing fails: whoever gets the device waits, also under the same names."""
    bench = Bench(drivers, workloads)
    old = bench.run("pod")
    reasons = {
        "pod": f"different UID {old['metadata']['uid']} still exists",  # said by the kubelet
        "next": "NodePrepareResources failed for ResourceClaim next",  # because the driver refuses
    }

    with calls.fault(bench.driver, calls.UNPREPARE, "claim-error", message=_WORDS):
        workloads.kube.delete(PODS, "pod", workloads.namespace, grace_seconds=0)
        workloads.wait_gone("pod", 10)
        workloads.kube.delete(RESOURCE_CLAIMS, "pod", workloads.namespace)
        wait_claim_gone(workloads, old)
        claim = bench.create(successor)
        event = workloads.wait_event(successor, reasons[successor], deadline=_SUCCESSOR_SECONDS)
        expect_not_started(workloads, successor)
    workloads.wait_running(successor, _SUCCESSOR_SECONDS)

    unprepared = calls.about(bench.driver, calls.UNPREPARE, old)[-1]
    prepared = calls.about(bench.driver, calls.PREPARE, claim)[-1]
    evidence("why the successor waits", event)
    expect_equal("how the old claim is unprepared in the end", calls.error_of(unprepared, old), "")
    expect("the old claim is unprepared before the new one is prepared", unprepared.seq < prepared.seq, event)
    expect_equal("device of the successor", given(workloads.report(successor)), ["gpu-0"])
