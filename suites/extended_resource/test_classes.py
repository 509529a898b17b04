"""Several classes with one extended resource name: ER-09 and ER-10."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from clusters import driver_host
from clusters.driver_host import HostedDriver
from harness.errors import RequirementFailed
from harness.kube import DEVICE_CLASSES, KubeClient, Object
from harness.waiting import NotYet, wait_until
from suites.devices import given
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.marks import deviation, requirement
from suites.naming import Names
from suites.workload import Container, Workloads, pod_manifest


class Classes:
    """Classes that share one extended resource name, told apart by the one device that each selects."""

    def __init__(self, drivers: Drivers, names: Names, workloads: Workloads) -> None:
        self._drivers = drivers
        self._names = names
        self._workloads = workloads
        self._settled = 0
        devices = [{"name": f"gpu-{slot}", "attributes": {"slot": {"int": slot}}} for slot in range(4)]
        self.driver: HostedDriver = drivers.start(inventory={"devices": devices})
        self.resource = names.extended_resource()

    def create(self, suffix: str, device: int, *, named: bool = True) -> Object:
        """Create a class of `gpu-<device>`, with the shared name unless told otherwise."""
        name = self._names.name(suffix)
        resource = self.resource if named else ""
        manifest = driver_host.device_class(name, self.driver.name, resource)
        expression = f"device.attributes[{self.driver.name!r}].slot == {device}"
        manifest["spec"]["selectors"].append({"cel": {"expression": expression}})
        return self._drivers.create_class(manifest)

    def settle(self) -> None:
        """Return once the scheduler has seen every class event so far.

        Events of one kind reach it in order, so a class made now and seen in use comes after all of them.
        """
        self._settled += 1
        marker = self.create(f"marker{self._settled}", 3, named=False)["metadata"]["name"]
        pod = f"marker-{self._settled}"
        resource = f"deviceclass.resource.kubernetes.io/{marker}"
        self._workloads.run(pod_manifest(pod, [Container(resources={resource: 1})]))
        self._workloads.delete(pod)

    def device_of_new_pod(self, pod: str) -> str:
        """Run a pod that asks for the shared name; returns its device.

        Raises:
            RequirementFailed: the scheduler refuses the pod.
        """
        self._workloads.create(pod_manifest(pod, [Container(resources={self.resource: 1})]))

        def placed() -> bool:
            conditions = {c["type"]: c for c in self._workloads.get(pod)["status"].get("conditions", ())}
            scheduled = conditions.get("PodScheduled", {})
            if scheduled.get("status") == "False":
                raise RequirementFailed(
                    f"{self.resource} is served by the class that has the name",
                    f"the pod is Pending: {scheduled.get('message')}",
                )
            if not scheduled:
                raise NotYet("not looked at yet")
            return True

        wait_until(placed, 30, f"the scheduler's word on pod {pod}")
        self._workloads.wait_running(pod)
        (device,) = given(self._workloads.report(pod))
        return device


@pytest.fixture
def classes(drivers: Drivers, names: Names, workloads: Workloads) -> Classes:
    """Classes that share a name, on a driver with gpu-0 to gpu-3."""
    return Classes(drivers, names, workloads)


def _in_the_same_second(create: Callable[[int], tuple[Object, Object]], kube: KubeClient) -> Iterator[int]:
    for attempt in range(20):
        pair = create(attempt)
        stamps = {each["metadata"]["creationTimestamp"] for each in pair}
        if len(stamps) == 1:
            yield attempt
            return
        for each in pair:
            kube.delete(DEVICE_CLASSES, each["metadata"]["name"])
    raise AssertionError("20 pairs of classes, none created within one second")


@requirement("ER-09")
def test_the_later_class_wins(classes: Classes, kube: KubeClient, evidence: Observations) -> None:
    """Of two classes with one name the later created serves it, whatever their names."""
    older = classes.create("a-older", 0)
    stamp = older["metadata"]["creationTimestamp"]
    newer = _create_in_a_later_second(classes, kube, stamp)
    classes.settle()

    device = classes.device_of_new_pod("pod")

    evidence("older class", {"name": older["metadata"]["name"], "created": stamp, "device": "gpu-0"})
    evidence("newer class", {"name": newer["metadata"]["name"], "device": "gpu-1"})
    evidence("device of the pod", device)
    assert device == "gpu-1"


def _create_in_a_later_second(classes: Classes, kube: KubeClient, stamp: str) -> Object:
    made: list[Object] = []

    def later() -> Object:
        if made:
            kube.delete(DEVICE_CLASSES, made.pop()["metadata"]["name"])
        made.append(classes.create("b-newer", 1))
        if made[0]["metadata"]["creationTimestamp"] <= stamp:
            raise NotYet("created within the same second")
        return made[0]

    return wait_until(later, 10, "a class created in a later second")


@requirement("ER-09")
@pytest.mark.parametrize("first_created", ["a", "b"])
def test_a_tie_goes_to_the_first_name(
    first_created: str, classes: Classes, kube: KubeClient, evidence: Observations
) -> None:
    """Of two classes created in the same second the one whose name sorts first serves, in either order."""
    order = ("a", "b") if first_created == "a" else ("b", "a")
    device_of = {"a": 0, "b": 1}

    def pair(attempt: int) -> tuple[Object, Object]:
        first, second = (classes.create(f"{letter}{attempt}", device_of[letter]) for letter in order)
        return first, second

    attempt = next(_in_the_same_second(pair, kube))
    classes.settle()

    device = classes.device_of_new_pod("pod")

    evidence("created in this order, within one second", [f"{letter}{attempt}" for letter in order])
    evidence("device of the pod", device)
    assert device == "gpu-0", "the class whose name sorts first selects gpu-0"


@requirement("ER-10")
@deviation("k/k#141103")
@pytest.mark.parametrize("step", ["clear the name on the old class", "delete the old class"])
def test_the_name_survives_a_move_to_a_new_class(
    step: str, classes: Classes, names: Names, kube: KubeClient, evidence: Observations
) -> None:
    """Create a new class with the name, then take it from the old one: the new class serves it."""
    old = classes.create("old", 0)["metadata"]["name"]
    classes.settle()
    assert classes.device_of_new_pod("before") == "gpu-0", "the old class serves the name first"
    _create_in_a_later_second(classes, kube, kube.get(DEVICE_CLASSES, old)["metadata"]["creationTimestamp"])

    if step.startswith("clear"):
        kube.patch(DEVICE_CLASSES, old, {"spec": {"extendedResourceName": None}})
    else:
        kube.delete(DEVICE_CLASSES, old)
    classes.settle()

    with_name = [
        each["metadata"]["name"]
        for each in kube.list(DEVICE_CLASSES)
        if each["spec"].get("extendedResourceName") == classes.resource
    ]
    evidence("classes with the name afterwards", with_name)
    try:
        device = classes.device_of_new_pod("after")
    except RequirementFailed as failed:
        evidence("a pod that asks for the name", failed.observed)
        raise
    evidence("device of a pod that asks for the name", device)
    assert device == "gpu-1", "the new class serves the name"
