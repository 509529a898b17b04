"""A driver or device plugin in pods is to the checks what one beside the cluster is."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_driver.client import DriverError

from clusters import driver_host
from clusters.driver_host import HostedDriver
from clusters.driver_pods import PodDevicePlugin, PodDriver
from clusters.interface import Cluster
from clusters.manifests import CONFIG_MAPS, DAEMON_SETS, SECRETS
from clusters.pod_process import namespace_of
from harness.errors import RequirementFailed
from harness.events import CheckFinished
from harness.journal import read
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
from harness.results import Result
from harness.waiting import NotYet, wait_until
from tests.support.commands import Command

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
    with pytest.raises(DriverError, match="none of its pods is there"):
        driver.client.status()

    driver.wait_ready(driver.start())
    driver.client.set_inventory({"devices": [{"count": 3, "name": "new-{index}"}]}, node="node-2")
    assert serving(kube, driver) == {"node-1": 2, "node-2": 3}

    driver.stop()
    assert of_release(kube, driver) == set()
    assert not driver.directory.exists()


def of_release(kube: KubeClient, process: PodDriver | PodDevicePlugin) -> set[str]:
    """Its objects in the namespace of its run."""
    objects = {
        f"{resource.plural}/{each['metadata']['name']}"
        for resource in (DAEMON_SETS, CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS)
        for each in kube.list(resource, process.namespace)
    }
    return {each for each in objects if f"/{process.release}" in each}


def wait_allocatable(kube: KubeClient, resource: str, **wanted: int) -> None:
    """Wait until the nodes have so many of a resource."""

    def reached() -> bool:
        statuses = {node["metadata"]["name"]: node["status"] for node in kube.list(NODES)}
        found = {name: int(status["allocatable"].get(resource, 0)) for name, status in statuses.items()}
        if found != {name.replace("_", "-"): count for name, count in wanted.items()}:
            raise NotYet(found)
        return True

    wait_until(reached, 30, f"{wanted} of {resource} allocatable")


def sockets(cluster: Cluster, resource: str) -> list[str]:
    """What lies in the kubelets' folders because of a device plugin."""
    name = resource.replace("/", "_")
    return [str(path) for node in cluster.nodes for path in node.kubelet_dir.glob(f"device-plugins/{name}*")]


def test_a_device_plugin_too(cluster: Cluster, kube: KubeClient, owner: str) -> None:
    resource = f"{driver_name()}/gpu"
    plugin = driver_host.prepare_device_plugin(cluster, resource, owner, {"node-1": 1, "node-2": 3})
    assert isinstance(plugin, PodDevicePlugin)

    plugin.wait_ready(plugin.start())
    wait_allocatable(kube, resource, node_1=1, node_2=3)
    assert of_release(kube, plugin) == {
        f"configmaps/{plugin.release}",
        f"daemonsets/{plugin.release}",
        f"secrets/{plugin.release}-control",
        f"serviceaccounts/{plugin.release}",
    }
    assert kube.list(CLUSTER_ROLES, labels=f"{DRIVERS}={owner}") == []
    assert len(sockets(cluster, resource)) == 2

    plugin.client.set_count(2, node="node-2")
    wait_allocatable(kube, resource, node_1=1, node_2=2)

    plugin.kill()
    wait_allocatable(kube, resource, node_1=0, node_2=0)

    plugin.wait_ready(plugin.start())
    wait_allocatable(kube, resource, node_1=1, node_2=3)

    plugin.stop()
    assert of_release(kube, plugin) == set()
    assert sockets(cluster, resource) == []
    assert not plugin.directory.exists()


def test_a_device_plugin_serves_the_nodes_that_it_is_for(
    cluster: Cluster, kube: KubeClient, owner: str
) -> None:
    resource = f"{driver_name()}/gpu"
    plugin = driver_host.prepare_device_plugin(cluster, resource, owner, {"node-2": 1})
    plugin.wait_ready(plugin.start())

    wait_allocatable(kube, resource, node_1=0, node_2=1)
    assert [node.name for node in plugin.client.status().nodes] == ["node-2"]


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

    resource = f"{names[0]}/gpu"
    plugin = driver_host.prepare_device_plugin(cluster, resource, owner, {"node-1": 1})
    plugin.wait_ready(plugin.start())

    assert sorted(driver_host.kill_all(cluster, owner)) == sorted([*names, resource.replace("/", "-")])

    for kind in (NAMESPACES, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS):
        assert kube.list(kind, labels=f"{DRIVERS}={owner}") == []
    assert kube.find(NAMESPACES, namespace_of(owner)) is None
    assert sockets(cluster, resource) == []


def test_checks_that_look_at_a_nodes_folders_find_what_its_pods_left_there(
    cluster: Cluster, dra_harness: Command, tmp_path: Path
) -> None:
    """MD-12 obstructs the driver's files, MD-14 calls its socket, ER-14 has a device plugin before it."""
    done = dra_harness(
        "run",
        "ER-14",
        "MD-12",
        "MD-14",
        "--cluster",
        cluster.name,
        "--driver-image",
        cluster.driver_image,
        "--run-id",
        "in-pods",
    )

    assert done.returncode == 0, done.stdout + done.stderr
    finished = [each for each in read(tmp_path / "results" / "in-pods") if isinstance(each, CheckFinished)]
    assert [(each.check, each.result, each.message) for each in finished if each.result != Result.PASS] == []
    assert len(finished) == 4
