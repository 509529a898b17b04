"""An unchanged pod is served by DRA: ER-01 to ER-05, ER-08, ER-11, ER-19 and ER-20."""

from __future__ import annotations

from fake_driver.calls import Call

from clusters.driver_host import HostedDriver
from clusters.interface import Cluster
from harness.kube import NODES, KubeClient
from harness.waiting import NotYet, wait_until
from suites.catalogue import Form
from suites.devices import allocated, allocated_to, classes_of, given, requests_of
from suites.drivers import IMPLICIT_PREFIX, DeviceClass, Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal, field
from suites.extended_resource.forms import both_forms
from suites.marks import exclusive, requirement
from suites.naming import Names
from suites.workload import RUN_SECONDS, Container, Workloads, pod_manifest

ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
# Far above the scheduler's backoff, and far below the five minutes after which it tries any pod again.
_TRIED_AGAIN_SECONDS = 60.0


def _two_classes(drivers: Drivers, *, each: int) -> tuple[DeviceClass, DeviceClass]:
    """Two classes of one driver that share no device: `each` devices of the one, as many of the other."""
    groups = [
        {
            "name": f"{model}-{{index}}",
            "count": each,
            "attributes": {"model": {"string": model}},
        }
        for model in ("first", "second")
    ]
    driver = drivers.start(inventory={"devices": groups})
    first, second = (_class_of_model(drivers, driver, model) for model in ("first", "second"))
    return first, second


def _class_of_model(drivers: Drivers, driver: HostedDriver, model: str) -> DeviceClass:
    cel = f"device.attributes[{driver.name!r}].model == {model!r}"
    return drivers.device_class(driver, suffix=model, cel=cel)


