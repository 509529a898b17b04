"""Provider kind on a real Docker daemon."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters import metrics
from clusters.components import BuildSource
from clusters.interface import Cluster, ClusterSpec, SilentProgress
from clusters.kind import docker, node_image, nodes
from clusters.kind.provider import KindProvider
from clusters.kind.state import KindState
from harness.errors import EnvironmentBlocked, UsageError
from harness.kube import NODES, RESOURCE_SLICES, KubeClient
from harness.waiting import wait_until
from load import commandline
from tests.support.commands import Command

pytestmark = [pytest.mark.kind, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def provider() -> KindProvider:
    """What makes the clusters."""
    return KindProvider(BuildSource())


@pytest.fixture(scope="module")
def cluster(
    docker_host: str, tmp_path_factory: pytest.TempPathFactory, provider: KindProvider
) -> Iterator[Cluster]:
    """One worker; shared by the tests that leave it as it was."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRA_HARNESS_STATE", str(tmp_path_factory.mktemp("kind")))
        patch.setenv("DOCKER_HOST", docker_host)
        _remove("dra-harness-shared")
        made = provider.up(ClusterSpec(name="shared", nodes=1, ephemeral=True), SilentProgress())
        yield made
        provider.down("shared")
        assert not _containers("dra-harness-shared")
        assert not made.directory.exists()


@pytest.fixture
def kube(cluster: Cluster) -> KubeClient:
    """The admin's client."""
    return KubeClient.from_kubeconfig(cluster.kubeconfig)


def test_the_driver_serves_the_worker_from_this_machine(cluster: Cluster, kube: KubeClient) -> None:
    slices = kube.list(RESOURCE_SLICES)

    assert {slice_["spec"]["nodeName"] for slice_ in slices} == {node.name for node in cluster.nodes}
    (node,) = cluster.nodes
    sockets = {path.name for path in (node.kubelet_dir / "plugins_registry").iterdir()}
    assert any(name.endswith("-reg.sock") for name in sockets), sockets
    assert (node.kubelet_dir / "device-plugins" / "kubelet.sock").is_socket()


def test_all_components_are_seen(cluster: Cluster, provider: KindProvider) -> None:
    found = {each.component: each for each in provider.status(cluster.name)}

    (node,) = cluster.nodes
    assert {"etcd", "kube-apiserver", "kube-scheduler", f"kubelet/{node.name}"} <= set(found)
    assert all(each.pid for each in found.values())
    provider.collect_logs(cluster.name)
    assert all(each.log.stat().st_size for each in found.values())
    assert "Caches are synced" in found["kube-scheduler"].log.read_text()


@pytest.mark.parametrize("component", ["kube-scheduler", "kube-controller-manager"])
def test_metrics_are_read_over_loopback(cluster: Cluster, kube: KubeClient, component: str) -> None:
    samples = metrics.read(cluster, kube, component, prefixes=["process_start_time_seconds"])

    assert len(samples) == 1
    assert cluster.endpoints[component].startswith("https://127.0.0.1:")


def test_a_component_restarts_with_other_flags_and_gates_and_goes_back(
    cluster: Cluster, provider: KindProvider, kube: KubeClient
) -> None:
    control_plane = f"dra-harness-{cluster.name}-control-plane"
    (before,) = nodes.running(control_plane, "kube-scheduler")

    gate = {"DRASchedulerFilterTimeout": False}
    provider.restart(cluster.name, "kube-scheduler", gates=gate, flags={"kube-api-qps": "77"})
    (changed,) = nodes.running(control_plane, "kube-scheduler")
    provider.restart(cluster.name, "kube-scheduler")
    (after,) = nodes.running(control_plane, "kube-scheduler")

    assert before.pid != changed.pid != after.pid
    assert {"--kube-api-qps=77", "--feature-gates=DRASchedulerFilterTimeout=false"} <= set(changed.arguments)
    assert after.arguments == before.arguments
    assert (commandline.flags(cluster, kube, "kube-scheduler") or {})["leader-elect"] == "false"


