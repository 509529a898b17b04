"""A driver in pods is to the checks what a driver beside the cluster is."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace

import pytest
from fake_driver.client import DriverError

from clusters import driver_host, driver_pods
from clusters.driver_host import HostedDriver
from clusters.driver_pods import PodDriver
from clusters.interface import Cluster
from clusters.manifests import CONFIG_MAPS, DAEMON_SETS, SECRETS
from harness.errors import RequirementFailed
from harness.kube import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    NAMESPACES,
    NODES,
    RESOURCE_SLICES,
    SERVICE_ACCOUNTS,
    KubeClient,
)
from harness.labels import DRIVERS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SMALL = {"devices": [{"count": 2, "name": "dev-{index}"}]}


@pytest.fixture
def cluster(local_cluster: Cluster, driver_image_on_nodes: str) -> Cluster:
    return replace(local_cluster, driver_image=driver_image_on_nodes)


@pytest.fixture
def kube(cluster: Cluster) -> KubeClient:
    return KubeClient.from_kubeconfig(cluster.kubeconfig)


@pytest.fixture
def owner(cluster: Cluster, kube: KubeClient) -> Iterator[str]:
    """A run; its drivers and their slices go with the test."""
    name = f"run-{secrets.token_hex(4)}"
    yield name
    for driver in driver_host.kill_all(cluster, name):
        for slice_ in kube.list(RESOURCE_SLICES, fields=f"spec.driver={driver}"):
            kube.delete(RESOURCE_SLICES, slice_["metadata"]["name"])


def driver_name() -> str:
    return f"t{secrets.token_hex(4)}.dra-harness.dev"


def serving(kube: KubeClient, driver: HostedDriver) -> dict[str, int]:
    """Nodes with slices of the driver, and how many devices these have."""
    slices = kube.list(RESOURCE_SLICES, fields=f"spec.driver={driver.name}")
    return {each["spec"]["nodeName"]: len(each["spec"]["devices"]) for each in slices}


def test_it_starts_is_killed_comes_back_and_stops(cluster: Cluster, kube: KubeClient, owner: str) -> None:
    driver = driver_host.prepare_driver(cluster, driver_name(), owner, inventory=SMALL)
    assert isinstance(driver, PodDriver)

    driver.wait_ready(driver.start())
    assert serving(kube, driver) == {"node-1": 2, "node-2": 2}
    assert {node.name: node.published for node in driver.client.status().nodes} == {
        "node-1": True,
        "node-2": True,
    }
    assert b'"ready": true' in driver.log.read_bytes()

    driver.kill()
    with pytest.raises(DriverError, match="the driver has no pod"):
        driver.client.status()

    driver.wait_ready(driver.start())
    driver.client.set_inventory({"devices": [{"count": 3, "name": "new-{index}"}]}, node="node-2")
    assert serving(kube, driver) == {"node-1": 2, "node-2": 3}

    driver.stop()
    for resource in (DAEMON_SETS, CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS):
        labelled = kube.list(resource, driver.namespace, labels=f"{DRIVERS}={owner}")
        assert (resource.plural, labelled) == (resource.plural, [])
    assert not driver.directory.exists()


def test_it_serves_the_nodes_that_it_is_for(cluster: Cluster, kube: KubeClient, owner: str) -> None:
    driver = driver_host.prepare_driver(
        cluster, driver_name(), owner, nodes=cluster.nodes[1:], inventory=SMALL, health={"enabled": False}
    )
    driver.wait_ready(driver.start())

    assert serving(kube, driver) == {"node-2": 2}
    (node,) = driver.client.status().nodes
    assert node.supported_versions == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]


def test_a_node_is_known_by_its_name_whatever_its_hostname(
    cluster: Cluster, kube: KubeClient, owner: str
) -> None:
    def call_it(hostname: str) -> None:
        kube.patch(NODES, "node-2", {"metadata": {"labels": {"kubernetes.io/hostname": hostname}}})

    call_it("ip-10-0-0-2")
    try:
        driver = driver_host.prepare_driver(cluster, driver_name(), owner, inventory=SMALL)
        driver.wait_ready(driver.start())
        assert serving(kube, driver) == {"node-1": 2, "node-2": 2}
    finally:
        call_it("node-2")


def test_slices_that_are_refused_fail_the_requirement(cluster: Cluster, owner: str) -> None:
    too_long = {"devices": [{"count": 1, "name": "dev", "attributes": {"text": {"string": "x" * 100}}}]}
    driver = driver_host.prepare_driver(cluster, driver_name(), owner, inventory=too_long)

    with pytest.raises(RequirementFailed, match=r"the API server takes what driver .* publishes"):
        driver.wait_ready(driver.start())


def test_a_run_that_is_swept_leaves_nothing(cluster: Cluster, kube: KubeClient, owner: str) -> None:
    names = [driver_name(), driver_name()]
    for name in names:
        driver = driver_host.prepare_driver(cluster, name, owner, nodes=cluster.nodes[:1], inventory=SMALL)
        driver.wait_ready(driver.start())

    assert sorted(driver_host.kill_all(cluster, owner)) == sorted(names)

    for resource in (NAMESPACES, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS):
        assert kube.list(resource, labels=f"{DRIVERS}={owner}") == []
    assert kube.find(NAMESPACES, driver_pods.namespace_of(owner)) is None
