"""Whether a pod gets the devices of one that matters less: COR-04."""

from __future__ import annotations

from clusters.interface import Cluster
from harness.kube import PODS
from harness.waiting import NotYet, wait_until
from suites import kinds
from suites.claims import NO_FIT, allocated_to, create_claim, create_pod, pod_with_claim
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal
from suites.marks import requirement
from suites.workload import Workloads

_PRIORITY_CLASS = "system-cluster-critical"
"""Every cluster has it, so the check makes none of its own."""
_DECIDED_SECONDS = 60.0


@requirement("COR-04")
def test_a_device_and_a_pod_of_higher_priority(
    cluster: Cluster, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Records whether the pod that holds the only device has to go; no pod runs without its device.

    The scheduler says of a pod that waits whether it looked for others to preempt.
    """
    gpus = kinds.start(drivers, cluster.nodes[:1], gpu=1)
    create_pod(workloads, "low", [gpus.of("gpu")])
    workloads.wait_running("low")

    create_claim(workloads, "high", [gpus.of("gpu")])
    workloads.create(pod_with_claim("high", priorityClassName=_PRIORITY_CLASS))
    word = _scheduler_word(workloads)
    preempted = _is_leaving(workloads, "low")

    evidence("what the scheduler says to the pod of higher priority", word)
    evidence("the pod of lower priority is preempted", preempted)
    if not preempted:
        expect_equal("device of the pod of higher priority", allocated_to(workloads, "high"), [])
        expect_equal("device of the pod that was there", allocated_to(workloads, "low"), ["gpu-0"])
        expect("the pod of higher priority waits for a device", NO_FIT in word, word)
        workloads.delete("low")
    workloads.wait_running("high")
    evidence("once the other pod is gone", allocated_to(workloads, "high"))
    expect_equal("device of the pod of higher priority", allocated_to(workloads, "high"), ["gpu-0"])


def _scheduler_word(workloads: Workloads) -> str:
    """What the scheduler says to the pod of higher priority: where it is placed, or why it isn't."""

    def said() -> str:
        pod = workloads.get("high")
        conditions = {each["type"]: each for each in pod["status"].get("conditions", ())}
        if node := pod["spec"].get("nodeName"):
            return f"placed on {node}"
        if message := conditions.get("PodScheduled", {}).get("message"):
            return str(message)
        raise NotYet(pod["status"])

    return wait_until(said, _DECIDED_SECONDS, "the scheduler's word on pod high")


def _is_leaving(workloads: Workloads, name: str) -> bool:
    pod = workloads.kube.find(PODS, name, workloads.namespace)
    return pod is None or "deletionTimestamp" in pod["metadata"] or pod["status"]["phase"] == "Failed"
