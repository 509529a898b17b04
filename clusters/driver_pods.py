"""Runs bundled drivers in a cluster's own pods: for nodes whose folders are not on this machine.

Each driver is a release of the chart, in one namespace for all drivers of a run. To the checks it is what a
driver beside the cluster is: started, killed, stopped, and changed through its control endpoint.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from fake_driver.client import DriverClient

from clusters import driver_chart, manifests
from clusters.driver_host import HostedDriver, Started
from clusters.driver_pods_client import PodsClient
from clusters.interface import Cluster, Node
from clusters.kubelet import KUBELET_DIR
from clusters.local.network import free_ports
from clusters.manifests import DAEMON_SETS
from clusters.pod_proxy import PodProxyTransport
from harness.errors import HarnessError, RequirementFailed
from harness.kube import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    NAMESPACES,
    PODS,
    ApiError,
    KubeClient,
    Object,
)
from harness.labels import DRIVERS
from harness.waiting import NotYet, wait_until

_START_SECONDS = 60.0
_GONE_SECONDS = 60.0
_PORT = 8080
_NOWHERE = {"dra-harness.dev/no-node": "at-all"}
"""A node selector that no node meets: the DaemonSet of a driver that was killed."""
_REFUSED = 1
"""With this code a driver ends whose slices are refused; see `fake_driver.errors.StartError`."""
_CDI_DIR = "/var/run/cdi"
"""The chart's own choice."""
KINDS = (CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NAMESPACES)
"""What drivers in pods have outside of their namespace, and that, in the order in which it can go."""
_OWN_KEYS = ("driver", "kubeconfig", "nodes", "inventory", "control")


@dataclass(frozen=True)
class PodDriver(HostedDriver):
    """A DRA driver that is a DaemonSet, with a hosted driver's settings as far as pods don't set them."""

    @property
    def namespace(self) -> str:
        """Where it runs, with the other drivers of its run."""
        return namespace_of(self.owner)

    @property
    def release(self) -> str:
        """The name of its DaemonSet."""
        return f"driver-{hashlib.sha256(self.name.encode()).hexdigest()[:10]}"

    @property
    def kube(self) -> KubeClient:
        """The cluster's API, as admin."""
        return KubeClient.from_kubeconfig(self.cluster.kubeconfig)

    @property
    def log(self) -> Path:
        """The output of its pods so far, fetched anew."""
        path = self.directory / "driver.log"
        kube = self.kube
        said = [f"{node}\n{_log(kube, pod)}" for node, pod in sorted(self._pods(kube).items())]
        path.write_text("\n".join(said))
        return path

    @property
    def client(self) -> DriverClient:
        """The control endpoints of its pods, as one."""
        kube = self.kube
        port, token = self._control()["port"], self._control()["token"]
        return PodsClient(
            {
                node: PodProxyTransport(kube, self.namespace, pod["metadata"]["name"], port, token)
                for node, pod in self._pods(kube).items()
            }
        )

    def write_settings(self, settings: Mapping[str, Any]) -> None:
        """Write its config file, and what its control endpoint takes."""
        super().write_settings(settings)
        # In the nodes' own network two drivers meet; elsewhere each pod has ports of its own.
        port = free_ports(1)[0] if self.cluster.provider == "local" else _PORT
        control = self.directory / "control.json"
        control.touch(mode=0o600)
        control.write_text(json.dumps({"port": port, "token": secrets.token_hex(32)}))

    def start(self) -> Started:
        """Create its objects, or let the pods of a killed one come back; without waiting."""
        kube = self.kube
        if kube.find(DAEMON_SETS, self.release, self.namespace):
            self._restrict(kube, {})
        else:
            _ensure_namespace(kube, self.owner)
            manifests.create(kube, self._objects())
        return Started(None, 0)

    def wait_ready(self, started: Started) -> None:
        """Wait until it serves on each of its nodes, with its slices published.

        Raises:
            RequirementFailed: the API server refused what it publishes.
            HarnessError: a pod ended otherwise, or was not ready in time.
        """
        kube, nodes = self.kube, self._nodes()

        def ready() -> bool:
            pods = self._pods(kube)
            for pod in pods.values():
                self._require_alive(kube, pod)
            missing = nodes - {node for node, pod in pods.items() if _is_ready(pod)}
            if missing:
                raise NotYet(lambda: f"not on {', '.join(sorted(missing))}: {_describe(pods)}")
            return True

        try:
            wait_until(ready, _START_SECONDS, f"driver {self.name} in pods to be ready")
        except AssertionError as error:
            if isinstance(error, RequirementFailed):
                raise
            raise HarnessError(str(error)) from error

    def kill(self) -> None:
        """End its containers at once, as a crash does, and keep them from coming back until `start`."""
        kube = self.kube
        self._restrict(kube, _NOWHERE)
        for pod in self._pods(kube).values():
            kube.delete(PODS, pod["metadata"]["name"], self.namespace, grace_seconds=0)
        self._wait_no_pods(kube)

    def stop(self) -> None:
        """End it as its own shutdown does, and remove its objects and files."""
        kube = self.kube
        manifests.delete(kube, self._objects())
        self._wait_no_pods(kube)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = json.loads((self.directory / "config.json").read_text())
        return settings

    def _control(self) -> dict[str, Any]:
        control: dict[str, Any] = json.loads((self.directory / "control.json").read_text())
        return control

    def _nodes(self) -> set[str]:
        return {node["name"] for node in self._settings()["nodes"]}

    def _objects(self) -> list[Object]:
        settings, control = self._settings(), self._control()
        repository, _, tag = self.cluster.driver_image.rpartition(":")
        # By name: the label kubernetes.io/hostname may say something else. A field takes one value each.
        terms = {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
                for name in sorted(self._nodes())
            ]
        }
        values: dict[str, Any] = {
            "driver": self.name,
            "image": {"repository": repository, "tag": tag},
            "config": {key: value for key, value in settings.items() if key not in _OWN_KEYS},
            "control": {"enabled": True, "port": control["port"]},
            "deviceClass": {"create": False},
            # Of a driver that is broken on purpose, the checks are to see everything.
            "sliceAdmissionPolicy": False,
            "labels": {DRIVERS: self.owner},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
            **_network(self.cluster),
        }
        if "inventory" in settings:
            values["inventory"] = settings["inventory"]
        text = driver_chart.render(driver_chart.helm(), values, name=self.release, namespace=self.namespace)
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": f"{self.release}-control", "namespace": self.namespace},
            "stringData": {"token": control["token"]},
        }
        return manifests.parse(f"{text}\n---\n{json.dumps(secret)}")

    def _pods(self, kube: KubeClient) -> dict[str, Object]:
        """Its pods that are not being deleted, by node."""
        labels = f"app.kubernetes.io/instance={self.release}"
        return {
            pod["spec"]["nodeName"]: pod
            for pod in kube.list(PODS, self.namespace, labels=labels)
            if "deletionTimestamp" not in pod["metadata"] and "nodeName" in pod["spec"]
        }

    def _restrict(self, kube: KubeClient, selector: Mapping[str, str]) -> None:
        whole = {key: selector.get(key) for key in _NOWHERE}  # null takes a key away
        patch = {"spec": {"template": {"spec": {"nodeSelector": whole}}}}
        kube.patch(DAEMON_SETS, self.release, patch, self.namespace)

    def _require_alive(self, kube: KubeClient, pod: Object) -> None:
        for status in pod["status"].get("containerStatuses", ()):
            ended = status["state"].get("terminated") or status.get("lastState", {}).get("terminated")
            if ended is None:
                continue
            said = _log(kube, pod)
            if ended["exitCode"] == _REFUSED:
                raise RequirementFailed(f"the API server takes what driver {self.name} publishes", said)
            raise HarnessError(f"driver {self.name} ended with {ended['exitCode']}: {said}")

    def _wait_no_pods(self, kube: KubeClient) -> None:
        labels = f"app.kubernetes.io/instance={self.release}"
        wait_until(
            lambda: not kube.list(PODS, self.namespace, labels=labels),
            _GONE_SECONDS,
            f"the pods of driver {self.name} to be gone",
        )


