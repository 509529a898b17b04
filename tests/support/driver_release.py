"""The bundled driver, installed by its manifest on a local cluster."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import yaml
from fake_driver.client import DriverClient

from clusters import driver_chart, manifests
from clusters.interface import Cluster
from clusters.manifests import DAEMON_SETS
from clusters.pod_proxy import PodProxyTransport
from harness.kube import NAMESPACES, PODS, RESOURCE_SLICES, KubeClient, Object
from harness.waiting import NotYet, wait_until
from tests.support.files import tree


@dataclass(frozen=True)
class Release:
    """A driver in pods; its namespace, its DaemonSet and its service account are called as it is."""

    cluster: Cluster
    kube: KubeClient
    name: str
    port: int
    """Of its control endpoint, in the nodes' network."""
    token: str
    objects: list[Object]

    @property
    def driver(self) -> str:
        return f"{self.name}.dra-harness.dev"

    @property
    def resource(self) -> str:
        """Its extended resource."""
        return f"{self.name}.example.com/gpu"

    def pods(self) -> dict[str, Object]:
        """The driver's pods that are ready, by node."""
        pods = self.kube.list(PODS, self.name, labels=f"app.kubernetes.io/instance={self.name}")
        return {pod["spec"]["nodeName"]: pod for pod in pods if _is_ready(pod)}

    def wait_ready(self, without: str = "") -> None:
        """Wait for a ready pod on every node, none of them with the UID `without`."""

        def ready() -> bool:
            uids = {pod["metadata"]["uid"] for pod in self.pods().values()}
            if len(uids) < len(self.cluster.nodes) or without in uids:
                raise NotYet(lambda: json.dumps(self.kube.get(DAEMON_SETS, self.name, self.name)["status"]))
            return True

        wait_until(ready, 60, f"the pods of {self.name} to be ready")

    def client(self, node: str, token: str | None = None) -> DriverClient:
        """The control endpoint of a node's pod, through the API server."""
        pod = self.pods()[node]["metadata"]["name"]
        shown = self.token if token is None else token
        return DriverClient(PodProxyTransport(self.kube, self.name, pod, self.port, shown))

    def slices(self) -> dict[str, Object]:
        """Its slices by node."""
        found = self.kube.list(RESOURCE_SLICES, fields=f"spec.driver={self.driver}")
        return {slice_["spec"]["nodeName"]: slice_ for slice_ in found}

    def files(self) -> set[str]:
        """What lies in the nodes' folders because of this driver."""
        found: set[str] = set()
        for node in self.cluster.nodes:
            base = node.kubelet_dir.parents[1]
            for folder in ("lib/kubelet/plugins", "lib/kubelet/plugins_registry", "run/cdi"):
                found |= {str(path.relative_to(base.parent)) for path in tree(base / folder)}
        return {path for path in found if self.driver in path}


def _is_ready(pod: Object) -> bool:
    conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def server_of(cluster: Cluster) -> dict[str, Any]:
    """The cluster's entry in its kubeconfig."""
    config: dict[str, Any] = yaml.safe_load(cluster.kubeconfig.read_text())
    return dict(config["clusters"][0]["cluster"])


@contextmanager
def installed(cluster: Cluster, kube: KubeClient, name: str, port: int) -> Iterator[Release]:
    """Install a release whose image the nodes have, and delete it in the end."""
    server = urlsplit(server_of(cluster)["server"])
    values: dict[str, Any] = {
        "driver": f"{name}.dra-harness.dev",
        "inventory": "small",
        "deviceClass": {"extendedResourceName": f"{name}.example.com/gpu"},
        "namespace": {"create": True},
        "control": {"enabled": True, "port": port},
        # Pods of a local cluster have a network of their own, from which its API server can't be reached.
        "hostNetwork": True,
        "apiServer": {"host": server.hostname, "port": server.port},
        "image": {"pullPolicy": "Never"},
    }
    text = driver_chart.render(driver_chart.helm(), values, name=name, namespace=name)
    token = secrets.token_hex(32)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"{name}-control", "namespace": name},
        "stringData": {"token": token},
    }
    objects = manifests.parse(f"{text}\n---\n{json.dumps(secret)}")
    release = Release(cluster, kube, name, port, token, objects)
    try:
        manifests.create(kube, objects)
        release.wait_ready()
        yield release
    finally:
        manifests.delete(kube, objects)
        wait_until(lambda: kube.find(NAMESPACES, name) is None, 60, f"namespace {name} to go")
