"""Which container gets which device: ER-06 and ER-07."""

from __future__ import annotations

from harness.kube import PODS, STRATEGIC_PATCH
from harness.waiting import NotYet, wait_until
from suites.catalogue import Form
from suites.devices import allocated, given
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal
from suites.extended_resource.forms import both_forms
from suites.marks import requirement
from suites.workload import Container, Workloads, pod_manifest


@requirement("ER-06")
@both_forms
def test_each_container_has_exactly_its_devices(
    form: Form, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Init, sidecar and regular containers have what they asked for; an ephemeral one has nothing."""
    resource = drivers.device_class(drivers.start(devices=6)).resource(form)
    init = [
        Container("init", {resource: 1}, args=["--exit", "0"]),
        Container("sidecar", {resource: 1}, sidecar=True),
    ]
    regular = [Container("one", {resource: 1}), Container("two", {resource: 2}), Container("none")]
    workloads.run(pod_manifest("pod", regular, init=init))

    _attach_ephemeral(workloads, "pod", "debug")

    claim = workloads.special_claim("pod")
    found = {
        name: given(workloads.report("pod", name))
        for name in ("init", "sidecar", "one", "two", "none", "debug")
    }
    evidence("devices allocated", allocated(claim))
    evidence("devices per container", found)
    amounts = {name: len(devices) for name, devices in found.items()}
    wanted = {"init": 1, "sidecar": 1, "one": 1, "two": 2, "none": 0, "debug": 0}
    expect_equal("devices per container", amounts, wanted, claim)
    long_lived = [device for name in ("sidecar", "one", "two") for device in found[name]]
    expect_equal(
        "containers that run side by side share no device", sorted(set(long_lived)), sorted(long_lived)
    )
    used = set(long_lived) | set(found["init"])
    expect_equal("every allocated device is given", sorted(used), allocated(claim), claim)


def _attach_ephemeral(workloads: Workloads, pod: str, name: str) -> None:
    container = Container(name).manifest()
    del container["resources"]  # the API allows none in an ephemeral container
    workloads.kube.patch(
        PODS,
        pod,
        {"spec": {"ephemeralContainers": [container]}},
        workloads.namespace,
        subresource="ephemeralcontainers",
        content_type=STRATEGIC_PATCH,
    )

    def running() -> bool:
        statuses = workloads.get(pod)["status"].get("ephemeralContainerStatuses", [])
        if not any("running" in status["state"] for status in statuses):
            raise NotYet(statuses)
        return True

    wait_until(running, 60, f"ephemeral container {name} to run")


@requirement("ER-07")
@both_forms
def test_init_containers_reuse_devices(
    form: Form, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """An init container that ends before the others start has devices that they get afterwards."""
    resource = drivers.device_class(drivers.start(devices=8)).resource(form)
    init = [Container(f"init-{index}", {resource: 2}, args=["--exit", "0"]) for index in (0, 1)]
    regular = [Container("one", {resource: 2}), Container("two", {resource: 2})]

    workloads.run(pod_manifest("pod", regular, init=init))

    claim = workloads.special_claim("pod")
    found = {each.name: given(workloads.report("pod", each.name)) for each in (*init, *regular)}
    evidence("devices allocated", allocated(claim))
    evidence("devices per container", found)
    expect_equal("two devices in each container", {len(devices) for devices in found.values()}, {2}, claim)
    amount = len(allocated(claim))
    expect("fewer devices than the containers' sum, which is 8", amount < 8, amount, claim)
    shared = set(found["one"]) & set(found["two"])
    expect_equal("devices shared by containers that run side by side", shared, set(), claim)
    reused = (set(found["init-0"]) | set(found["init-1"])) & (set(found["one"]) | set(found["two"]))
    expect("init containers have devices that the others get afterwards", reused, found, claim)
