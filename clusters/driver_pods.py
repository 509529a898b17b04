"""Runs bundled drivers in a cluster's own pods: for nodes whose folders are not on this machine.

Each driver or device plugin is a release of the chart, in one namespace for all of a run. To the checks it is
what one beside the cluster is: started, killed, stopped, and changed through its control endpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fake_driver.client import DevicePluginClient, DriverClient

from clusters.driver_host import HostedDevicePlugin, HostedDriver
from clusters.driver_image.python import ENTRYPOINT
from clusters.driver_pods_client import DevicePluginPodsClient, DriverPodsClient
from clusters.interface import Cluster, Node
from clusters.kubelet import KUBELET_DIR
from clusters.manifests import DAEMON_SETS
from clusters.node_files import NodeFiles
from clusters.pod_process import GONE_SECONDS, PodProcess, namespace_of
from harness.kube import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NAMESPACES, PODS, KubeClient
from harness.labels import DRIVERS
from harness.waiting import wait_until

_CDI_DIR = "/var/run/cdi"
"""The chart's own choice."""
KINDS = (CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NAMESPACES)
"""What drivers in pods have outside of their namespace, and that, in the order in which it can go."""
_OWN_KEYS = ("driver", "kubeconfig", "nodes", "inventory", "control")


class PodDriver(PodProcess, HostedDriver):
    """A DRA driver in pods, with a hosted driver's settings as far as pods don't set them."""

    @property
    def client(self) -> DriverClient:
        """The control endpoints of its pods, as one."""
        return DriverPodsClient(self.transports())

    def files(self, node: Node) -> NodeFiles:
        """What it has on a node, seen from its pod there."""
        own = f"{KUBELET_DIR}/plugins/{self.name}"
        return NodeFiles(own, _CDI_DIR, lambda arguments: self.exec(node.name, [ENTRYPOINT[0], *arguments]))

    def values(self, settings: Mapping[str, Any], port: int) -> dict[str, Any]:
        """See `PodProcess`."""
        values: dict[str, Any] = {
            "driver": self.name,
            "config": {key: value for key, value in settings.items() if key not in _OWN_KEYS},
            "control": {"enabled": True, "port": port},
            "deviceClass": {"create": False},
            # Of a driver that is broken on purpose, the checks are to see everything.
            "sliceAdmissionPolicy": False,
        }
        if "inventory" in settings:
            values["inventory"] = settings["inventory"]
        return values


class PodDevicePlugin(PodProcess, HostedDevicePlugin):
    """A device plugin in pods."""

    @property
    def client(self) -> DevicePluginClient:
        """The control endpoints of its pods, as one."""
        return DevicePluginPodsClient(self.transports())

    def values(self, settings: Mapping[str, Any], port: int) -> dict[str, Any]:
        """See `PodProcess`."""
        plugin = {
            "enabled": True,
            "only": True,
            "resource": self.name,
            "counts": {node["name"]: node["count"] for node in settings["nodes"]},
            "controlPort": port,
        }
        return {"control": {"enabled": True}, "devicePlugin": plugin}


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
        GONE_SECONDS,
        f"the drivers of run {owner} to be gone",
    )
    for resource in KINDS:
        for each in kube.list(resource, labels=f"{DRIVERS}={owner}"):
            kube.delete(resource, each["metadata"]["name"], uid=each["metadata"]["uid"])
    wait_until(
        lambda: not kube.list(NAMESPACES, labels=f"{DRIVERS}={owner}"),
        GONE_SECONDS,
        f"namespace {namespace} to be gone",
    )
