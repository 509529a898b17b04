"""One resource name, served by a device plugin here and by DRA there: ER-12, ER-13 and ER-14."""

from __future__ import annotations

from typing import Any

from clusters.interface import Cluster
from harness.kube import DEPLOYMENTS, PODS, KubeClient, Object
from harness.waiting import NotYet, wait_until
from suites.catalogue import Form
from suites.devices import given
from suites.drivers import Drivers
from suites.evidence import Observations
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
    drivers.start_device_plugin(resource, {plugin_node.name: 1})
    device_class = drivers.device_class(drivers.start(nodes=[dra_node]), extended_resource=resource)
    assert device_class.resource(form) == resource

    _deploy(kube, workloads.namespace, resource, replicas=2)
    pods = _running_pods(kube, workloads.namespace, 2)

    found = {pod["spec"]["nodeName"]: "extendedResourceClaimStatus" in pod["status"] for pod in pods}
    evidence("node of each replica -> has a special claim", found)
    assert found == {plugin_node.name: False, dra_node.name: True}
    assert len(workloads.claims()) == 1
    kube.delete(DEPLOYMENTS, "both", workloads.namespace)


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
        phases = [pod["status"].get("phase") for pod in pods]
        if phases != ["Running"] * count:
            raise NotYet([(pod["metadata"]["name"], pod["status"]) for pod in pods])
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
    plugin = drivers.start_device_plugin(resource, {node.name: 1})
    driver = drivers.start(nodes=[node])
    drivers.device_class(driver, extended_resource=resource)

    pod = workloads.run(pod_manifest("pod", [Container(resources={resource: 1})], node=node.name))

    evidence("claims in the namespace", workloads.claims())
    evidence("calls to the plugin", [call.method for call in plugin.client.calls()])
    assert "extendedResourceClaimStatus" not in pod["status"]
    assert workloads.claims() == []
    assert any(call.method == "Allocate" for call in plugin.client.calls())
    assert not any(call.method == "NodePrepareResources" for call in driver.client.calls())


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
    assert workloads.claims() == [], "the plugin serves first"
    workloads.delete("before")

    plugin.kill()
    drivers.wait_allocatable(node.name, resource, 0)
    drivers.device_class(drivers.start(nodes=[node]), extended_resource=resource)

    pod = workloads.run(pod_manifest("after", [Container(resources={resource: 1})], node=node.name))
    evidence("status after the plugin", pod["status"].get("extendedResourceClaimStatus"))
    evidence("devices after the plugin", given(workloads.report("after")))
    assert pod["spec"]["nodeName"] == node.name
    assert len(given(workloads.report("after"))) == 1
