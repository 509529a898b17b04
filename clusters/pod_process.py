"""A DaemonSet in the place of a process beside the cluster: started, killed and stopped alike."""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from clusters import driver_chart, manifests
from clusters.driver_host import HostedProcess, Started
from clusters.interface import Cluster
from clusters.local.network import free_ports
from clusters.manifests import DAEMON_SETS
from clusters.pod_proxy import PodProxyTransport
from harness.errors import EnvironmentBlocked, HarnessError, RequirementFailed
from harness.kube import NAMESPACES, PODS, ApiError, KubeClient, Object
from harness.labels import DRIVERS
from harness.waiting import NotYet, wait_until

GONE_SECONDS = 60.0
"""How long pods and their namespace may take to go."""
_START_SECONDS = 60.0
_PORT = 8080
_NOWHERE = {"dra-harness.dev/no-node": "at-all"}
"""A node selector that no node meets: the DaemonSet of a process that was killed."""


class PodProcess(HostedProcess, ABC):
    """Pods that take the place of one process: a release of the chart, in the namespace of its run."""

    @property
    def namespace(self) -> str:
        """Where it runs, with the other drivers of its run."""
        return namespace_of(self.owner)

    @property
    def release(self) -> str:
        """The name of its DaemonSet."""
        stem = self.kind.replace(" ", "-")
        return f"{stem}-{hashlib.sha256(self.name.encode()).hexdigest()[:10]}"

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

    @abstractmethod
    def values(self, settings: Mapping[str, Any], port: int) -> dict[str, Any]:
        """The chart's values that are its own: its settings, and the port of its control endpoint."""

    def transports(self) -> dict[str, PodProxyTransport]:
        """The way to the control endpoint of each of its pods, by node."""
        kube, control = self.kube, self._control()
        return {
            node: PodProxyTransport(
                kube, self.namespace, pod["metadata"]["name"], control["port"], control["token"]
            )
            for node, pod in self._pods(kube).items()
        }

    def exec(self, node: str, command: Sequence[str]) -> str:
        """Run a command in the first container of its pod on a node, and return what it says.

        Raises:
            EnvironmentBlocked: it has no pod there.
            ApiError: the command did not end well.
        """
        kube = self.kube
        pod = self._pods(kube).get(node)
        if pod is None:
            raise EnvironmentBlocked(f"{self.kind} {self.name} has no pod on {node}")
        container = pod["spec"]["containers"][0]["name"]
        return kube.exec(self.namespace, pod["metadata"]["name"], container, command)

    def write_settings(self, settings: Mapping[str, Any]) -> None:
        """Write its config file, and what its control endpoint takes."""
        super().write_settings(settings)
        # In the nodes' own network two of them meet; elsewhere each pod has ports of its own.
        port = free_ports(1)[0] if self.cluster.provider == "local" else _PORT
        control = self.directory / "control.json"
        control.touch(mode=0o600)
        control.write_text(json.dumps({"port": port, "token": secrets.token_hex(32)}))

    def start(self) -> Started:
        """Create its objects, or let the pods of a killed one come back; without waiting.

        Raises:
            EnvironmentBlocked: there is a namespace of that name that the run can't use.
        """
        kube = self.kube
        _ensure_namespace(kube, self.owner)
        if kube.find(DAEMON_SETS, self.release, self.namespace):
            self._restrict(kube, {})
        else:
            manifests.create(kube, self._objects())
        return Started(None, 0)

    def wait_ready(self, started: Started) -> None:
        """Wait until it serves on each of its nodes (and, for a DRA driver, that its slices are published).

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
            wait_until(ready, _START_SECONDS, f"{self.kind} {self.name} in pods to be ready")
        except AssertionError as error:
            if isinstance(error, RequirementFailed):
                raise
            raise HarnessError(str(error)) from error

    def kill(self) -> None:
        """End its containers at once, as a crash does, and keep them from coming back until `start`."""
        kube = self.kube
        self._restrict(kube, _NOWHERE)
        for pod in self._pods(kube).values():
            # Without any grace the pod would be gone before its containers, which have a port and a socket.
            metadata = pod["metadata"]
            kube.delete(PODS, metadata["name"], self.namespace, grace_seconds=1, uid=metadata["uid"])
        self._wait_no_pods(kube)

    def stop(self) -> None:
        """End it as its own shutdown does, and remove its objects and files."""
        kube = self.kube
        manifests.delete_labelled(kube, self._objects(), DRIVERS, self.owner)
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
        control = self._control()
        repository, _, tag = self.cluster.driver_image.rpartition(":")
        # By name: the label kubernetes.io/hostname may say something else. A field takes one value each.
        terms = {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
                for name in sorted(self._nodes())
            ]
        }
        values: dict[str, Any] = {
            "image": {"repository": repository, "tag": tag},
            "labels": {DRIVERS: self.owner},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
            **_network(self.cluster),
            **self.values(self._settings(), control["port"]),
        }
        text = driver_chart.render(driver_chart.helm(), values, name=self.release, namespace=self.namespace)
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": f"{self.release}-control",
                "namespace": self.namespace,
                "labels": {DRIVERS: self.owner},
            },
            "stringData": {"token": control["token"]},
        }
        return manifests.parse(f"{text}\n---\n{json.dumps(secret)}")

    @property
    def _of_its_pods(self) -> str:
        return f"app.kubernetes.io/instance={self.release},{DRIVERS}={self.owner}"

    def _pods(self, kube: KubeClient) -> dict[str, Object]:
        """Its pods that are not being deleted, by node."""
        return {
            pod["spec"]["nodeName"]: pod
            for pod in kube.list(PODS, self.namespace, labels=self._of_its_pods)
            if "deletionTimestamp" not in pod["metadata"] and "nodeName" in pod["spec"]
        }

    def _restrict(self, kube: KubeClient, selector: Mapping[str, str]) -> None:
        whole = {key: selector.get(key) for key in _NOWHERE}  # null takes a key away
        patch = {"spec": {"template": {"spec": {"nodeSelector": whole}}}}
        kube.patch(DAEMON_SETS, self.release, patch, self.namespace)

    def _require_alive(self, kube: KubeClient, pod: Object) -> None:
        for status in pod["status"].get("containerStatuses", ()):
            ended = status["state"].get("terminated") or status.get("lastState", {}).get("terminated")
            if ended is not None:
                raise self.failure(ended["exitCode"], _log(kube, pod))

    def _wait_no_pods(self, kube: KubeClient) -> None:
        wait_until(
            lambda: not kube.list(PODS, self.namespace, labels=self._of_its_pods),
            GONE_SECONDS,
            f"the pods of {self.kind} {self.name} to be gone",
        )


def namespace_of(owner: str) -> str:
    """The namespace of a run's drivers."""
    return f"dra-harness-drivers-{hashlib.sha256(owner.encode()).hexdigest()[:8]}"


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
        if error.status != 409:
            raise
        _require_ours(kube, owner)


def _require_ours(kube: KubeClient, owner: str) -> None:
    """Check that the namespace that is there was made for another driver of the run, and stays."""
    there = kube.find(NAMESPACES, namespace_of(owner)) or {"metadata": {"deletionTimestamp": "now"}}
    metadata = there["metadata"]
    if metadata.get("labels", {}).get(DRIVERS) != owner or "deletionTimestamp" in metadata:
        raise EnvironmentBlocked(
            f"namespace {namespace_of(owner)} is in the way: it is not of run {owner}, or just being deleted"
        )


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
