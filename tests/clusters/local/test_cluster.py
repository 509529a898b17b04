"""A local cluster is real, closed to the outside, and leaves the machine as it was."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import psutil
import pytest
import urllib3

from clusters import processes
from clusters.components import CONTROL_PLANE, NODE, BuildSource
from clusters.components.directory import DirectorySource
from clusters.interface import Cluster, ClusterSpec, SilentProgress
from clusters.local.network import free_ports
from clusters.local.provider import LocalProvider
from harness.errors import EnvironmentBlocked, UsageError
from harness.kube import (
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    ApiError,
    KubeClient,
    Object,
    Resource,
)
from harness.waiting import wait_until
from suites.workload import Container, pod_manifest
from tests.support.commands import Command
from tests.support.files import tree
from tests.support.machine import look

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SECRETS = Resource("v1", "secrets", namespaced=True)


@pytest.fixture
def kube(local_cluster: Cluster) -> KubeClient:
    return KubeClient.from_kubeconfig(local_cluster.kubeconfig)


def test_it_is_the_version_that_was_asked_for(local_cluster: Cluster, kube: KubeClient) -> None:
    nodes = kube.list(NODES)

    assert kube.version() == "v1.37.2"
    assert {node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes} == {"v1.37.2"}
    assert [node["metadata"]["name"] for node in nodes] == ["node-1", "node-2"]


def test_the_bundled_driver_serves_every_node(local_cluster: Cluster, kube: KubeClient) -> None:
    slices = kube.list(RESOURCE_SLICES, fields="spec.driver=gpu.dra-harness.dev")

    assert {slice_["spec"]["nodeName"]: len(slice_["spec"]["devices"]) for slice_ in slices} == {
        "node-1": 8,
        "node-2": 8,
    }


def test_every_server_is_on_loopback_only(local_cluster: Cluster) -> None:
    listening = {
        (process.component, address)
        for process in processes.find(local_cluster.id)
        for address in _listens_on(process.pid)
    }

    assert {component for component, _ in listening} >= {"etcd", "kube-apiserver", "kubelet/node-1"}
    assert {address for _, address in listening} == {"127.0.0.1"}


def test_credentials_are_for_their_owner_only(local_cluster: Cluster) -> None:
    files = tree(local_cluster.directory)
    secret = [path for path in files if path.suffix in {".key", ".kubeconfig"} or path.name == "control.sock"]

    assert len(secret) > 10
    assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}


def test_a_node_reads_only_what_its_pods_use(local_cluster: Cluster) -> None:
    node = KubeClient.from_kubeconfig(local_cluster.directory / "kubelet-node-1.kubeconfig")

    for resource in (SECRETS, RESOURCE_CLAIMS):
        with pytest.raises(ApiError) as refused:
            node.get(resource, "foreign", "default")
        assert refused.value.status == 403
        assert "no relationship found" in refused.value.message


def test_the_driver_cannot_write_claims(local_cluster: Cluster) -> None:
    driver = KubeClient.from_kubeconfig(local_cluster.driver_kubeconfig)

    with pytest.raises(ApiError) as refused:
        driver.patch(RESOURCE_CLAIMS, "any", {"metadata": {"labels": {"a": "b"}}}, "default")
    assert refused.value.status == 403


def test_kubelets_refuse_strangers(local_cluster: Cluster, kube: KubeClient) -> None:
    port = kube.get(NODES, "node-1")["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    with urllib3.PoolManager(ca_certs=str(local_cluster.directory / "pki" / "ca.crt")) as pool:
        answer = pool.request("GET", f"https://127.0.0.1:{port}/pods")

    assert answer.status == 401


def test_a_pod_runs_and_its_log_is_read_through_the_api(kube: KubeClient) -> None:
    kube.create(PODS, pod_manifest("runs", [Container(args=["--exit", "3"])]), "default")

    wait_until(
        lambda: kube.get(PODS, "runs", "default")["status"].get("phase") == "Failed", 30, "the pod to end"
    )
    pod = kube.get(PODS, "runs", "default")
    report = json.loads(kube.logs("default", "runs"))
    kube.delete(PODS, "runs", "default")
    wait_until(lambda: kube.find(PODS, "runs", "default") is None, 60, "the pod to be gone")

    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert report["args"] == ["/pod", "--exit", "3"]
    assert not any("dra-harness" in device for device in report["devices"])


def test_two_clusters_side_by_side_one_on_a_port_of_the_users(local_cluster: Cluster) -> None:
    (port,) = free_ports(1)
    provider = LocalProvider(BuildSource())
    second = provider.up(ClusterSpec(name="second", nodes=1, port=port, ephemeral=True), SilentProgress())

    try:
        assert f"https://127.0.0.1:{port}" in second.kubeconfig.read_text()
        with pytest.raises(UsageError, match=f"--port {port}: taken"):
            provider.up(ClusterSpec(name="other", port=port), SilentProgress())
        names = [cluster.name for cluster in provider.list()]
        servers = {
            KubeClient.from_kubeconfig(cluster.kubeconfig).get(NODES, "node-1")["metadata"]["uid"]
            for cluster in (local_cluster, second)
        }
    finally:
        provider.down("second")

    assert names == ["second", "shared"]
    assert len(servers) == 2, "each has a node-1 of its own"
    assert all(status.pid for status in provider.status("shared")), "the first one is untouched"


def test_a_name_that_exists_is_refused(local_cluster: Cluster, dra_harness: Command) -> None:
    before = {process.pid for process in processes.find(local_cluster.id)}

    refused = dra_harness("up", "shared")

    assert refused.returncode == 2
    assert refused.stderr.splitlines() == [
        "error: a cluster named 'shared' exists; choose another name, or first `dra-harness down shared`"
    ]
    assert before <= {process.pid for process in processes.find(local_cluster.id)}
    clusters = local_cluster.directory.parent
    assert [path.name for path in clusters.iterdir()] == ["shared"]


def test_status_and_logs(local_cluster: Cluster, dra_harness: Command) -> None:
    listed = json.loads(dra_harness("status", "shared", "-o", "json").stdout)
    log = dra_harness("logs", "kube-scheduler", "--cluster", "shared", "--tail", "5")

    assert {row["component"] for row in listed} == {
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "containerd/node-1",
        "containerd/node-2",
        "kubelet/node-1",
        "kubelet/node-2",
    }
    assert all(isinstance(row["pid"], int) for row in listed)
    assert log.returncode == 0
    assert 0 < len(log.stdout.splitlines()) <= 5


@pytest.mark.parametrize("broken", ["etcd", "kube-scheduler", "containerd"])
def test_a_component_that_dies_is_named_and_nothing_stays(
    broken: str, state_dir: Path, tmp_path: Path
) -> None:
    before = look(state_dir)
    components = tmp_path / "components"
    components.mkdir()
    for name, path in BuildSource().ensure((*CONTROL_PLANE, *NODE), "v1.37.2").items():
        (components / name).symlink_to(path)
    (components / broken).unlink()
    script = components / broken
    version = '[ "$1" = --version ] && echo "Kubernetes v1.37.2" && exit'
    script.write_text(f"#!/bin/sh\n{version}\necho broke; exit 7\n")
    script.chmod(0o755)
    provider = LocalProvider(DirectorySource(components))

    with pytest.raises(EnvironmentBlocked) as blocked:
        provider.up(ClusterSpec(name="broken", ephemeral=True), SilentProgress())

    assert "broke" in str(blocked.value)
    assert before.difference(look(state_dir)) == {}


def test_down_needs_no_harness_state_of_its_own(state_dir: Path, dra_harness: Command) -> None:
    """`down` in a new process removes what `up` in another one made, and a second `down` says it is gone."""
    before = look(state_dir)
    assert dra_harness("up", "one", "--nodes", "1").returncode == 0

    down = dra_harness("down", "one")
    again = dra_harness("down", "one")

    assert down.returncode == 0
    assert before.difference(look(state_dir)) == {}
    assert again.returncode == 2
    assert again.stderr.strip() == "error: no cluster is named 'one'; there are: none"


def test_components_restart_with_other_gates_while_pods_stay(
    local_cluster: Cluster, kube: KubeClient
) -> None:
    provider = LocalProvider(BuildSource())
    gates = {"DRAConsumableCapacity": False}
    kube.create(PODS, pod_manifest("stays", [Container()]), "default")
    running = _when_running(kube, "stays")
    before = {each.component: each.pid for each in provider.status(local_cluster.name)}

    for component in ("kube-apiserver", "kube-scheduler", "kubelet/node-1"):
        provider.restart(local_cluster.name, component, gates)
    off = _gate(kube, "DRAConsumableCapacity")
    provider.restart(local_cluster.name, "kube-apiserver")

    after = {each.component: each.pid for each in provider.status(local_cluster.name)}
    changed = {component for component, pid in after.items() if pid != before[component]}
    assert changed == {"kube-apiserver", "kube-scheduler", "kubelet/node-1"}
    assert (off, _gate(kube, "DRAConsumableCapacity")) == (0, 1)
    stayed = _when_running(kube, "stays")
    assert stayed["status"]["containerStatuses"] == running["status"]["containerStatuses"]
    kube.delete(PODS, "stays", "default")
    for component in ("kube-scheduler", "kubelet/node-1"):
        provider.restart(local_cluster.name, component)
    with pytest.raises(UsageError, match="no component that can be restarted"):
        provider.restart(local_cluster.name, "etcd")


def _when_running(kube: KubeClient, name: str) -> Object:
    def running() -> Object | None:
        pod = kube.get(PODS, name, "default")
        return pod if pod["status"].get("phase") == "Running" else None

    return wait_until(running, 30, f"pod {name} to run")


def _gate(kube: KubeClient, gate: str) -> int:
    (line,) = [
        line
        for line in kube.metrics().splitlines()
        if line.startswith(f'kubernetes_feature_enabled{{name="{gate}"')
    ]
    return int(float(line.split()[-1]))


def _listens_on(pid: int) -> list[str]:
    try:
        connections = psutil.Process(pid).net_connections("inet")
    except psutil.NoSuchProcess:  # containerd's helpers come and go with its pods
        return []
    return [each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN]