@requirement("ER-01")
@both_forms
def test_an_unchanged_pod_gets_its_devices(
    form: Form, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """`limits: <resource>: 2` runs with exactly two devices, and nobody wrote claims into the pod's spec."""
    device_class = drivers.device_class(drivers.start(devices=3))
    resource = device_class.resource(form)

    pod = workloads.run(pod_manifest("pod", [Container(resources={resource: 2})]))

    claim = workloads.special_claim("pod")
    report = workloads.report("pod")
    evidence("resource asked for", {resource: 2})
    evidence("devices allocated", allocated(claim))
    evidence("devices in the container", given(report))
    expect_equal("as many devices in the container as it asked for", len(given(report)), 2)
    expect_equal("the container has the devices allocated to it", given(report), allocated(claim), claim)
    expect("the pod's spec has no resourceClaims", "resourceClaims" not in pod["spec"], pod["spec"], pod)
    resources = pod["spec"]["containers"][0]["resources"]
    expect("the container's spec has no claims", "claims" not in resources, resources, pod)


@requirement("ER-02")
def test_the_implicit_name_needs_no_field(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """A class without `extendedResourceName` serves pods by its implicit name."""
    device_class = drivers.device_class(drivers.start(), extended_resource="")
    resource = device_class.resource(Form.IMPLICIT)

    workloads.run(pod_manifest("pod", [Container(resources={resource: 1})]))

    claim = workloads.special_claim("pod")
    evidence("resource asked for", resource)
    evidence("classes of the claim's requests", classes_of(claim))
    expect_equal("one request, for the class", list(classes_of(claim).values()), [device_class.name], claim)
    expect_equal("the allocated device is given", given(workloads.report("pod")), allocated(claim), claim)


@requirement("ER-03")
@both_forms
def test_one_claim_per_pod(
    form: Form, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Three containers that ask for two resources share one special claim, and get devices of each class."""
    first, second = (each.resource(form) for each in _two_classes(drivers, each=2))
    containers = [
        Container("both", {first: 1, second: 1}),
        Container("first", {first: 1}),
        Container("second", {second: 1}),
    ]

    workloads.run(pod_manifest("pod", containers))

    names = [claim["metadata"]["name"] for claim in workloads.claims()]
    found = {each.name: given(workloads.report("pod", each.name)) for each in containers}
    evidence("claims in the namespace", names)
    evidence("devices per container", found)
    expect_equal("claims of the pod", len(names), 1)
    models = {name: sorted(device.split("-")[0] for device in devices) for name, devices in found.items()}
    expect_equal(
        "each container has devices of the classes that it asked for",
        models,
        {"both": ["first", "second"], "first": ["first"], "second": ["second"]},
    )
    in_containers = sorted(device for devices in found.values() for device in devices)
    claim = workloads.special_claim("pod")
    expect_equal("every allocated device is in exactly one container", in_containers, allocated(claim), claim)


@requirement("ER-04")
@both_forms
def test_the_claim_says_what_it_is(
    form: Form, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """The special claim is annotated, owned by its pod, and not taken for a template's claim."""
    resource = drivers.device_class(drivers.start()).resource(form)

    pod = workloads.run(pod_manifest("pod", [Container(resources={resource: 1})]))

    claim = workloads.special_claim("pod")
    annotations = claim["metadata"].get("annotations", {})
    owners = [
        (each.get("kind"), each.get("name"), each.get("uid"), each.get("controller"))
        for each in claim["metadata"].get("ownerReferences", ())
    ]
    evidence("annotations", annotations)
    evidence("owners", owners)
    expect_equal(f"annotation {ANNOTATION}", annotations.get(ANNOTATION), "true", claim)
    expect(f"no annotation {POD_CLAIM_NAME}", POD_CLAIM_NAME not in annotations, annotations, claim)
    expect_equal("its owner", owners, [("Pod", "pod", pod["metadata"]["uid"], True)], claim)


@requirement("ER-05")
@both_forms
def test_the_status_maps_containers_to_requests(
    form: Form, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Each mapping names a container, a resource that it asks for, and the request that serves just that."""
    classes = _two_classes(drivers, each=3)
    first, second = (each.resource(form) for each in classes)
    class_of = {first: classes[0].name, second: classes[1].name}
    containers = [Container("one", {first: 1, second: 2}), Container("two", {first: 1})]

    pod = workloads.run(pod_manifest("pod", containers))

    claim = workloads.special_claim("pod")
    mappings = field(pod, "status", "extendedResourceClaimStatus", "requestMappings")
    evidence("request mappings", mappings)
    evidence("classes of the claim's requests", classes_of(claim))
    requests = requests_of(claim)
    unknown = [each for each in mappings if each.get("requestName") not in requests]
    expect_equal("mappings to requests that the claim hasn't", unknown, [], claim)
    asked = {(each.name, name): amount for each in containers for name, amount in each.resources.items()}
    mapped: dict[tuple[str, str], int] = {}
    for each in mappings:
        key = (each.get("containerName"), each.get("resourceName"))
        mapped[key] = mapped.get(key, 0) + requests[each["requestName"]]
    expect_equal("amounts by container and resource", mapped, asked, pod)
    wrong = [
        each for each in mappings if classes_of(claim)[each["requestName"]] != class_of[each["resourceName"]]
    ]
    expect_equal("mappings to a request of another class", wrong, [], claim)
    for container in containers:
        own = [each["requestName"] for each in mappings if each["containerName"] == container.name]
        expect_equal(
            f"container {container.name} has the devices of the requests mapped to it",
            given(workloads.report("pod", container.name)),
            allocated_to(claim, own),
            claim,
        )


@requirement("ER-08")
@both_forms
def test_a_zero_quantity_makes_no_claim(
    form: Form, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """A pod that asks for none runs, without a claim and without a status for one."""
    resource = drivers.device_class(drivers.start()).resource(form)

    pod = workloads.run(pod_manifest("pod", [Container(resources={resource: 0})]))

    claims = [claim["metadata"]["name"] for claim in workloads.claims()]
    evidence("claims in the namespace", claims)
    expect_equal("claims in the namespace", claims, [])
    status = pod["status"].get("extendedResourceClaimStatus")
    expect_equal("status.extendedResourceClaimStatus", status, None, pod)
    expect_equal("devices in the container", given(workloads.report("pod")), [])


@requirement("ER-08")
@both_forms
def test_a_zero_beside_another_quantity_is_ignored(
    form: Form, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """A container that asks for none of one resource and one of another has a claim for the other only."""
    classes = _two_classes(drivers, each=1)
    none, one = (each.resource(form) for each in classes)

    workloads.run(pod_manifest("pod", [Container(resources={none: 0, one: 1})]))

    claim = workloads.special_claim("pod")
    evidence("classes of the claim's requests", classes_of(claim))
    expect_equal("classes asked for", list(classes_of(claim).values()), [classes[1].name], claim)
    expect_equal("devices in the container", given(workloads.report("pod")), ["second-0"])


@requirement("ER-11")
@both_forms
@exclusive
def test_a_pod_older_than_the_class(
    form: Form, drivers: Drivers, names: Names, workloads: Workloads, evidence: Observations
) -> None:
    """A pod that asks for a name that nobody serves is refused; the class alone makes it run."""
    driver = drivers.start()
    resource = names.extended_resource() if form is Form.EXPLICIT else f"{IMPLICIT_PREFIX}{names.name('gpu')}"
    workloads.create(pod_manifest("pod", [Container(resources={resource: 1})]))
    evidence("before the class", workloads.wait_unschedulable("pod", f"Insufficient {resource}"))

    device_class = drivers.device_class(driver)

    assert device_class.resource(form) == resource
    workloads.wait_running("pod", _TRIED_AGAIN_SECONDS)
    devices = given(workloads.report("pod"))
    evidence("devices after the class", devices)
    expect_equal("devices in the container", len(devices), 1)


@requirement("ER-19")
@both_forms
def test_nodes_do_not_show_dra_capacity(
    form: Form,
    cluster: Cluster,
    kube: KubeClient,
    drivers: Drivers,
    names: Names,
    workloads: Workloads,
    evidence: Observations,
) -> None:
    """The resource is in no node's status, also not in one that was written while a pod uses it."""
    resource = drivers.device_class(drivers.start()).resource(form)

    pod = workloads.run(pod_manifest("pod", [Container(resources={resource: 1})]))
    node = pod["spec"]["nodeName"]
    # A device plugin's resource shows up with the next status that the kubelet writes: so would this one.
    drivers.start_device_plugin(names.extended_resource("marker"), {node: 1})

    found = {each["metadata"]["name"]: _resources(each) for each in kube.list(NODES)}
    evidence("resources in node status", {name: sorted(found[name]) for name in found})
    evidence("admitted", {"node": node, "reason": pod["status"].get("reason")})
    expect(
        "every node of the cluster has a status", set(found) >= {each.name for each in cluster.nodes}, found
    )
    showing = [name for name, resources in found.items() if resource in resources]
    expect_equal(f"nodes whose status has {resource}", showing, [])
    expect_equal("a reason for refusing the pod", pod["status"].get("reason"), None, pod)


def _resources(node: dict[str, dict[str, dict[str, str]]]) -> set[str]:
    return {*node["status"].get("capacity", {}), *node["status"].get("allocatable", {})}


@requirement("ER-20")
@both_forms
def test_the_driver_prepares_special_claims(
    form: Form, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """The driver gets a special claim as any other, prepares its devices, and unprepares it in the end."""
    driver = drivers.start(devices=2)
    resource = drivers.device_class(driver).resource(form)
    workloads.create(pod_manifest("pod", [Container(resources={resource: 2})]))
    first = wait_until(lambda: _first_prepare(driver), RUN_SECONDS, "the driver's answer to the kubelet")
    evidence("answer to the first prepare", first.response)
    claims = (first.response or {}).get("claims", {})
    expect_equal("errors in the answer", [each["error"] for each in claims.values() if each.get("error")], [])
    workloads.wait_running("pod")
    claim = workloads.special_claim("pod")
    uid = claim["metadata"]["uid"]

    workloads.delete("pod")

    calls = driver.client.calls(claim_uid=uid)
    evidence("calls for the claim", [(call.node, call.method, call.error) for call in calls])
    expect_equal("calls that failed", [call.error for call in calls if call.error], [])
    methods = {call.method for call in calls}
    expect_equal("calls for the claim", methods, {"NodePrepareResources", "NodeUnprepareResources"}, claim)
    devices = field(first.response or {}, "claims", uid).get("devices", [])
    expect_equal("devices prepared", sorted(each["device_name"] for each in devices), allocated(claim), claim)
    named = {name for each in devices for name in each.get("request_names", ())}
    expect("the answer names requests of the claim only", named <= set(requests_of(claim)), named, claim)
    prepared = [name for node in driver.client.status().nodes for name in node.prepared_claims]
    expect_equal("claims that stay prepared", prepared, [])


def _first_prepare(driver: HostedDriver) -> Call:
    calls = driver.client.calls(method="NodePrepareResources")
    if not calls or calls[0].seconds is None:
        raise NotYet(calls or "no call")
    return calls[0]
