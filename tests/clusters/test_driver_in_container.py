"""The driver as a pod of its chart, on real nodes: what it does, what it may not, and what stays of it."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_driver.client import DriverError
from fake_driver.node.cdi import parse_environment

from clusters import manifests
from clusters.interface import Cluster
from clusters.manifests import DAEMON_SETS, SECRETS
from harness.kube import (
    NAMESPACES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SERVICE_ACCOUNTS,
    ApiError,
    KubeClient,
    Object,
)
from harness.waiting import wait_until
from suites.workload import Container, Workloads, pod_manifest
from tests.harness.api_server import write_config
from tests.support.driver_release import Release, installed, server_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

WIPED_SECONDS = 60.0
"""A kubelet deletes the slices of a driver that has been gone for 30 s."""


@pytest.fixture(scope="session")
def kube(local_cluster: Cluster) -> KubeClient:
    return KubeClient.from_kubeconfig(local_cluster.kubeconfig)


@pytest.fixture(scope="session")
def release(local_cluster: Cluster, kube: KubeClient, driver_image_on_nodes: str) -> Iterator[Release]:
    with installed(local_cluster, kube, "in-pods", 18080) as release:
        yield release


@pytest.fixture
def workloads(kube: KubeClient) -> Iterator[Workloads]:
    name = f"work-{secrets.token_hex(4)}"
    kube.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    workloads = Workloads(kube, name)
    yield workloads
    workloads.clear()
    kube.delete(NAMESPACES, name)


def user(name: str, release: Release, node: str = "") -> Object:
    """A pod that asks for one device."""
    return pod_manifest(name, [Container(resources={release.resource: 1})], node=node)


def claim_uid(workloads: Workloads, pod: str) -> str:
    (claim,) = workloads.claims(pod)
    return str(claim["metadata"]["uid"])


def prepared(release: Release, node: str) -> list[str]:
    return release.client(node).status().nodes[0].prepared_claims


def test_each_pod_publishes_its_own_nodes_devices(release: Release) -> None:
    assert {
        node: [device["name"] for device in slice_["spec"]["devices"]]
        for node, slice_ in release.slices().items()
    } == {"node-1": ["dev-0", "dev-1"], "node-2": ["dev-0", "dev-1"]}


def test_a_pod_gets_its_device(release: Release, workloads: Workloads) -> None:
    workloads.run(user("user", release, "node-2"))

    report = workloads.report("user")
    environment = "\n".join(f"{name}={value}" for name, value in report["env"].items())
    (seen,) = parse_environment(environment, release.driver)
    assert (seen.pool, seen.claim_uid) == ("node-2", claim_uid(workloads, "user"))
    assert f"/dev/dra-harness/{release.driver}/{seen.device}" in report["devices"]


def test_control_comes_through_the_api_servers_proxy(release: Release) -> None:
    client = release.client("node-1")
    status = client.status()
    assert (status.driver, [node.name for node in status.nodes]) == (release.driver, ["node-1"])
    # A kubelet looks for new drivers once a second; the pod is Ready as soon as its slices are there.
    wait_until(lambda: client.status().nodes[0].registered, 60, "the kubelet to register the driver")
    assert status.pid == 1

    release.client("node-1").set_taints("dev-1", [{"key": "example.com/odd", "effect": "NoSchedule"}])
    (taint,) = release.slices()["node-1"]["spec"]["devices"][1]["taints"]
    assert taint["key"] == "example.com/odd"
    release.client("node-1").set_taints("dev-1", [])


@pytest.mark.parametrize("token", ["", "not-the-token-of-this-driver"])
def test_without_the_token_nothing_is_answered(release: Release, token: str) -> None:
    with pytest.raises(DriverError, match=r"^expected the control token"):
        release.client("node-1", token).status()

    pod = release.pods()["node-1"]["metadata"]["name"]
    with pytest.raises(ApiError) as refused:
        release.kube.request(
            "POST", f"{PODS.path(release.name, f'{pod}:{release.port}', 'proxy')}/status", body={}
        )
    assert refused.value.status == 401


def test_prepared_claims_outlive_the_drivers_pod(release: Release, workloads: Workloads) -> None:
    workloads.run(user("stays", release, "node-1"))
    uid = claim_uid(workloads, "stays")
    assert prepared(release, "node-1") == [uid]

    old = release.pods()["node-1"]["metadata"]
    release.kube.delete(PODS, old["name"], release.name)
    release.wait_ready(without=old["uid"])

    assert prepared(release, "node-1") == [uid]
    assert workloads.get("stays")["status"]["phase"] == "Running"
    workloads.delete("stays")
    wait_until(lambda: prepared(release, "node-1") == [], 30, "the claim to be released")


@pytest.fixture
def as_driver(release: Release, tmp_path: Path) -> KubeClient:
    """A client with the rights of the driver's pod on node-1."""
    pod = release.pods()["node-1"]["metadata"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["name"], "uid": pod["uid"]}
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"boundObjectRef": bound},
    }
    path = SERVICE_ACCOUNTS.path(release.name, release.name, "token")
    token = json.loads(release.kube.request("POST", path, body=request))["status"]["token"]
    cluster = server_of(release.cluster)
    server = cluster.pop("server")
    config = write_config(tmp_path / "config", server, {"token": token}, **cluster)
    return KubeClient.from_kubeconfig(config)