def test_a_kubelet_restarts_with_another_gate(
    cluster: Cluster, provider: KindProvider, kube: KubeClient
) -> None:
    (node,) = cluster.nodes
    enabled = "kubernetes_feature_enabled"

    def gate() -> float:
        samples = metrics.read(cluster, kube, f"kubelet/{node.name}", prefixes=[enabled])
        return metrics.total(samples, enabled, name="DRASchedulerFilterTimeout")

    before = gate()
    provider.restart(cluster.name, f"kubelet/{node.name}", gates={"DRASchedulerFilterTimeout": not before})
    changed = gate()
    provider.restart(cluster.name, f"kubelet/{node.name}")

    assert changed == 1 - before
    assert gate() == before


def test_the_api_server_restarts(cluster: Cluster, provider: KindProvider, kube: KubeClient) -> None:
    provider.restart(cluster.name, "kube-apiserver")

    assert len(kube.list(NODES)) == 2


def test_a_name_that_is_taken_is_refused(cluster: Cluster, provider: KindProvider) -> None:
    with pytest.raises(UsageError, match="a kind cluster named 'shared' exists"):
        provider.up(ClusterSpec(name="shared", nodes=1), SilentProgress())


@pytest.mark.parametrize("moment", ["a node is asked for", "a node is there"])
def test_killed_while_nodes_are_made_it_leaves_nothing(
    docker_host: str, state_dir: Path, monkeypatch: pytest.MonkeyPatch, dra_harness: Command, moment: str
) -> None:
    """The daemon makes a container that it was asked for also when the client is dead, and may take long."""
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    _remove("dra-harness-dead")
    before = _volumes()
    command = [sys.executable, "-m", "cli.main", "up", "dead", "--provider", "kind", "--nodes", "1"]
    come = {
        "a node is asked for": lambda: _runs(b"docker", b"run", b"dra-harness-dead-worker"),
        "a node is there": lambda: bool(_containers("dra-harness-dead")),
    }
    try:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as popen:
            wait_until(come[moment], 120, moment, interval=0.01)
            popen.send_signal(signal.SIGKILL)

        done = dra_harness("down", "--all", timeout=120)

        assert done.returncode == 0, done.stderr
        assert not _containers("dra-harness-dead")
        assert all(_is_free(f"dra-harness-dead-{node}") for node in ("control-plane", "worker"))
        assert not KindState.folder().exists()
        assert _volumes() <= before, "volumes stay"
    finally:
        _remove("dra-harness-dead")


def test_an_image_that_is_no_node_image_is_refused(
    docker_host: str, state_dir: Path, monkeypatch: pytest.MonkeyPatch, dra_harness: Command
) -> None:
    monkeypatch.setenv("DOCKER_HOST", docker_host)

    done = dra_harness("up", "x", "--provider", "kind", "--node-image", "dra-harness.dev/no-such:v1")

    assert done.returncode == 3
    assert done.stderr.startswith("error: docker run: ")
    assert not KindState.folder().exists()


def _remove(kind_name: str) -> None:
    """Remove what a failed or killed test left: the daemon's data, with it containers, outlives the tests."""
    if left := _containers(kind_name):
        docker.run(["rm", "--force", "--volumes", *left])


def _is_free(name: str) -> bool:
    """Whether a container can have this name, which is taken from the first moment of its making on."""
    image, *_ = docker.run(["image", "ls", "--quiet", node_image.REPOSITORY]).split()
    try:
        docker.run(["create", "--name", name, image])
    except EnvironmentBlocked:
        return False
    docker.run(["rm", "--volumes", name])
    return True


def _runs(*words: bytes) -> bool:
    """Whether some process has all these words on its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if set(words) <= set(path.read_bytes().split(b"\0")):
                return True
    return False


def _containers(kind_name: str) -> list[str]:
    return docker.run(
        ["ps", "--all", "--quiet", "--filter", f"label=io.x-k8s.kind.cluster={kind_name}"]
    ).split()


def _volumes() -> set[str]:
    return set(docker.run(["volume", "ls", "--quiet", "--filter", "dangling=true"]).split())
