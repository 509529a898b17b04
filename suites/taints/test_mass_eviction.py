"""Many pods at once: TNT-16.

Their node exists only in the API: what is measured is the eviction controller, not kubelets that stop pods.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

import pytest

from clusters import driver_host, metrics
from clusters.interface import Cluster
from harness.errors import RequirementFailed
from harness.kube import NODES, PODS, RESOURCE_SLICES, KubeClient, Object
from harness.waiting import NotYet, wait_until
from suites.claims import create_claim, pod_with_claim, request
from suites.drivers import DeviceClass, Drivers
from suites.evidence import Observations
from suites.expect import expect_equal
from suites.marks import exclusive, requirement
from suites.naming import LABEL, Names
from suites.taints.support import now, taint
from suites.workload import Workloads

_PODS = 100
_DEVICES_IN_A_SLICE = 50
_COUNTER = "device_taint_eviction_controller_pod_deletions_total"
_BUCKETS = "device_taint_eviction_controller_pod_deletion_duration_seconds_bucket"


class Crowd:
    """Pods on a node without a kubelet, each with a device of its own; they end once they are deleted."""

    def __init__(self, drivers: Drivers, kube: KubeClient, names: Names, workloads: Workloads) -> None:
        self._kube = kube
        self._names = names
        self._workloads = workloads
        self._node = names.name("node")
        self._driver = names.driver()
        self._class = DeviceClass(names.name("gpu"))
        drivers.create_class(driver_host.device_class(self._class.name, self._driver))
        self._slices: list[Object] = []

    def gather(self, count: int) -> list[Object]:
        """Create node, slices, claims and pods, and return the pods once all are on the node."""
        self._create_node(count)
        sizes = [min(_DEVICES_IN_A_SLICE, count - start) for start in range(0, count, _DEVICES_IN_A_SLICE)]
        self._slices = [self._create_slice(index, size, len(sizes)) for index, size in enumerate(sizes)]
        for index in range(count):
            self._create_pod(f"pod-{index}")

        def placed() -> list[Object]:
            pods = self._kube.list(PODS, self._workloads.namespace)
            missing = [pod for pod in pods if "nodeName" not in pod["spec"]]
            if missing:
                raise NotYet(f"{len(missing)} are not, the first says {missing[0]['status']}")
            return pods

        return wait_until(placed, 120, f"{count} pods to be on node {self._node}", interval=1)

    def taint_all(self) -> None:
        """Taint every device with NoExecute, slice by slice."""
        for slice_ in self._slices:
            for device in slice_["spec"]["devices"]:
                device["taints"] = [taint("NoExecute")]
            self._kube.replace(RESOURCE_SLICES, slice_)

    def remove(self) -> None:
        """Delete what is there, pods first."""
        for pod in self._kube.list(PODS, self._workloads.namespace):
            self._kube.delete(PODS, pod["metadata"]["name"], self._workloads.namespace, grace_seconds=0)
        for slice_ in self._slices:
            self._kube.delete(RESOURCE_SLICES, slice_["metadata"]["name"])
        self._kube.delete(NODES, self._node)

    def _create_node(self, pods: int) -> None:
        amounts = {"pods": str(pods + 10), "cpu": "64", "memory": "256Gi"}
        ready = {"type": "Ready", "status": "True", "reason": "Check", "message": "made by a check"}
        metadata = {
            "name": self._node,
            "labels": {LABEL: self._names.run_id, "kubernetes.io/hostname": self._node},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        }
        self._kube.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        self._kube.patch(NODES, self._node, {"status": status}, subresource="status")

    def _create_slice(self, index: int, size: int, count: int) -> Object:
        devices = [{"name": f"gpu-{index * _DEVICES_IN_A_SLICE + number}"} for number in range(size)]
        manifest = {
            "apiVersion": RESOURCE_SLICES.api_version,
            "kind": "ResourceSlice",
            "metadata": {"name": self._names.name(f"slice-{index}"), "labels": {LABEL: self._names.run_id}},
            "spec": {
                "driver": self._driver,
                "nodeName": self._node,
                "pool": {"name": self._node, "generation": 1, "resourceSliceCount": count},
                "devices": devices,
            },
        }
        return self._kube.create(RESOURCE_SLICES, manifest)

    def _create_pod(self, name: str) -> None:
        create_claim(self._workloads, name, [request("device", self._class)])
        # Nobody confirms the end of a pod on this node, and nobody keeps the node Ready.
        pod = pod_with_claim(
            name,
            node=self._node,
            terminationGracePeriodSeconds=0,
            tolerations=[{"operator": "Exists"}],
        )
        self._workloads.create(pod)


@pytest.fixture
def crowd(drivers: Drivers, kube: KubeClient, names: Names, workloads: Workloads) -> Iterator[Crowd]:
    """Many pods with a device each."""
    made = Crowd(drivers, kube, names, workloads)
    yield made
    made.remove()


@requirement("TNT-16")
@exclusive
def test_many_pods_at_once(
    crowd: Crowd, cluster: Cluster, kube: KubeClient, workloads: Workloads, evidence: Observations
) -> None:
    """100 devices of 100 pods get tainted: the counter grows by 100; the p99 of the deletions is recorded.

    Seen from outside, in seconds from the first taint, and by the controller's own histogram, which counts
    from the taint's timeAdded, a whole second. Ten times as many pods take a load run.
    """
    pods = crowd.gather(_PODS)
    before = metrics.read(cluster, kube, metrics.CONTROLLER_MANAGER)

    started = now()
    clock = time.monotonic()
    crowd.taint_all()
    seconds = [at - clock for at in _deletions(kube, workloads.namespace, pods)]

    def counted() -> list[metrics.Sample]:
        samples = metrics.read(cluster, kube, metrics.CONTROLLER_MANAGER)
        if metrics.total(samples, _COUNTER) - metrics.total(before, _COUNTER) < _PODS:
            raise NotYet(metrics.total(samples, _COUNTER))
        return samples

    after = wait_until(counted, 30, f"the counter to grow by {_PODS}", interval=0.5)
    evidence("pods", len(pods))
    evidence("tainted at", str(started))
    evidence("seconds until half and 99 % were deleted, as seen from outside", _percentiles(seconds))
    evidence("p99 by the controller's histogram: at most so many seconds", _p99(before, after))
    expect_equal(
        "growth of the counter of deletions",
        metrics.total(after, _COUNTER) - metrics.total(before, _COUNTER),
        float(_PODS),
    )


def _deletions(
    kube: KubeClient, namespace: str, pods: Sequence[Object], deadline: float = 120
) -> list[float]:
    """When each pod was seen to be gone, in order, on the monotonic clock."""
    left = {pod["metadata"]["uid"] for pod in pods}
    version = str(max(int(pod["metadata"]["resourceVersion"]) for pod in pods))
    times: list[float] = []
    for event in kube.watch(PODS, namespace, resource_version=version, seconds=deadline):
        if event["type"] == "DELETED" and event["object"]["metadata"]["uid"] in left:
            left.remove(event["object"]["metadata"]["uid"])
            times.append(time.monotonic())
        if not left:
            return times
    raise RequirementFailed(
        f"{len(pods)} pods are deleted because of the taint", f"{len(left)} are not after {deadline:g} s"
    )


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        f"p{percent}": round(ordered[math.ceil(len(ordered) * percent / 100) - 1], 3) for percent in (50, 99)
    }


def _p99(before: Sequence[metrics.Sample], after: Sequence[metrics.Sample]) -> float:
    """The upper bound of the bucket in which the 99th percentile of what came between is."""
    bounds = sorted({float(sample.labels["le"]) for sample in after if sample.name == _BUCKETS})
    grown = {bound: _bucket(after, bound) - _bucket(before, bound) for bound in bounds}
    return next(bound for bound in bounds if grown[bound] >= 0.99 * grown[math.inf])


def _bucket(samples: Sequence[metrics.Sample], bound: float) -> float:
    return sum(
        sample.value for sample in samples if sample.name == _BUCKETS and float(sample.labels["le"]) == bound
    )