def slice_of(node: str, driver: str) -> Object:
    return {
        "apiVersion": RESOURCE_SLICES.api_version,
        "kind": "ResourceSlice",
        "metadata": {"generateName": "tried-"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": "tried", "generation": 1, "resourceSliceCount": 1},
            "devices": [],
        },
    }


def test_a_driver_writes_slices_of_its_own_node_only(release: Release, as_driver: KubeClient) -> None:
    refusal = "a driver on node node-1 may not write slices of node node-2"
    with pytest.raises(ApiError, match=refusal):
        as_driver.create(RESOURCE_SLICES, slice_of("node-2", release.driver))
    with pytest.raises(ApiError, match=refusal):
        as_driver.delete(RESOURCE_SLICES, release.slices()["node-2"]["metadata"]["name"])

    as_driver.create(RESOURCE_SLICES, slice_of("node-1", release.driver), dry_run=True)
    as_driver.replace(RESOURCE_SLICES, release.slices()["node-1"])


def test_a_driver_writes_slices_of_its_own_name_only(release: Release, as_driver: KubeClient) -> None:
    refusal = re.escape(f"expected a slice of {release.driver}, got one of other.example.com")
    with pytest.raises(ApiError, match=refusal):
        as_driver.create(RESOURCE_SLICES, slice_of("node-1", "other.example.com"))


def test_a_driver_reports_on_devices_of_its_own_nodes_claims_only(
    release: Release, as_driver: KubeClient, workloads: Workloads
) -> None:
    def report(pod: str) -> None:
        (claim,) = workloads.claims(pod)
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        entry = {key: result[key] for key in ("driver", "pool", "device")}
        name, patch = claim["metadata"]["name"], {"status": {"devices": [entry]}}
        as_driver.patch(RESOURCE_CLAIMS, name, patch, workloads.namespace, subresource="status")

    for node in ("node-1", "node-2"):
        workloads.run(user(node, release, node))

    report("node-1")
    with pytest.raises(ApiError, match=r"status\.devices requires resource=\"resourceclaims/driver\""):
        report("node-2")


@pytest.mark.parametrize("resource", [SECRETS, PODS, DAEMON_SETS])
def test_a_driver_reads_nothing_else(release: Release, as_driver: KubeClient, resource: Any) -> None:
    with pytest.raises(ApiError) as refused:
        as_driver.list(resource, release.name)
    assert refused.value.status == 403


def test_its_containers_have_no_capability_and_few_places_to_write(release: Release) -> None:
    # A local node's pods are this machine's processes.
    processes = [
        path
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if all(word in _command_line(path) for word in (b"fake_driver", b"/usr/bin/python3.11"))
    ]
    assert processes
    for path in processes:
        lines = (path.parent / "status").read_text().splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        assert {status[f"Cap{each}"] for each in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        mounts = [line.split() for line in (path.parent / "mounts").read_text().splitlines()]
        options = {point: options.split(",") for _, point, _, options, *_ in mounts}
        assert "ro" in options["/"]
        assert {point for point, each in options.items() if "rw" in each and "/var/" in point} == {
            "/var/lib/kubelet/plugins/in-pods.dra-harness.dev",
            "/var/lib/kubelet/plugins_registry",
            "/var/run/cdi",
        }


def _command_line(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it ended meanwhile
        return b""


def test_a_release_that_is_deleted_leaves_an_empty_folder_at_most(
    local_cluster: Cluster, kube: KubeClient, driver_image_on_nodes: str, workloads: Workloads
) -> None:
    with installed(local_cluster, kube, "goes", 18081) as release:
        workloads.run(user("user", release))
        assert any("_claim_" in path for path in release.files())
        workloads.delete("user")
    wait_until(lambda: release.slices() == {}, WIPED_SECONDS, "the kubelets to delete the slices")

    plugins = f"lib/kubelet/plugins/{release.driver}"
    assert release.files() == {f"{node}/{plugins}" for node in ("node-1", "node-2")}
    assert [each["kind"] for each in release.objects if manifests.find(kube, each)] == []
