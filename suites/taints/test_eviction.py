"""Who is deleted because of a taint, and when: TNT-03, TNT-04, TNT-08 and TNT-15."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest
from fake_driver.faults import Fault, FaultKind

from harness.kube import DEPLOYMENTS, PODS, RESOURCE_CLAIMS, Object
from harness.waiting import NotYet, wait_until
from suites.catalogue import Form
from suites.claims import pod_with_claim
from suites.devices import allocated, given
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal, symptom
from suites.marks import deviation, requirement
from suites.taints.support import (
    Bench,
    deleted_at,
    disruption,
    expect_evicted,
    expect_left_alone,
    now,
    taint,
    tolerates,
    wait_evicted,
)
from suites.workload import RUN_SECONDS, Container, Workloads, pod_manifest

_OTHER = {"gpu-0": "gpu-1", "gpu-1": "gpu-0"}
"""Of two devices, the one that is left."""


@requirement("TNT-03")
def test_a_replacement_gets_another_device(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """NoExecute on the device of a deployment's pod: it is deleted, and the next runs on the other device."""
    bench = Bench(drivers, workloads, 2)
    bench.template("device")
    pod = pod_with_claim("pod", template="device", restartPolicy="Always")
    _deploy(workloads, pod["spec"])
    first = _running(workloads, besides="")
    (device,) = given(workloads.report(first["metadata"]["name"]))

    bench.set_taints(int(device.removeprefix("gpu-")), taint("NoExecute"))
    evicted = wait_evicted(workloads, first)
    second = _running(workloads, besides=first["metadata"]["uid"])
    replacement = given(workloads.report(second["metadata"]["name"]))

    evidence("device of the first pod, then tainted", device)
    evidence("condition of the first pod", disruption(evicted))
    evidence("device of its replacement", replacement)
    expect_evicted(evicted)
    expect_equal("device of the replacement", replacement, [_OTHER[device]])


def _deploy(workloads: Workloads, spec: Object) -> None:
    manifest: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "pod"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "pod"}},
            "template": {"metadata": {"labels": {"app": "pod"}}, "spec": spec},
        },
    }
    workloads.kube.create(DEPLOYMENTS, manifest, workloads.namespace)


def _running(workloads: Workloads, besides: str) -> Object:
    def running() -> Object:
        pods = workloads.kube.list(PODS, workloads.namespace, labels="app=pod")
        for pod in pods:
            if pod["metadata"]["uid"] != besides and pod["status"].get("phase") == "Running":
                return pod
        raise NotYet([pod["status"] for pod in pods])

    return wait_until(running, RUN_SECONDS, "a pod of the deployment to run")


