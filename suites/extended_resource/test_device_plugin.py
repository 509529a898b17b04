"""One resource name, served by a device plugin here and by DRA there: ER-12, ER-13 and ER-14."""

from __future__ import annotations

from typing import Any

from clusters.interface import Cluster
from harness.kube import DEPLOYMENTS, PODS, KubeClient, Object
from harness.waiting import NotYet, wait_until
from suites.catalogue import Form
from suites.devices import allocated, given
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect_equal
from suites.marks import explicit_only, needs_nodes, requirement
from suites.naming import Names
from suites.workload import RUN_SECONDS, Container, Workloads, pod_manifest


@requirement("ER-12")
@needs_nodes(2)
@explicit_only
def test_one_deployment_over_both_kinds_of_nodes(
    form: Form,
    cluster: Cluster,
    names: Names,
    drivers: Drivers,
    workloads: Workloads,
    kube: KubeClient,
    evidence: Observations,
) -> None:
    """Replicas land on the plugin's node without a claim and on the DRA node with one."""
    plugin_node, dra_node = cluster.nodes[:2]
    resource = names.extended_resource()
    plugin = drivers.start_device_plugin(resource, {plugin_node.name: 1})
    device_class = drivers.device_class(drivers.start(nodes=[dra_node]), extended_resource=resource)
    assert device_class.resource(form) == resource

    _deploy(kube, workloads.namespace, resource, replicas=2)
    pods = _running_pods(kube, workloads.namespace, 2)

    found = {pod["spec"]["nodeName"]: "extendedResourceClaimStatus" in pod["status"] for pod in pods}
    given_by_plugin = [(call.node, call.method) for call in plugin.client.calls(method="Allocate")]
    evidence("node of each replica -> has a special claim", found)
    evidence("devices given by the plugin", given_by_plugin)
    wanted = {plugin_node.name: False, dra_node.name: True}
    expect_equal("replicas with a special claim, by node", found, wanted)
    expect_equal("claims of both replicas", len(workloads.claims()), 1)
    expect_equal("devices given by the plugin", given_by_plugin, [(plugin_node.name, "Allocate")])


def _settle(node: str, names: Names, drivers: Drivers, workloads: Workloads) -> None:
    """Return once the scheduler has seen what the node's status says now, not just the API server.

    Another resource comes to the status later, and a pod gets it only from a scheduler that has seen that.
    """
    marker = names.extended_resource("marker")
    drivers.start_device_plugin(marker, {node: 1})
    workloads.run(pod_manifest("marker", [Container(resources={marker: 1})], node=node))
    workloads.delete("marker")


def _deploy(kube: KubeClient, namespace: str, resource: str, *, replicas: int) -> None:
    pod = pod_manifest("both", [Container(resources={resource: 1})], restartPolicy="Always")
    manifest: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "both"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "both"}},
            "template": {"metadata": {"labels": {"app": "both"}}, "spec": pod["spec"]},
        },
    }
    kube.create(DEPLOYMENTS, manifest, namespace)


def _running_pods(kube: KubeClient, namespace: str, count: int) -> list[Object]:
    def running() -> list[Object]:
        pods = kube.list(PODS, namespace, labels="app=both")
        phases = {pod["metadata"]["name"]: pod["status"].get("phase") for pod in pods}
        if list(phases.values()) != ["Running"] * count:
            raise NotYet(phases)
        return pods

    return wait_until(running, RUN_SECONDS, f"{count} replicas to run")


@requirement("ER-13")
@explicit_only
def test_on_one_node_the_plugin_wins(
    form: Form,
    cluster: Cluster,
    names: Names,
    drivers: Drivers,
    workloads: Workloads,
    evidence: Observations,
) -> None:
    """Where a node has both, its pods get the plugin's devices and no claim."""
    node = cluster.nodes[0]
    resource = names.extended_resource()
    driver = drivers.start(nodes=[node])
    device_class = drivers.device_class(driver, extended_resource=resource)
    # Only a scheduler that knows the class by now could prefer it.
    implicit = Container(resources={device_class.resource(Form.IMPLICIT): 1})
    workloads.run(pod_manifest("knows-the-class", [implicit], node=node.name))
    workloads.delete("knows-the-class")
    driver.client.clear_calls()
    plugin = drivers.start_device_plugin(resource, {node.name: 1})
    _settle(node.name, names, drivers, workloads)

    pod = workloads.run(pod_manifest("pod", [Container(resources={resource: 1})], node=node.name))

    claims = [claim["metadata"]["name"] for claim in workloads.claims()]
    evidence("claims in the namespace", claims)
    evidence("calls to the plugin", [call.method for call in plugin.client.calls()])
    status = pod["status"].get("extendedResourceClaimStatus")
    expect_equal("status.extendedResourceClaimStatus", status, None, pod)
    expect_equal("claims in the namespace", claims, [])
    expect_equal("devices given by the plugin", len(plugin.client.calls(method="Allocate")), 1)
    expect_equal("prepares by the driver", driver.client.calls(method="NodePrepareResources"), [])


@requirement("ER-14")
@explicit_only
def test_dra_takes_over_after_the_plugin(
    form: Form,
    cluster: Cluster,
    names: Names,
    drivers: Drivers,
    workloads: Workloads,
    evidence: Observations,
) -> None:
    """Once the plugin is gone and the node has 0 of it, the same node serves the name through DRA."""
    node = cluster.nodes[0]
    resource = names.extended_resource()
    plugin = drivers.start_device_plugin(resource, {node.name: 1})
    workloads.run(pod_manifest("before", [Container(resources={resource: 1})], node=node.name))
    expect_equal("claims while the plugin serves", workloads.claims(), [])
    workloads.delete("before")

    plugin.kill()
    drivers.wait_allocatable(node.name, resource, 0)
    _settle(node.name, names, drivers, workloads)
    drivers.device_class(drivers.start(nodes=[node]), extended_resource=resource)

    pod = workloads.run(pod_manifest("after", [Container(resources={resource: 1})], node=node.name))
    claim = workloads.special_claim("after")
    devices = given(workloads.report("after"))
    evidence("status after the plugin", pod["status"].get("extendedResourceClaimStatus"))
    evidence("devices after the plugin", devices)
    expect_equal("node of the pod", pod["spec"]["nodeName"], node.name, pod)
    expect_equal("devices in the container", devices, allocated(claim), claim)
