"""How many devices a claim gets, and how long it has them: COR-01."""

from __future__ import annotations

from clusters.interface import Cluster
from harness.kube import RESOURCE_CLAIMS, Object
from harness.waiting import NotYet, wait_until
from suites import kinds
from suites.claims import (
    NO_FIT,
    allocated_to,
    create_claim,
    create_pod,
    get_claim,
    pod_with_claim,
    wait_claim_gone,
)
from suites.devices import by_request, given
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal
from suites.marks import requirement
from suites.workload import Workloads

_FINALIZER = "resource.kubernetes.io/delete-protection"
_FREED_SECONDS = 60.0


def _state(claim: Object) -> Object:
    """What of a claim says whether it is allocated, to whom, and whether it can go."""
    return {
        "finalizers": claim["metadata"].get("finalizers", []),
        "allocated": "allocation" in claim.get("status", {}),
        "reserved for": sorted(each["name"] for each in claim.get("status", {}).get("reservedFor", ())),
    }


_FREE: Object = {"finalizers": [], "allocated": False, "reserved for": []}


@requirement("COR-01")
def test_as_many_as_are_asked_for(
    cluster: Cluster, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Requests for three and for one device get exactly that; one for two has to wait while one is left."""
    gpus = kinds.start(drivers, cluster.nodes[:1], gpu=5)

    create_pod(workloads, "pod", [gpus.of("gpu", name="three", count=3), gpus.of("gpu", name="one")])
    workloads.wait_running("pod")
    create_pod(workloads, "pair", [gpus.of("gpu", count=2)])
    refusal = workloads.wait_unschedulable("pair", NO_FIT)

    claim = get_claim(workloads, "pod")
    counts = {name: len(devices) for name, devices in by_request(claim).items()}
    evidence("devices of each request", by_request(claim))
    evidence("devices in the container", given(workloads.report("pod")))
    evidence("what the scheduler says of two more", refusal)
    expect_equal("number of devices of each request", counts, {"three": 3, "one": 1}, claim)
    devices = allocated_to(workloads, "pod")
    expect_equal("different devices", len(set(devices)), 4, claim)
    expect_equal("devices in the container", given(workloads.report("pod")), devices)


@requirement("COR-01")
def test_all_that_match(
    cluster: Cluster, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """A request for all big devices gets these three and no small one, and waits while one is in use."""
    gpus = kinds.start(drivers, cluster.nodes[:1], big=3, small=2)
    create_pod(workloads, "holder", [gpus.of("big")])
    workloads.wait_running("holder")

    create_pod(workloads, "pod", [gpus.of("big", everything=True)])
    refusal = workloads.wait_unschedulable("pod", NO_FIT)
    workloads.delete("holder")
    workloads.wait_running("pod")

    evidence("what the scheduler says while one is in use", refusal)
    evidence("devices allocated", allocated_to(workloads, "pod"))
    every = ["big-0", "big-1", "big-2"]
    expect_equal("devices allocated", allocated_to(workloads, "pod"), every)
    expect_equal("devices in the container", given(workloads.report("pod")), every)


@requirement("COR-01")
def test_a_claim_is_deallocated_after_its_last_pod(
    cluster: Cluster, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Two pods share a claim: it has its device and finalizer until both are gone, and can be used again."""
    gpus = kinds.start(drivers, cluster.nodes[:1], gpu=1)
    before = _state(create_claim(workloads, "shared", [gpus.of("gpu")]))

    states = {}
    for pod in ("one", "two"):
        workloads.run(pod_with_claim(pod, "shared"))
    states["two pods"] = _state(get_claim(workloads, "shared"))
    workloads.delete("one")
    states["one pod"] = _wait_state(workloads, "shared", {"reserved for": ["two"]})
    workloads.delete("two")
    states["none"] = _wait_state(workloads, "shared", _FREE)
    create_pod(workloads, "next", [gpus.of("gpu")])
    workloads.wait_running("next")

    evidence("the claim", {"before": before, **states})
    evidence("device of the next pod, with another claim", allocated_to(workloads, "next"))
    expect_equal("the claim before", before, _FREE)
    held = {"finalizers": [_FINALIZER], "allocated": True}
    expect_equal("the claim with two pods", states["two pods"], held | {"reserved for": ["one", "two"]})
    expect_equal("the claim with one pod", states["one pod"], held | {"reserved for": ["two"]})
    expect_equal("device of the next pod", allocated_to(workloads, "next"), ["gpu-0"])


@requirement("COR-01")
def test_an_allocated_claim_outlives_its_deletion(
    cluster: Cluster, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """A claim that is deleted while a pod uses it stays, with its device, until the pod is gone."""
    gpus = kinds.start(drivers, cluster.nodes[:1], gpu=1)
    create_pod(workloads, "pod", [gpus.of("gpu")])
    workloads.wait_running("pod")

    deleted = get_claim(workloads, "pod")
    workloads.kube.delete(RESOURCE_CLAIMS, "pod", workloads.namespace)
    create_pod(workloads, "waiter", [gpus.of("gpu")])
    refusal = workloads.wait_unschedulable("waiter", NO_FIT)
    claim = workloads.kube.find(RESOURCE_CLAIMS, "pod", workloads.namespace)
    workloads.delete("pod")
    workloads.wait_running("waiter")

    evidence("the deleted claim while its pod runs", claim)
    evidence("what the scheduler says to the next pod", refusal)
    expect("the claim stays while its pod runs", claim and _state(claim)["allocated"], claim)
    expect_equal("device of the next pod", allocated_to(workloads, "waiter"), ["gpu-0"])
    wait_claim_gone(workloads, deleted)


def _wait_state(workloads: Workloads, name: str, wanted: Object) -> Object:
    """Wait until a claim is as wanted, as far as that says."""

    def reached() -> Object:
        state = _state(get_claim(workloads, name))
        if not wanted.items() <= state.items():
            raise NotYet(state)
        return state

    return wait_until(reached, _FREED_SECONDS, f"claim {name} to be {wanted}")