@requirement("TNT-03")
@deviation("k/k#141290")
@pytest.mark.parametrize("form", list(Form), ids=str)
def test_extended_resource_pods_are_deleted(
    form: Form, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """A pod that has the device by an extended resource name is deleted as any other."""
    bench = Bench(drivers, workloads, 2)
    resource = bench.device_class.resource(form)
    pod = workloads.run(pod_manifest("pod", [Container(resources={resource: 1})]))
    (device,) = given(workloads.report("pod"))

    bench.set_taints(int(device.removeprefix("gpu-")), taint("NoExecute"))
    with symptom("k/k#141290", "it is not after"):
        evicted = wait_evicted(workloads, pod)
    workloads.wait_gone("pod")
    workloads.run(pod_manifest("next", [Container(resources={resource: 1})]))

    evidence("device of the pod, then tainted", device)
    evidence("condition of the pod", disruption(evicted))
    evidence("device of the next pod", given(workloads.report("next")))
    expect_evicted(evicted)
    expect_equal("device of the next pod", given(workloads.report("next")), [_OTHER[device]])


class Shared:
    """Two pods that share a claim, the last of which can't end: the driver doesn't answer."""

    def __init__(self, drivers: Drivers, workloads: Workloads) -> None:
        self.workloads = workloads
        self.bench = Bench(drivers, workloads, 2)
        self.bench.claim("shared")
        self.pods = [workloads.run(pod_with_claim(name, "shared")) for name in ("one", "two")]
        (self.device,) = self.bench.devices_of("shared")
        fault = Fault(method="NodeUnprepareResources", kind=FaultKind.HANG)
        self._fault = self.bench.driver.client.set_fault(fault)

    def taint(self) -> list[Object]:
        """Taint the device, and return the pods as they are marked for deletion."""
        self.bench.set_taints(int(self.device.removeprefix("gpu-")), taint("NoExecute"))
        return [wait_evicted(self.workloads, pod) for pod in self.pods]

    def claim(self) -> Object:
        """The claim as it is now."""
        return self.workloads.kube.get(RESOURCE_CLAIMS, "shared", self.workloads.namespace)

    def users(self) -> list[str]:
        """The pods that may use the claim."""
        return [each["name"] for each in self.claim()["status"].get("reservedFor", ())]

    def wait_users(self, count: int) -> list[str]:
        """Wait until so many pods may use the claim."""

        def reached() -> list[str]:
            users = self.users()
            if len(users) != count:
                raise NotYet(users)
            return users

        return wait_until(reached, 30, f"{count} pods to be in the claim's reservedFor")

    def release(self) -> None:
        """Let the last pod end."""
        self.bench.driver.client.clear_faults(self._fault)


@pytest.fixture
def shared(drivers: Drivers, workloads: Workloads) -> Iterator[Shared]:
    """A claim of two pods."""
    made = Shared(drivers, workloads)
    yield made
    made.release()


@requirement("TNT-04")
def test_a_shared_claim_is_freed_by_the_last_pod(shared: Shared, evidence: Observations) -> None:
    """Both pods are deleted; the claim keeps its device until the last of them has ended."""
    evicted = shared.taint()
    last = shared.wait_users(1)
    during = allocated(shared.claim())
    shared.release()

    def deallocated() -> bool:
        if allocated(shared.claim()):
            raise NotYet(shared.claim()["status"])
        return True

    wait_until(deallocated, 60, "the claim to be deallocated")
    evidence("conditions of the pods", [disruption(pod) for pod in evicted])
    evidence("while the last pod ends", {"pods of the claim": last, "device": during})
    evidence("afterwards", shared.claim().get("status"))
    expect_evicted(*evicted)
    expect_equal("devices of the claim while its last pod ends", during, [shared.device])
    expect_equal("pods of the claim afterwards", shared.users(), [])


@requirement("TNT-04")
@deviation("KEP-5055 reservation")
def test_no_new_pod_reserves_a_tainted_claim(
    shared: Shared, workloads: Workloads, evidence: Observations
) -> None:
    """While the tainted claim is still allocated the scheduler refuses it to a new pod, which runs later."""
    shared.taint()
    last = shared.wait_users(1)

    workloads.create(pod_with_claim("new", "shared"))
    with symptom("KEP-5055 reservation", "it was placed on"):
        refusal = workloads.wait_unschedulable("new", "")
    users = shared.users()
    shared.release()

    evidence("why the new pod waits", refusal)
    expect_equal("pods of the claim while its last pod ends", users, last)
    workloads.wait_running("new")
    evidence("device of the new pod, once the claim was free", given(workloads.report("new")))
    expect_equal("device of the new pod", given(workloads.report("new")), [_OTHER[shared.device]])


@requirement("TNT-08")
def test_toleration_seconds_delay_the_deletion(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Zero and less is at once, some seconds are so many, and without a number a pod is left alone."""
    seconds = {"zero": 0, "negative": -5, "ten": 10, "unset": None}
    bench = Bench(drivers, workloads, len(seconds))
    pods = {
        name: bench.run(name, tolerates(effect="NoExecute", seconds=amount), slot=slot)
        for slot, (name, amount) in enumerate(seconds.items())
    }

    added = now()
    for slot in range(len(seconds)):
        bench.set_taints(slot, taint("NoExecute", added=added))
    evicted = {name: wait_evicted(workloads, pods[name]) for name in ("zero", "negative", "ten")}

    times = {name: (deleted_at(pod) - added).total_seconds() for name, pod in evicted.items()}
    evidence("tolerationSeconds", seconds)
    evidence("seconds from timeAdded to the deletion", times)
    at_once = max(times["zero"], times["negative"])
    expect("zero and less is at once, ten seconds are ten", at_once < 10 <= times["ten"], times)
    expect_left_alone(workloads, "unset")


@requirement("TNT-08")
def test_toleration_seconds_count_from_time_added(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Of a taint that is an hour old, ten minutes of toleration are over and a day is not."""
    bench = Bench(drivers, workloads, 2)
    bench.run("a-day", tolerates(effect="NoExecute", seconds=24 * 3600), slot=0)
    ten_minutes = bench.run("ten-minutes", tolerates(effect="NoExecute", seconds=600), slot=1)
    added = now() - datetime.timedelta(hours=1)

    for slot in (0, 1):
        bench.set_taints(slot, taint("NoExecute", added=added))
    evicted = wait_evicted(workloads, ten_minutes)

    evidence("timeAdded", str(added))
    evidence("deletion of the pod with ten minutes", str(deleted_at(evicted)))
    expect_evicted(evicted)
    expect_left_alone(workloads, "a-day")


@requirement("TNT-08")
@pytest.mark.parametrize(
    "toleration",
    [
        pytest.param({"operator": "Exists", "effect": "NoExecute"}, id="any key"),
        pytest.param({"operator": "Exists"}, id="anything", marks=deviation("KEP-5055 empty effect")),
        pytest.param(tolerates(value="hot"), id="any effect", marks=deviation("KEP-5055 empty effect")),
    ],
)
def test_a_wide_toleration_keeps_the_pod(
    toleration: Object, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """A pod whose toleration leaves key or effect open outlives one that tolerates for 3 seconds."""
    bench = Bench(drivers, workloads, 2)
    bench.run("wide", toleration, slot=0)
    brief = bench.run("brief", tolerates(effect="NoExecute", seconds=3), slot=1)

    for slot in (0, 1):
        bench.set_taints(slot, taint("NoExecute", value="hot"))
    wait_evicted(workloads, brief)

    pod = workloads.kube.find(PODS, "wide", workloads.namespace)
    evidence("toleration", toleration)
    evidence("the pod", pod and {"phase": pod["status"].get("phase"), "condition": disruption(pod)})
    with symptom("KEP-5055 empty effect", "it is deleted"):
        expect_left_alone(workloads, "wide")


@requirement("TNT-15")
def test_the_pods_of_the_other_devices_go_on(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """NoExecute on one of eight devices in use deletes its pod; nobody else is touched."""
    bench = Bench(drivers, workloads, 8)
    for slot in range(8):
        bench.ask(f"pod-{slot}", slot=slot)
    pods = [workloads.wait_running(f"pod-{slot}") for slot in range(8)]

    bench.set_taints(3, taint("NoExecute"))
    wait_evicted(workloads, pods[3])
    workloads.wait_gone("pod-3")

    left = sorted(pod["metadata"]["name"] for pod in workloads.kube.list(PODS, workloads.namespace))
    evidence("pods that are left", left)
    expect_left_alone(workloads, *(f"pod-{slot}" for slot in range(8) if slot != 3))