def namespace_of(owner: str) -> str:
    """The namespace of a run's drivers."""
    return f"dra-harness-drivers-{hashlib.sha256(owner.encode()).hexdigest()[:8]}"


def serving_in_pods(cluster: Cluster, image: str) -> Cluster:
    """A cluster whose bundled drivers are pods of this image, also on nodes that are not of this machine."""
    elsewhere = tuple(
        Node(name, Path(KUBELET_DIR), KUBELET_DIR, Path(_CDI_DIR), here=False)
        for name in cluster.nodes_elsewhere
    )
    return replace(cluster, driver_image=image, nodes=(*cluster.nodes, *elsewhere), nodes_elsewhere=())


def remove_all(kube: KubeClient, owner: str) -> None:
    """Delete every driver in pods that a run has, and their namespace.

    The drivers end first: they take their slices away, as long as they may.
    """
    namespace = namespace_of(owner)
    for each in kube.list(DAEMON_SETS, namespace, labels=f"{DRIVERS}={owner}"):
        kube.delete(DAEMON_SETS, each["metadata"]["name"], namespace, uid=each["metadata"]["uid"])
    wait_until(
        lambda: not kube.list(PODS, namespace, labels=f"{DRIVERS}={owner}"),
        _GONE_SECONDS,
        f"the drivers of run {owner} to be gone",
    )
    for resource in KINDS:
        for each in kube.list(resource, labels=f"{DRIVERS}={owner}"):
            kube.delete(resource, each["metadata"]["name"], uid=each["metadata"]["uid"])
    wait_until(
        lambda: not kube.list(NAMESPACES, labels=f"{DRIVERS}={owner}"),
        _GONE_SECONDS,
        f"namespace {namespace} to be gone",
    )


def _ensure_namespace(kube: KubeClient, owner: str) -> None:
    labels = {DRIVERS: owner, "pod-security.kubernetes.io/enforce": "privileged"}
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": namespace_of(owner), "labels": labels},
    }
    try:
        kube.create(NAMESPACES, namespace)
    except ApiError as error:
        if error.status != 409:  # another driver of the run made it
            raise


def _network(cluster: Cluster) -> dict[str, Any]:
    """How pods reach the API server, where they can't from a network of their own."""
    if cluster.provider != "local":
        return {}
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    server = urlsplit(config["clusters"][0]["cluster"]["server"])
    return {"hostNetwork": True, "apiServer": {"host": server.hostname, "port": server.port}}


def _is_ready(pod: Object) -> bool:
    conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True"


def _log(kube: KubeClient, pod: Object) -> str:
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    said = ""
    for previous in (True, False):
        with contextlib.suppress(ApiError):  # there is no such container (yet)
            said += kube.logs(namespace, name, previous=previous)
    return said[-3000:]


def _describe(pods: Mapping[str, Object]) -> str:
    return json.dumps({node: pod["status"] for node, pod in pods.items()})[:2000]
