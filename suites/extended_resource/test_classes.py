"""Several classes with one extended resource name: ER-09 and ER-10."""

from __future__ import annotations

import itertools

import pytest

from clusters import driver_host
from clusters.driver_host import HostedDriver
from harness.errors import EnvironmentBlocked, RequirementFailed
from harness.kube import DEVICE_CLASSES, KubeClient, Object
from harness.waiting import NotYet, wait_until
from suites.devices import given
from suites.drivers import IMPLICIT_PREFIX, Drivers
from suites.evidence import Observations
from suites.expect import expect_equal, precondition, symptom
from suites.marks import deviation, requirement
from suites.naming import Names
from suites.workload import RUN_SECONDS, Container, Workloads, pod_manifest

_GIVES_WAY = "KEP-5004 implicit name of a class that gives way"


class Classes:
    """Classes that share one extended resource name, told apart by the one device that each selects."""

    def __init__(self, drivers: Drivers, names: Names, workloads: Workloads, kube: KubeClient) -> None:
        self._drivers = drivers
        self._names = names
        self._workloads = workloads
        self._kube = kube
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
        resource = f"{IMPLICIT_PREFIX}{marker}"
        self._workloads.run(pod_manifest(pod, [Container(resources={resource: 1})]))
        self._workloads.delete(pod)

    def device_of_new_pod(self, pod: str, resource: str = "") -> str:
        """Run a pod that asks for the shared name, or for another one; returns its device.

        Raises:
            RequirementFailed: the scheduler finds nobody who serves the name.
        """
        resource = resource or self.resource
        self._workloads.create(pod_manifest(pod, [Container(resources={resource: 1})]))

        def running() -> bool:
            status = self._workloads.get(pod)["status"]
            conditions = {each["type"]: each for each in status.get("conditions", ())}
            message = conditions.get("PodScheduled", {}).get("message", "")
            if f"Insufficient {resource}" in message:
                raise RequirementFailed(f"a class serves {resource}", f"the pod is Pending: {message}")
            if status.get("phase") != "Running":
                raise NotYet(message or status.get("phase"))
            return True

        wait_until(running, RUN_SECONDS, f"pod {pod} to run")
        devices = given(self._workloads.report(pod))
        expect_equal("devices in the container", len(devices), 1)
        return devices[0]

    def create_later(self, suffix: str, device: int, than: Object) -> Object:
        """Create a class with the shared name in a later second than another one.

        A clock of classes without the name says when: deleting one with the name could take it from all.
        """
        ticks = itertools.count()

        def later() -> bool:
            clock = self.create(f"clock{next(ticks)}", 3, named=False)
            stamp = clock["metadata"]["creationTimestamp"]
            if stamp <= than["metadata"]["creationTimestamp"]:
                raise NotYet(f"it is {stamp} still")
            return True

        with precondition("a class created in a later second"):
            wait_until(later, 20, "the next second", interval=0.2)
        return self.create(suffix, device)

    def create_together(self, suffixes: tuple[str, str], devices: tuple[int, int]) -> tuple[Object, Object]:
        """Create two classes with the shared name in one second, in this order."""
        for attempt in range(20):
            first, second = (
                self.create(f"{suffix}{attempt}", device)
                for suffix, device in zip(suffixes, devices, strict=True)
            )
            if first["metadata"]["creationTimestamp"] == second["metadata"]["creationTimestamp"]:
                return first, second
            for each in (first, second):
                self._kube.delete(DEVICE_CLASSES, each["metadata"]["name"])
        raise EnvironmentBlocked("20 pairs of classes, and none was created within one second")


@requirement("ER-09")
def test_the_later_class_wins(
    drivers: Drivers, names: Names, workloads: Workloads, kube: KubeClient, evidence: Observations
) -> None:
    """Of two classes with one name the later created serves it, whatever their names."""
    classes = Classes(drivers, names, workloads, kube)
    older = classes.create("a-older", 0)
    newer = classes.create_later("b-newer", 1, than=older)
    classes.settle()

    device = classes.device_of_new_pod("pod")

    evidence("older class, of gpu-0", older["metadata"]["creationTimestamp"])
    evidence("newer class, of gpu-1", newer["metadata"]["creationTimestamp"])
    evidence("device of the pod", device)
    expect_equal("the later class serves the name with its device", device, "gpu-1", newer)


@requirement("ER-09")
@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")], ids=["a first", "b first"])
def test_a_tie_goes_to_the_first_name(
    order: tuple[str, str],
    drivers: Drivers,
    names: Names,
    workloads: Workloads,
    kube: KubeClient,
    evidence: Observations,
) -> None:
    """Of two classes created in the same second the one whose name sorts first serves, in either order."""
    classes = Classes(drivers, names, workloads, kube)
    device_of = {"a": 0, "b": 1}

    pair = classes.create_together(order, (device_of[order[0]], device_of[order[1]]))
    classes.settle()
    device = classes.device_of_new_pod("pod")

    evidence("created in this order, within one second", [each["metadata"]["name"] for each in pair])
    evidence("device of the pod", device)
    expect_equal("the class whose name sorts first serves with its device", device, "gpu-0", pair[0])


@requirement("ER-02")
@deviation(_GIVES_WAY)
def test_a_class_that_gives_way_keeps_its_implicit_name(
    drivers: Drivers, names: Names, workloads: Workloads, kube: KubeClient, evidence: Observations
) -> None:
    """Of two classes with one name, the one that does not serve it serves pods by its implicit name."""
    classes = Classes(drivers, names, workloads, kube)
    _, second = classes.create_together(("a", "b"), (0, 1))
    classes.settle()
    shared = classes.device_of_new_pod("shared")
    evidence("device of a pod that asks for the shared name", shared)
    expect_equal("the first class serves the shared name", shared, "gpu-0")
    implicit = f"{IMPLICIT_PREFIX}{second['metadata']['name']}"

    with symptom(_GIVES_WAY, f"Insufficient {implicit}"):
        device = classes.device_of_new_pod("implicit", implicit)

    evidence("device of a pod that asks for the implicit name", device)
    expect_equal("the second class serves its implicit name with its device", device, "gpu-1", second)


@requirement("ER-10")
@deviation("k/k#141103")
@pytest.mark.parametrize("step", ["clear the name on the old class", "delete the old class"])
def test_the_name_survives_a_move_to_a_new_class(
    step: str,
    drivers: Drivers,
    names: Names,
    workloads: Workloads,
    kube: KubeClient,
    evidence: Observations,
) -> None:
    """Create a new class with the name, then take it from the old one: the new class serves it."""
    classes = Classes(drivers, names, workloads, kube)
    old = classes.create("old", 0)
    classes.settle()
    expect_equal("the old class serves the name first", classes.device_of_new_pod("before"), "gpu-0", old)
    new = classes.create_later("new", 1, than=old)

    if step.startswith("clear"):
        kube.patch(DEVICE_CLASSES, old["metadata"]["name"], {"spec": {"extendedResourceName": None}})
    else:
        kube.delete(DEVICE_CLASSES, old["metadata"]["name"])
    classes.settle()

    with_name = [
        each["metadata"]["name"]
        for each in kube.list(DEVICE_CLASSES)
        if each["spec"].get("extendedResourceName") == classes.resource
    ]
    evidence("classes with the name afterwards", with_name)
    with symptom("k/k#141103", f"Insufficient {classes.resource}"):
        device = classes.device_of_new_pod("after")
    evidence("device of a pod that asks for the name", device)
    expect_equal("the new class serves the name with its device", device, "gpu-1", new)
