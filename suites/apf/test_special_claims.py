"""The scheduler can't write special claims: APF-01 to APF-04, and what default limits do: APF-07."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import pytest

from clusters import metrics
from clusters.driver_host import HostedDriver
from clusters.interface import Cluster
from harness.errors import RequirementFailed
from harness.kube import KubeClient, Object
from harness.waiting import NotYet, WaitTimeout, wait_until
from suites.apf.squeeze import MAX_ATTEMPTS, Squeeze, scheduler
from suites.catalogue import Form
from suites.devices import allocated, given
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal, field, symptom
from suites.marks import deviation, exclusive, needs_nodes, requirement
from suites.naming import Names
from suites.workload import Container, Workloads, pod_manifest

_REJECTED = "too many requests"
_REQUEUE = "KEP-5004 requeue after a failed PreBind"
_CREATES = (
    "dynamic_resource_allocation_resourceclaim_creates_total",
    "scheduler_resourceclaim_creates_total",
)
_BURST_PODS = 8
# A rejected request is repeated ten times, a second apart, and so is what takes the failed attempt back.
_GIVES_UP_SECONDS = 90.0
# Far above the scheduler's backoff, and far below the five minutes after which it tries any pod again.
_TRIED_AGAIN_SECONDS = 60.0
# Thrice the longest backoff, for a check that runs alone.
_BACKOFF_IS_OVER_SECONDS = 30.0
_TAKEN_BACK = "deletion of ResourceClaim completed"
_LOOKS = 5
_LOOK_SECONDS = 20.0


@requirement("APF-01")
def test_a_pod_without_its_claim_is_not_bound(
    squeeze: Squeeze, drivers: Drivers, workloads: Workloads, kube: KubeClient, evidence: Observations
) -> None:
    """While its claim is rejected the pod stays Pending, for that reason; afterwards it is bound and runs.

    A pod that needs no claim is not held up meanwhile.
    """
    device_class = drivers.device_class(drivers.start())
    squeeze.start(scheduler(kube), ["create"])

    workloads.create(pod_manifest("pod", [Container(resources={device_class.resource(Form.EXPLICIT): 1})]))
    workloads.run(pod_manifest("bystander", [Container()]))
    words = workloads.wait_event("pod", "create claim for extended resources")

    evidence("what the scheduler says", words)
    pod = workloads.get("pod")
    expect("the reason is FailedScheduling", words.startswith("FailedScheduling: "), words)
    expect(f"the event says {_REJECTED!r}", _REJECTED in words, words)
    expect("the pod is not bound", "nodeName" not in pod["spec"], pod["spec"].get("nodeName"))
    expect_equal("phase", pod["status"]["phase"], "Pending")
    expect_equal("claims meanwhile", workloads.claims(), [])
    squeeze.stop()
    workloads.wait_running("pod", _TRIED_AGAIN_SECONDS)
    claim = workloads.special_claim("pod")
    evidence("devices once the limits are back", allocated(claim))
    expect_equal("devices in the container", given(workloads.report("pod")), allocated(claim))


@requirement("APF-02", "APF-04")
@exclusive
def test_rejections_and_failures_are_counted(
    cluster: Cluster,
    squeeze: Squeeze,
    drivers: Drivers,
    workloads: Workloads,
    kube: KubeClient,
    evidence: Observations,
) -> None:
    """Failures grow while creations are rejected, a success comes after, and both sides' counts agree.

    The scheduler counts one failure for up to eleven requests that the API server rejected. Its counters are
    for the whole cluster, so this runs alone.
    """
    device_class = drivers.device_class(drivers.start())

    def creates(status: str) -> int:
        samples = metrics.read(cluster, kube, metrics.SCHEDULER)
        return int(metrics.total(samples, *_CREATES, status=status))

    failed, succeeded = creates("failure"), creates("success")
    squeeze.start(scheduler(kube), ["create"])
    workloads.create(pod_manifest("pod", [Container(resources={device_class.resource(Form.EXPLICIT): 1})]))
    workloads.wait_event("pod", "create claim for extended resources")

    failures, rejections = creates("failure") - failed, squeeze.rejections()
    evidence("failures that the scheduler counts", failures)
    evidence("requests that the API server rejected", rejections)
    expect_equal("successes while all is rejected", creates("success") - succeeded, 0)
    expect("failures are counted", failures >= 1, failures)
    # Besides the failures there may be an attempt under way.
    most = MAX_ATTEMPTS * (failures + 1)
    expect("the client repeats a request before it gives up", failures < rejections <= most, rejections)
    squeeze.stop()
    workloads.wait_running("pod")
    successes = creates("success") - succeeded
    evidence("successes afterwards", successes)
    expect_equal("successes once the limits are back", successes, 1)


class Storm:
    """Two pods that the scheduler can't bind, because each request of one kind is rejected.

    Eleven times, until its client gives up; with more pods, the API server asks clients to wait longer.
    Storms at the rate of a large cluster take the load engine.
    """

    pods = ("pod-0", "pod-1")

    def __init__(
        self, squeeze: Squeeze, drivers: Drivers, workloads: Workloads, evidence: Observations
    ) -> None:
        self._squeeze = squeeze
        self._drivers = drivers
        self._workloads = workloads
        self._evidence = evidence
        self._driver: HostedDriver = drivers.start(devices=len(self.pods))
        self._resource = drivers.device_class(self._driver).resource(Form.EXPLICIT)
        self._news = 0

    def pass_over(self, verb: str, resource: str, text: str) -> None:
        """Create the pods, wait until the scheduler has failed for each, saying `text`, and end the storm."""
        self._squeeze.start(scheduler(self._workloads.kube), [verb], [resource])
        for name in self.pods:
            self._workloads.create(pod_manifest(name, [Container(resources={self._resource: 1})]))
        words = [self._workloads.wait_event(name, text, deadline=_GIVES_UP_SECONDS) for name in self.pods]
        bound = [name for name in self.pods if "nodeName" in self._workloads.get(name)["spec"]]
        self._evidence("what the scheduler says", words)
        self._evidence("requests rejected", self._squeeze.rejections())
        self._evidence("claims during the storm", len(self._workloads.claims()))
        for each in words:
            expect(f"the event says {_REJECTED!r}", _REJECTED in each, each)
        expect_equal("pods bound without an allocated claim", bound, [])
        self._squeeze.stop()

    def wait_taken_back(self) -> None:
        """Wait until the scheduler has deleted the claim that was left over of each pod.

        It looks at them at once, but where the end of the storm caught that, it takes news to look again.
        """
        for name in self.pods:
            for _ in range(_LOOKS):
                with contextlib.suppress(WaitTimeout):
                    self._workloads.wait_event(name, _TAKEN_BACK, deadline=_LOOK_SECONDS)
                    break
                self.wake_pods()
            else:
                self._workloads.wait_event(name, _TAKEN_BACK, deadline=_LOOK_SECONDS)

    def wake_pods(self) -> None:
        """Make the scheduler look at the pods again."""
        self._news += 1
        self._drivers.device_class(self._driver, suffix=f"news-{self._news}")

    def wait_running(self, seconds: float = _TRIED_AGAIN_SECONDS) -> list[Object]:
        """Wait until the pods run."""
        return [self._workloads.wait_running(name, seconds) for name in self.pods]


@pytest.fixture
def storm(squeeze: Squeeze, drivers: Drivers, workloads: Workloads, evidence: Observations) -> Storm:
    """Pods whose scheduling fails, and what may come after."""
    return Storm(squeeze, drivers, workloads, evidence)


@requirement("APF-03")
@pytest.mark.parametrize("rejected", ["creation", "update", "allocation"])
def test_the_books_balance_after_a_storm(
    rejected: str, storm: Storm, workloads: Workloads, evidence: Observations
) -> None:
    """Whichever write of the scheduler is rejected, in the end each pod has one claim that is its own.

    The scheduler takes back a claim that it can't complete. Where updates are rejected it can't do even that,
    and claims are left over.
    """
    if rejected == "creation":
        storm.pass_over("create", "resourceclaims", "create claim for extended resources")
    elif rejected == "allocation":
        storm.pass_over("update", "resourceclaims/status", "add allocation and reservation to claim")
    else:
        storm.pass_over("update", "resourceclaims", "add finalizer to claim")
        storm.wait_taken_back()
        storm.wake_pods()

    pods = storm.wait_running()
    claims = _settled_claims(workloads, len(pods))

    evidence("claims afterwards", {name: allocated(claim) for name, claim in claims.items()})
    _assert_balanced(pods, claims)


@requirement("APF-03")
@deviation(_REQUEUE)
@exclusive
def test_pods_are_tried_again_once_left_over_claims_are_gone(storm: Storm, workloads: Workloads) -> None:
    """The scheduler deletes a claim that was left over and then tries its pod again, without other news.

    It runs alone, because other checks make the news that has the scheduler look at all pods.
    """
    storm.pass_over("update", "resourceclaims", "add finalizer to claim")
    storm.wait_taken_back()

    with symptom(_REQUEUE, _TAKEN_BACK):
        storm.wait_running(_BACKOFF_IS_OVER_SECONDS)


def _settled_claims(workloads: Workloads, expected: int) -> dict[str, Object]:
    def settled() -> dict[str, Object]:
        claims = {claim["metadata"]["name"]: claim for claim in workloads.claims()}
        if len(claims) != expected:
            raise NotYet(sorted(claims))
        return claims

    return wait_until(settled, 60, f"{expected} claims, one per pod")


def _assert_balanced(pods: Sequence[Object], claims: dict[str, Object]) -> None:
    held = []
    for pod in pods:
        uid = pod["metadata"]["uid"]
        own = [claim for claim in claims.values() if claim["metadata"]["ownerReferences"][0]["uid"] == uid]
        if len(own) != 1:
            raise RequirementFailed("one special claim per pod", f"{len(own)} are owned by it", pod)
        (claim,) = own
        named = field(pod, "status", "extendedResourceClaimStatus", "resourceClaimName")
        expect_equal("the claim that the pod's status names", named, claim["metadata"]["name"])
        users = [user["uid"] for user in field(claim, "status", "reservedFor")]
        expect_equal("pods that the claim is reserved for", users, [uid])
        results = field(claim, "status", "allocation", "devices", "results")
        held += [(result["pool"], result["device"]) for result in results]
    expect("each pod has a device of its own", len(held) == len(set(held)) == len(pods), held)


@requirement("APF-07")
@exclusive
@needs_nodes(2)
def test_default_limits_reject_nothing(
    cluster: Cluster,
    names: Names,
    drivers: Drivers,
    workloads: Workloads,
    kube: KubeClient,
    evidence: Observations,
) -> None:
    """A burst of pods through DRA: no request is rejected by whatever schema, and no claim fails.

    Eight pods, and as many through a device plugin: the scheduler's latency of both is recorded, not judged.
    Rated pod rates and latencies that can be compared take the load engine.
    """
    plugin_node, dra_node = cluster.nodes[:2]
    resource = names.extended_resource()
    drivers.start_device_plugin(resource, {plugin_node.name: _BURST_PODS})
    driver = drivers.start(devices=_BURST_PODS, nodes=[dra_node])
    drivers.device_class(driver, extended_resource=resource)

    def rejected() -> int:
        samples = metrics.read(cluster, kube, metrics.APISERVER)
        return int(metrics.total(samples, "apiserver_flowcontrol_rejected_requests_total"))

    def burst(kind: str, node: str) -> float:
        before = _scheduling_latency(cluster, kube)
        pods = [f"{kind}-{index}" for index in range(_BURST_PODS)]
        for pod in pods:
            workloads.create(pod_manifest(pod, [Container(resources={resource: 1})], node=node))
        for pod in pods:
            workloads.wait_running(pod)
        after = _scheduling_latency(cluster, kube)
        return (after[0] - before[0]) / (after[1] - before[1])

    before = rejected()
    failed = metrics.total(metrics.read(cluster, kube, metrics.SCHEDULER), *_CREATES, status="failure")
    latencies = {
        "device plugin": burst("plugin", plugin_node.name),
        "DRA": burst("dra", dra_node.name),
    }
    failures = metrics.total(metrics.read(cluster, kube, metrics.SCHEDULER), *_CREATES, status="failure")

    evidence("requests rejected", rejected() - before)
    evidence("mean scheduling latency, seconds", latencies)
    expect_equal("claims", len(workloads.claims()), _BURST_PODS)
    expect_equal("requests rejected", rejected() - before, 0)
    expect_equal("claims that could not be created", failures - failed, 0)


def _scheduling_latency(cluster: Cluster, kube: KubeClient) -> tuple[float, float]:
    """The sum in seconds and the count of the scheduler's service level indicator."""
    samples = metrics.read(cluster, kube, metrics.SCHEDULER)
    stem = "scheduler_pod_scheduling_sli_duration_seconds"
    return metrics.total(samples, f"{stem}_sum"), metrics.total(samples, f"{stem}_count")
