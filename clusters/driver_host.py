"""Runs bundled drivers beside a cluster: one process per driver, with its sockets in the nodes' folders."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fake_driver.client import DriverClient

from clusters import processes
from clusters.interface import Cluster, Node
from harness.errors import EnvironmentBlocked
from harness.kube import DEVICE_CLASSES, RESOURCE_SLICES, KubeClient
from harness.waiting import NotYet, wait_until

BUNDLED_DRIVER = "gpu.dra-harness.dev"
BUNDLED_EXTENDED_RESOURCE = "dra-harness.dev/gpu"
_START_SECONDS = 30.0


@dataclass(frozen=True)
class HostedDriver:
    """A driver process that serves some of a cluster's nodes."""

    name: str
    cluster: Cluster
    nodes: tuple[Node, ...]
    directory: Path
    """Its settings, control socket and log."""
    kind: str
    """The subcommand that it runs: `serve` or `device-plugin`."""

    @property
    def control_socket(self) -> Path:
        """Where its control endpoint listens."""
        return self.directory / "control.sock"

    @property
    def log(self) -> Path:
        """Its output."""
        return self.directory / "driver.log"

    @property
    def client(self) -> DriverClient:
        """Its control endpoint."""
        return DriverClient(self.control_socket)

    @property
    def component(self) -> str:
        """How its process is called in the cluster."""
        return f"{self.kind}/{self.name}"

    def start(self) -> subprocess.Popen[bytes]:
        """Start the process, without waiting for it."""
        argv = [sys.executable, "-m", "fake_driver", self.kind, "--config", self.directory / "config.json"]
        return processes.spawn(argv, cluster_id=self.cluster.id, component=self.component, log=self.log)

    def wait_ready(self, popen: subprocess.Popen[bytes]) -> None:
        """Wait until it says that it serves (and, for a DRA driver, that its slices are published).

        Raises:
            EnvironmentBlocked: it ended or was not ready in time; the message has the end of its log.
        """

        def ready() -> bool:
            if popen.poll() is not None:
                raise EnvironmentBlocked(f"driver {self.name} ended: {processes.tail(self.log)}")
            return b'"ready": true' in self.log.read_bytes()

        try:
            wait_until(ready, _START_SECONDS, f"driver {self.name} to be ready", interval=0.02)
        except AssertionError as error:
            raise EnvironmentBlocked(f"{error}\n{processes.tail(self.log)}") from error

    def kill(self) -> None:
        """End the process at once, as a crash does."""
        processes.kill(self.cluster.id, self.component)

    def stop(self) -> None:
        """End the process as its own shutdown does, and remove its files."""
        processes.kill(self.cluster.id, self.component, grace=5)
        shutil.rmtree(self.directory, ignore_errors=True)


def prepare(
    cluster: Cluster,
    name: str,
    *,
    kind: str = "serve",
    nodes: Sequence[Node] | None = None,
    settings: Mapping[str, Any],
) -> HostedDriver:
    """Write a driver's settings into the cluster's folder; `settings` are keys of its config file."""
    chosen = tuple(cluster.nodes if nodes is None else nodes)
    directory = cluster.directory / "drivers" / f"{kind}-{name.replace('/', '-')}"
    directory.mkdir(parents=True, mode=0o700)
    driver = HostedDriver(name, cluster, chosen, directory, kind)
    config = {"control": {"socket": str(driver.control_socket)}, **settings}
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    return driver


def node_settings(node: Node) -> dict[str, Any]:
    """A node as the driver's config file wants it."""
    return {
        "name": node.name,
        "kubeletDir": str(node.kubelet_dir),
        "kubeletDirInNode": node.kubelet_dir_in_node,
        "cdiDir": str(node.cdi_dir),
    }


def prepare_dra(
    cluster: Cluster, name: str, *, nodes: Sequence[Node] | None = None, **settings: Any
) -> HostedDriver:
    """Settings of a DRA driver on some nodes (default: all) of the cluster."""
    chosen = cluster.nodes if nodes is None else nodes
    base = {
        "driver": name,
        "kubeconfig": str(cluster.driver_kubeconfig),
        "nodes": [node_settings(node) for node in chosen],
    }
    return prepare(cluster, name, nodes=chosen, settings={**base, **settings})


def start_bundled(cluster: Cluster, inventory: Path | None) -> tuple[HostedDriver, subprocess.Popen[bytes]]:
    """Start the driver that every cluster comes with."""
    settings = {"inventory": str(inventory)} if inventory else {}
    driver = prepare_dra(cluster, BUNDLED_DRIVER, **settings)
    return driver, driver.start()


def wait_for_bundled(driver: HostedDriver, popen: subprocess.Popen[bytes], client: KubeClient) -> None:
    """Wait until every node has slices of the bundled driver and the kubelets know it; give it a class."""
    driver.wait_ready(popen)

    def published() -> bool:
        slices = client.list(RESOURCE_SLICES, fields=f"spec.driver={driver.name}")
        missing = {node.name for node in driver.nodes} - {slice_["spec"].get("nodeName") for slice_ in slices}
        if missing:
            raise NotYet(f"no slices of {', '.join(sorted(missing))}")
        registered = driver.client.status().nodes
        unknown = [name for name, node in registered.items() if not node.registered]
        if unknown:
            raise NotYet(f"not registered with the kubelet of {', '.join(unknown)}")
        return True

    try:
        wait_until(published, _START_SECONDS, f"driver {driver.name} on all nodes", interval=0.05)
    except AssertionError as error:
        raise EnvironmentBlocked(f"{error}\n{processes.tail(driver.log)}") from error
    client.create(DEVICE_CLASSES, device_class(driver.name, driver.name, BUNDLED_EXTENDED_RESOURCE))


def device_class(name: str, driver: str, extended_resource: str = "") -> dict[str, Any]:
    """A DeviceClass of all of a driver's devices."""
    spec: dict[str, Any] = {"selectors": [{"cel": {"expression": f"device.driver == {json.dumps(driver)}"}}]}
    if extended_resource:
        spec["extendedResourceName"] = extended_resource
    return {
        "apiVersion": DEVICE_CLASSES.api_version,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": spec,
    }
