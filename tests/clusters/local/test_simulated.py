"""Simulated nodes: what is sent for them, and what real components make of it."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_driver.inventory.synthetic import load_inventory

from clusters import driver_host
from clusters.components import BuildSource
from clusters.interface import Cluster, ClusterSpec, SilentProgress
from clusters.local import simulated
from clusters.local.provider import LocalProvider
from harness.kube import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, KubeClient, Object, Resource
from harness.waiting import NotYet, wait_until

COUNT = 50
LEASES = Resource("coordination.k8s.io/v1", "leases", namespaced=True)
JOBS = Resource("batch/v1", "jobs", namespaced=True)
MODEL = {
    "status": {
        "nodeInfo": {
            "operatingSystem": "linux",
            "architecture": "arm64",
            "kubeletVersion": "v1.37.2",
            "machineID": "8f7c",
            "systemUUID": "8f7c",
            "bootID": "11aa",
        },
        "declaredFeatures": ["RestartAllContainersOnContainerExits"],
    }
}


def test_node_object_keeps_ordinary_pods_away_and_is_found_by_label() -> None:
    node = simulated.node_object("sim-7", "lab", MODEL, 15)
    assert node["spec"]["taints"] == [{"key": "dra-harness.dev/simulated", "effect": "NoSchedule"}]
    assert node["metadata"]["labels"] == {
        "dra-harness.dev/simulated": "true",
        "dra-harness.dev/cluster": "lab",
        "kubernetes.io/hostname": "sim-7",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "arm64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "arm64",
    }
    assert node["metadata"]["annotations"] == {
        "kwok.x-k8s.io/node": "fake",
        "node.alpha.kubernetes.io/ttl": "15",
    }


@pytest.mark.parametrize(
    ("nodes", "seconds"),
    [(1, 0), (100, 0), (101, 15), (500, 15), (501, 30), (1000, 30), (1001, 60), (2000, 60), (2001, 300)],
)
def test_the_annotation_is_that_of_the_ttl_controller(nodes: int, seconds: int) -> None:
    # ttlBoundaries in pkg/controller/ttl/ttl_controller.go, for a cluster that grows
    assert simulated.ttl(nodes) == seconds


def test_node_object_takes_the_version_and_features_of_the_real_node_but_not_its_identity() -> None:
    status = simulated.node_object("sim-7", "lab", MODEL)["status"]
    assert status["nodeInfo"]["kubeletVersion"] == "v1.37.2"
    assert status["declaredFeatures"] == ["RestartAllContainersOnContainerExits"]
    assert [status["nodeInfo"][key] for key in ("machineID", "systemUUID", "bootID")] == ["", "", ""]
    assert status["allocatable"] == status["capacity"]
    assert status["allocatable"]["pods"] == "110"
    conditions = {entry["type"]: entry["status"] for entry in status["conditions"]}
    assert conditions == {
        "Ready": "True",
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
    }


def test_slices_are_one_pool_that_the_node_owns() -> None:
    inventory = load_inventory({"devices": [{"count": 130, "name": "dev-{index}"}]}, Path("inline"))
    node = {"metadata": {"name": "sim-3", "uid": "u-3"}}
    slices = simulated.slices_of(node, inventory)
    # A slice of plain devices holds 128 (resource.k8s.io/v1 ResourceSliceMaxDevices).
    assert [len(slice_["spec"]["devices"]) for slice_ in slices] == [128, 2]
    assert [slice_["metadata"]["generateName"] for slice_ in slices] == [
        "000-gpu.dra-harness.dev-sim-3-",
        "001-gpu.dra-harness.dev-sim-3-",
    ]
    for slice_ in slices:
        assert slice_["spec"]["driver"] == "gpu.dra-harness.dev"
        assert slice_["spec"]["nodeName"] == "sim-3"
        assert slice_["spec"]["pool"] == {"name": "sim-3", "generation": 1, "resourceSliceCount": 2}
        (owner,) = slice_["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", "sim-3", "u-3")


def test_slices_of_the_default_inventory_tell_nodes_apart() -> None:
    inventory = driver_host.bundled_inventory(None)
    uuids = [
        device["attributes"]["uuid"]["string"]
        for name in ("sim-1", "sim-2")
        for slice_ in simulated.slices_of({"metadata": {"name": name, "uid": name}}, inventory)
        for device in slice_["spec"]["devices"]
    ]
    assert len(uuids) == 16
    assert len(set(uuids)) == 16


def test_kwok_config_manages_only_nodes_with_our_label_and_opens_no_port() -> None:
    options, *stages = simulated.kwok_config()
    assert options["kind"] == "KwokConfiguration"
    assert options["options"]["manageNodesWithLabelSelector"] == "dra-harness.dev/simulated=true"
    assert options["options"].keys().isdisjoint({"nodePort", "serverAddress", "manageAllNodes", "enableCRDs"})
    names = Counter((stage["spec"]["resourceRef"]["kind"], stage["metadata"]["name"]) for stage in stages)
    assert names == Counter(
        [("Node", "node-ready"), ("Pod", "pod-run"), ("Pod", "pod-complete"), ("Pod", "pod-delete")]
    )
    for stage in stages:
        assert stage["apiVersion"] == "kwok.x-k8s.io/v1alpha1"
        assert stage["kind"] == "Stage"


def test_kwok_renews_leases_well_within_the_node_controllers_patience() -> None:
    # kwok: every quarter of the duration, 4 % jitter; node-monitor-grace-period: 50 s.
    options = simulated.kwok_config()[0]["options"]
    assert options["nodeLeaseDurationSeconds"] / 4 * 1.04 < 50 / 1.5


@pytest.fixture(scope="module")
def simulation() -> Iterator[Cluster]:
    provider = LocalProvider(BuildSource())
    name = f"sim-{secrets.token_hex(3)}"
    spec = ClusterSpec(name=name, nodes=1, simulated_nodes=COUNT, ephemeral=True)
    cluster = provider.up(spec, SilentProgress())
    try:
        yield cluster
    finally:
        provider.down(name)


@pytest.fixture(scope="module")
def sim_kube(simulation: Cluster) -> KubeClient:
    return KubeClient.from_kubeconfig(simulation.kubeconfig)


def sim_pod(name: str, *, tolerates: bool = True, **metadata: Any) -> Object:
    spec: Object = {
        "nodeSelector": {"dra-harness.dev/simulated": "true"},
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "initContainers": [{"name": "init", "image": "none.invalid/none"}],
        "containers": [
            {
                "name": "main",
                "image": "none.invalid/none",
                "resources": {"limits": {"dra-harness.dev/gpu": "1"}},
            }
        ],
    }
    if tolerates:
        spec["tolerations"] = [{"key": "dra-harness.dev/simulated", "operator": "Exists"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def wait_for_phase(kube: KubeClient, name: str, phase: str) -> Object:
    def reached() -> Object:
        pod = kube.get(PODS, name, "default")
        if pod["status"]["phase"] != phase:
            raise NotYet(pod["status"])
        return pod

    return wait_until(reached, 20, f"pod {name} to be {phase}")


def special_claims(kube: KubeClient, pod: str) -> list[Object]:
    claims = kube.list(RESOURCE_CLAIMS, "default")
    return [
        claim
        for claim in claims
        if any(owner["name"] == pod for owner in claim["metadata"].get("ownerReferences", ()))
    ]


@pytest.mark.integration
def test_all_simulated_nodes_are_ready_and_kwok_holds_their_leases(
    simulation: Cluster, sim_kube: KubeClient
) -> None:
    nodes = sim_kube.list(NODES, labels="dra-harness.dev/simulated=true")
    assert {node["metadata"]["name"] for node in nodes} == {f"sim-{n}" for n in range(1, COUNT + 1)}
    for node in nodes:
        conditions = {entry["type"]: entry["status"] for entry in node["status"]["conditions"]}
        assert conditions == {
            "Ready": "True",
            "MemoryPressure": "False",
            "DiskPressure": "False",
            "PIDPressure": "False",
        }
        assert [taint["key"] for taint in node["spec"]["taints"]] == ["dra-harness.dev/simulated"]
    leases = {lease["metadata"]["name"]: lease for lease in sim_kube.list(LEASES, "kube-node-lease")}
    holders = {leases[node["metadata"]["name"]]["spec"]["holderIdentity"] for node in nodes}
    assert len(holders) == 1
    assert simulation.simulated_nodes == COUNT
    assert [node.name for node in simulation.nodes] == ["node-1"]
    assert "simulated nodes Ready" in simulation.phases


@pytest.mark.integration
def test_kwok_is_one_of_the_clusters_processes(simulation: Cluster) -> None:
    status = {entry.component: entry for entry in LocalProvider(BuildSource()).status(simulation.name)}
    pid = status["kwok"].pid
    assert pid is not None
    assert status["kwok"].log.read_text() == ""  # a right that it lacks, or a stage that fails, would be here
    sockets = [link.readlink().name for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
    inodes = {name.removeprefix("socket:[").rstrip("]") for name in sockets if name.startswith("socket:")}
    listening = {
        fields[9]
        for table in ("tcp", "tcp6")
        for fields in map(str.split, Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:])
        if fields[3] == "0A"
    }
    assert not inodes & listening


@pytest.mark.integration
def test_a_restarted_bundled_driver_leaves_the_simulated_slices_alone(
    simulation: Cluster, sim_kube: KubeClient
) -> None:
    name = driver_host.BUNDLED_DRIVER

    def simulated_slices() -> dict[str, str]:
        slices = sim_kube.list(RESOURCE_SLICES, fields=f"spec.driver={name}")
        return {
            slice_["metadata"]["uid"]: slice_["spec"]["nodeName"]
            for slice_ in slices
            if slice_["spec"]["nodeName"] != "node-1"
        }

    before = simulated_slices()
    assert Counter(before.values()) == {f"sim-{n}": 1 for n in range(1, COUNT + 1)}
    driver = driver_host.HostedDriver(name, simulation, "bundled")
    driver.kill()
    driver.wait_ready(driver.start())
    assert simulated_slices() == before


@pytest.mark.integration
def test_a_pod_gets_a_device_of_its_simulated_node_runs_and_goes(sim_kube: KubeClient) -> None:
    sim_kube.create(PODS, sim_pod("gpu"), "default")
    pod = wait_for_phase(sim_kube, "gpu", "Running")
    status = pod["status"]
    assert {entry["type"] for entry in status["conditions"] if entry["status"] == "True"} >= {"Ready"}
    assert status["containerStatuses"][0]["ready"] is True
    assert status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert status["podIP"].startswith("240.")
    (claim,) = special_claims(sim_kube, "gpu")
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert (result["driver"], result["pool"]) == (driver_host.BUNDLED_DRIVER, pod["spec"]["nodeName"])
    assert status["extendedResourceClaimStatus"]["resourceClaimName"] == claim["metadata"]["name"]

    sim_kube.delete(PODS, "gpu", "default")
    wait_until(lambda: sim_kube.find(PODS, "gpu", "default") is None, 60, "the pod to be gone")
    wait_until(lambda: not special_claims(sim_kube, "gpu"), 30, "its claim to be gone")


@pytest.mark.integration
def test_a_pod_completes_after_the_time_in_its_annotation(sim_kube: KubeClient) -> None:
    annotations = {"dra-harness.dev/complete-after": "0.3s"}
    sim_kube.create(PODS, sim_pod("short", annotations=annotations), "default")
    status = wait_for_phase(sim_kube, "short", "Succeeded")["status"]
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert {entry["status"] for entry in status["conditions"] if entry["type"] == "Ready"} == {"False"}
    wait_until(lambda: not special_claims(sim_kube, "short"), 30, "the claim of the finished pod to be gone")
    sim_kube.delete(PODS, "short", "default")


@pytest.mark.integration
def test_a_job_completes(sim_kube: KubeClient) -> None:
    template = {"spec": sim_pod("template")["spec"]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "batch"},
        "spec": {"completions": 3, "parallelism": 3, "template": template},
    }
    sim_kube.create(JOBS, job, "default")

    def complete() -> bool:
        status = sim_kube.get(JOBS, "batch", "default")["status"]
        if "completionTime" not in status:
            raise NotYet(status)
        return bool(status["succeeded"] == 3)

    assert wait_until(complete, 20, "the job to complete")


@pytest.mark.integration
def test_a_pod_without_the_toleration_stays_away(sim_kube: KubeClient) -> None:
    sim_kube.create(PODS, sim_pod("ordinary", tolerates=False), "default")

    def refused() -> str:
        conditions = sim_kube.get(PODS, "ordinary", "default")["status"].get("conditions", [])
        scheduled: Object = next((c for c in conditions if c["type"] == "PodScheduled"), {})
        if scheduled.get("reason") != "Unschedulable":
            raise NotYet(conditions)
        return str(scheduled["message"])

    message = wait_until(refused, 20, "the scheduler to refuse the pod")
    assert f"{COUNT} node(s) had untolerated taint" in message
    sim_kube.delete(PODS, "ordinary", "default")
