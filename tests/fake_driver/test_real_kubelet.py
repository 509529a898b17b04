"""The driver under a real kubelet: faults, restarts, metadata, the device plugin."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from fake_driver.faults import Fault, FaultKind

from clusters.interface import Cluster
from harness.kube import NAMESPACES, RESOURCE_CLAIMS, RESOURCE_SLICES, SERVICE_ACCOUNTS, KubeClient, Object
from harness.waiting import NotYet, wait_until
from suites.catalogue import Form
from suites.devices import allocated, given
from suites.drivers import DeviceClass, Drivers
from suites.naming import Names
from suites.workload import Container, Workloads, pod_manifest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

_METADATA = "/var/run/kubernetes.io/dra-device-attributes"


@pytest.fixture
def kube(local_cluster: Cluster) -> KubeClient:
    return KubeClient.from_kubeconfig(local_cluster.kubeconfig)


@pytest.fixture
def names(request: pytest.FixtureRequest) -> Names:
    return Names("real-kubelet", request.node.nodeid)


@pytest.fixture
def drivers(local_cluster: Cluster, kube: KubeClient, names: Names) -> Iterator[Drivers]:
    made = Drivers(local_cluster, kube, names)
    yield made
    made.clear()


@pytest.fixture
def workloads(kube: KubeClient, names: Names, drivers: Drivers) -> Iterator[Workloads]:
    name = names.name()
    kube.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    wait_until(lambda: kube.find(SERVICE_ACCOUNTS, "default", name), 60, "the default service account")
    made = Workloads(kube, name)
    yield made
    made.clear()
    kube.delete(NAMESPACES, name)


def _pod(device_class: DeviceClass, name: str = "pod") -> Object:
    return pod_manifest(name, [Container(resources={device_class.resource(Form.EXPLICIT): 1})])


def test_an_error_in_prepare_is_told_and_tried_again(drivers: Drivers, workloads: Workloads) -> None:
    driver = drivers.start()
    driver.client.set_fault(
        Fault(method="NodePrepareResources", kind=FaultKind.CLAIM_ERROR, message="out of magic", times=1)
    )

    workloads.create(_pod(drivers.device_class(driver)))
    told = workloads.wait_event("pod", "FailedPrepareDynamicResources", "out of magic")
    workloads.wait_running("pod")

    assert "out of magic" in told
    calls = driver.client.calls(method="NodePrepareResources")
    assert [bool(next(iter((call.response or {})["claims"].values())).get("error")) for call in calls][
        :2
    ] == [
        True,
        False,
    ]


def test_a_crash_during_prepare_loses_nothing(drivers: Drivers, workloads: Workloads) -> None:
    driver = drivers.start()
    driver.client.set_fault(Fault(method="NodePrepareResources", kind=FaultKind.CRASH, when="after", times=1))
    workloads.create(_pod(drivers.device_class(driver)))
    workloads.wait_event("pod", "FailedPrepareDynamicResources")

    driver.wait_ready(driver.start())
    workloads.wait_running("pod")

    assert given(workloads.report("pod")) == allocated(workloads.special_claim("pod"))


def test_a_restarted_driver_unprepares_what_it_prepared(drivers: Drivers, workloads: Workloads) -> None:
    driver = drivers.start()
    pod = workloads.run(_pod(drivers.device_class(driver)))
    node = pod["spec"]["nodeName"]
    uid = workloads.special_claim("pod")["metadata"]["uid"]
    driver.kill()

    driver.wait_ready(driver.start())
    restored = driver.client.status().node(node).prepared_claims
    drivers.wait_registered(driver)
    workloads.delete("pod")

    assert restored == [uid]
    assert driver.client.status().node(node).prepared_claims == []
    (folder,) = [each.cdi_dir for each in drivers.cluster.nodes if each.name == node]
    assert [path.name for path in folder.iterdir() if driver.name in path.name] == []


def test_slices_are_exact_and_come_back(drivers: Drivers, kube: KubeClient) -> None:
    driver = drivers.start(devices=3)
    before = drivers.slices(driver)

    kube.delete(RESOURCE_SLICES, before[0]["metadata"]["name"])

    def restored() -> list[Object]:
        found = drivers.slices(driver)
        if len(found) != len(before) or before[0]["metadata"]["name"] in [
            s["metadata"]["name"] for s in found
        ]:
            raise NotYet([slice_["metadata"]["name"] for slice_ in found])
        return found

    after = wait_until(restored, 30, "the deleted slice to come back")
    for slices in (before, after):
        assert sorted((s["spec"]["nodeName"], len(s["spec"]["devices"])) for s in slices) == [
            ("node-1", 3),
            ("node-2", 3),
        ]
        assert all(s["spec"]["pool"]["resourceSliceCount"] == 1 for s in slices)
        assert all(s["metadata"]["ownerReferences"][0]["kind"] == "Node" for s in slices)


def test_metadata_of_a_direct_claim_is_in_the_container(drivers: Drivers, workloads: Workloads) -> None:
    driver = drivers.start()
    device_class = drivers.device_class(driver)
    request = {"name": "device", "exactly": {"deviceClassName": device_class.name}}
    manifest = {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": "ResourceClaim",
        "metadata": {"name": "direct"},
        "spec": {"devices": {"requests": [request]}},
    }
    workloads.kube.create(RESOURCE_CLAIMS, manifest, workloads.namespace)
    pod = pod_manifest(
        "pod", [Container()], resourceClaims=[{"name": "device", "resourceClaimName": "direct"}]
    )
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "device"}]}

    workloads.run(pod)

    files = workloads.report("pod")["files"]
    claim = workloads.kube.get(RESOURCE_CLAIMS, "direct", workloads.namespace)
    assert list(files) == [f"{_METADATA}/resourceclaims/direct/device/{driver.name}-metadata.json"]
    stream = next(iter(files.values()))
    newest, end = json.JSONDecoder().raw_decode(stream)
    oldest, _ = json.JSONDecoder().raw_decode(stream[end:].lstrip())
    assert newest["apiVersion"] == "metadata.resource.k8s.io/v1beta1"
    assert oldest["apiVersion"] == "metadata.resource.k8s.io/v1alpha1"
    assert newest["metadata"]["uid"] == claim["metadata"]["uid"]
    assert [device["name"] for device in newest["requests"][0]["devices"]] == allocated(claim)


def test_the_device_plugin_gives_and_takes(drivers: Drivers, workloads: Workloads, names: Names) -> None:
    resource = names.extended_resource()
    plugin = drivers.start_device_plugin(resource, {"node-1": 3})

    workloads.run(pod_manifest("pod", [Container(resources={resource: 2})]))
    (allocate,) = plugin.client.calls(method="Allocate")
    asked = allocate.request["container_requests"][0]["devices_ids"]
    free = set(plugin.client.status().nodes[0].devices) - set(asked)
    plugin.client.set_health(free.pop(), "Unhealthy")
    drivers.wait_allocatable("node-1", resource, 2)
    plugin.kill()
    drivers.wait_allocatable("node-1", resource, 0)

    assert len(asked) == 2
    assert not workloads.claims(), "a device plugin's pod has no claim"
