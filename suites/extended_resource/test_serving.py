"""An unchanged pod is served by DRA: ER-01 to ER-05, ER-08, ER-11, ER-19 and ER-20."""

from __future__ import annotations

from clusters.interface import Cluster
from harness.kube import NODES, KubeClient
from suites.catalogue import Form
from suites.devices import allocated, given, requests_of
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.marks import both_forms, requirement
from suites.naming import Names
from suites.workload import Container, Workloads, pod_manifest

ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"


@requirement("ER-01")
@both_forms
def test_an_unchanged_pod_gets_its_devices(
    form: Form, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """`limits: <resource>: 2` runs with exactly two devices, and the pod's spec is as it was written."""
    device_class = drivers.device_class(drivers.start(devices=3))
    resource = device_class.resource(form)

    pod = workloads.run(pod_manifest("pod", [Container(resources={resource: 2})]))

    claim = workloads.special_claim("pod")
    report = workloads.report("pod")
    evidence("resource asked for", {resource: 2})
    evidence("devices allocated", allocated(claim))
    evidence("devices in the container", given(report))
    assert len(given(report)) == 2, "the container has as many devices as it asked for"
    assert given(report) == allocated(claim), "the container has the devices that were allocated to it"
    assert "resourceClaims" not in pod["spec"], "nobody wrote claims into the pod's spec"
    assert "claims" not in pod["spec"]["containers"][0]["resources"]


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
    evidence("class of the request", claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"])
    assert claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == device_class.name
    assert given(workloads.report("pod")) == allocated(claim)


@requirement("ER-03")
@both_forms
def test_one_claim_per_pod(
    form: Form, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Three containers that ask for two resources share one special claim."""
    driver = drivers.start(devices=4)
    first = drivers.device_class(driver, suffix="first").resource(form)
    second = drivers.device_class(driver, suffix="second").resource(form)
    containers = [
        Container("both", {first: 1, second: 1}),
        Container("first", {first: 1}),
        Container("second", {second: 1}),
    ]

    workloads.run(pod_manifest("pod", containers))

    claims = workloads.claims()
    evidence("claims in the namespace", [claim["metadata"]["name"] for claim in claims])
    evidence("devices allocated", allocated(claims[0]))
    assert len(claims) == 1, "one special claim, whatever the number of containers and resources"
    assert len(allocated(claims[0])) == 4
    in_containers = sorted(name for each in containers for name in given(workloads.report("pod", each.name)))
    assert in_containers == allocated(claims[0]), "every device is in exactly one container"


@requirement("ER-04")
@both_forms
def test_the_claim_says_what_it_is(
    form: Form, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """The special claim is annotated, owned by its pod, and not taken for a template's claim."""
    resource = drivers.device_class(drivers.start()).resource(form)

    pod = workloads.run(pod_manifest("pod", [Container(resources={resource: 1})]))

    metadata = workloads.special_claim("pod")["metadata"]
    evidence("annotations", metadata.get("annotations"))
    evidence("owners", metadata.get("ownerReferences"))
    assert metadata["annotations"].get(ANNOTATION) == "true"
    assert POD_CLAIM_NAME not in metadata["annotations"]
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Pod", "pod", pod["metadata"]["uid"])
    assert owner["controller"] is True


@requirement("ER-05")
@both_forms
def test_the_status_maps_containers_to_requests(
    form: Form, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Each mapping names a container of the pod, a resource that it asks for, and a request of the claim."""
    driver = drivers.start(devices=4)
    first = drivers.device_class(driver, suffix="first").resource(form)
    second = drivers.device_class(driver, suffix="second").resource(form)
    containers = [Container("one", {first: 1, second: 2}), Container("two", {first: 1})]

    pod = workloads.run(pod_manifest("pod", containers))

    status = pod["status"]["extendedResourceClaimStatus"]
    claim = workloads.special_claim("pod")
    evidence("status.extendedResourceClaimStatus", status)
    evidence("requests of the claim", requests_of(claim))
    asked = {(each.name, name): amount for each in containers for name, amount in each.resources.items()}
    mapped: dict[tuple[str, str], int] = {}
    for mapping in status["requestMappings"]:
        key = (mapping["containerName"], mapping["resourceName"])
        mapped[key] = mapped.get(key, 0) + requests_of(claim)[mapping["requestName"]]
    assert mapped == asked, "each container's amounts are the devices of the requests mapped to it"


@requirement("ER-08")
@both_forms
def test_a_zero_quantity_makes_no_claim(
    form: Form, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """A pod that asks for none runs, without a claim and without a status for one."""
    resource = drivers.device_class(drivers.start()).resource(form)

    pod = workloads.run(pod_manifest("pod", [Container(resources={resource: 0})]))

    evidence("claims in the namespace", workloads.claims())
    evidence("status.extendedResourceClaimStatus", pod["status"].get("extendedResourceClaimStatus"))
    assert workloads.claims() == []
    assert "extendedResourceClaimStatus" not in pod["status"]
    assert given(workloads.report("pod")) == []


@requirement("ER-11")
@both_forms
def test_a_pod_older_than_the_class(
    form: Form, drivers: Drivers, names: Names, workloads: Workloads, evidence: Observations
) -> None:
    """A pod that asks for a name that nobody serves is refused, and runs as soon as the class appears."""
    driver = drivers.start()
    resource = (
        names.extended_resource()
        if form is Form.EXPLICIT
        else f"deviceclass.resource.kubernetes.io/{names.name('gpu')}"
    )
    workloads.create(pod_manifest("pod", [Container(resources={resource: 1})]))
    refusal = workloads.wait_unschedulable("pod", f"Insufficient {resource}")

    device_class = drivers.device_class(driver)

    assert device_class.resource(form) == resource
    workloads.wait_running("pod")
    evidence("before the class", refusal)
    evidence("devices after the class", given(workloads.report("pod")))
    assert len(given(workloads.report("pod"))) == 1


@requirement("ER-19")
@both_forms
def test_nodes_do_not_show_dra_capacity(
    form: Form,
    cluster: Cluster,
    kube: KubeClient,
    drivers: Drivers,
    workloads: Workloads,
    evidence: Observations,
) -> None:
    """The resource is in no node's status, before or while a pod uses it, and the kubelet admits the pod."""
    resource = drivers.device_class(drivers.start()).resource(form)
    before = _node_resources(kube)

    pod = workloads.run(pod_manifest("pod", [Container(resources={resource: 1})]))

    after = _node_resources(kube)
    evidence("resources in node status", {name: sorted(found) for name, found in after.items()})
    evidence("admitted", {"node": pod["spec"]["nodeName"], "reason": pod["status"].get("reason")})
    for seen in (before, after):
        assert set(seen) == {node.name for node in cluster.nodes}
        assert all(resource not in found for found in seen.values())
    assert pod["status"].get("reason") is None


def _node_resources(kube: KubeClient) -> dict[str, set[str]]:
    nodes = [node for node in kube.list(NODES) if "kwok.x-k8s.io/node" not in node["metadata"]["annotations"]]
    return {
        node["metadata"]["name"]: {*node["status"]["capacity"], *node["status"]["allocatable"]}
        for node in nodes
    }


@requirement("ER-20")
@both_forms
def test_the_driver_prepares_special_claims(
    form: Form, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """The driver gets a special claim as any other, prepares its devices, and unprepares it in the end."""
    driver = drivers.start(devices=2)
    resource = drivers.device_class(driver).resource(form)
    workloads.run(pod_manifest("pod", [Container(resources={resource: 2})]))
    claim = workloads.special_claim("pod")
    uid = claim["metadata"]["uid"]

    workloads.delete("pod")

    calls = driver.client.calls(claim_uid=uid)
    evidence("calls for the claim", [(call.node, call.method, call.error) for call in calls])
    assert POD_CLAIM_NAME not in claim["metadata"]["annotations"]
    prepared = [call for call in calls if call.method == "NodePrepareResources"]
    unprepared = [call for call in calls if call.method == "NodeUnprepareResources"]
    assert prepared, "the kubelet asked the driver to prepare the special claim"
    assert unprepared, "the kubelet asked the driver to unprepare it"
    assert all(not call.error for call in calls)
    assert prepared[0].response is not None
    answer = prepared[0].response["claims"][uid]
    evidence("answer to the first prepare", answer)
    assert sorted(device["device_name"] for device in answer["devices"]) == allocated(claim)
    requests = set(requests_of(claim))
    assert all(set(device["request_names"]) <= requests for device in answer["devices"])
    assert all(not node.prepared_claims for node in driver.client.status().nodes), "nothing stays prepared"
