"""Runs bundled drivers beside a cluster: one process per driver, with its sockets in the nodes' folders."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fake_driver.client import DevicePluginClient, DriverClient
from fake_driver.config import ServeConfig
from fake_driver.errors import ConfigError
from fake_driver.inventory.base import Inventory
from fake_driver.inventory.synthetic import load_inventory

from clusters import processes
from clusters.interface import Cluster, Node
from clusters.node_files import NodeFiles, python_here
from harness.errors import EnvironmentBlocked, HarnessError, RequirementFailed, UsageError
from harness.kube import DEVICE_CLASSES, RESOURCE_SLICES, KubeClient
from harness.waiting import NotYet, WaitTimeout, wait_until

BUNDLED_DRIVER = "gpu.dra-harness.dev"
BUNDLED_EXTENDED_RESOURCE = "dra-harness.dev/gpu"
_BUNDLED = "bundled"
_START_SECONDS = 30.0
_REFUSED = 1
"""With this code a driver ends whose slices are refused; see `fake_driver.errors.StartError`."""


@dataclass(frozen=True)
class Started:
    """A process just started."""

    popen: subprocess.Popen[bytes] | None
    """None where it is none of this machine's."""
    log_offset: int
    """Where its own output begins: an earlier process may have written to the same log."""


@dataclass(frozen=True)
class HostedProcess:
    """A process of the bundled driver's program that serves some of a cluster's nodes."""

    name: str
    cluster: Cluster
    owner: str
    """The run that it is for, or `bundled` for the one that comes with the cluster."""

    command: ClassVar[str]
    """The subcommand that it runs."""
    kind: ClassVar[str]
    """What it is, for people."""

    @property
    def directory(self) -> Path:
        """Its settings, control socket and log."""
        return owner_directory(self.cluster, self.owner) / self.name.replace("/", "-")

    @property
    def control_socket(self) -> Path:
        """Where its control endpoint listens."""
        return self.directory / "control.sock"

    @property
    def log(self) -> Path:
        """Its output."""
        return self.directory / "driver.log"

    @property
    def component(self) -> str:
        """How its process is called in the cluster."""
        return f"{self.command}/{self.owner}/{self.name}"

    def write_settings(self, settings: Mapping[str, Any]) -> None:
        """Write its config file."""
        self.directory.mkdir(parents=True, mode=0o700)
        config = {"control": {"socket": str(self.control_socket)}, **settings}
        (self.directory / "config.json").write_text(json.dumps(config, indent=1))

    def start(self) -> Started:
        """Start the process, without waiting for it."""
        logged = self.log.stat().st_size if self.log.exists() else 0
        config = self.directory / "config.json"
        argv: list[str | Path] = [sys.executable, "-P", "-m", "fake_driver", self.command, "--config", config]
        popen = processes.spawn(argv, cluster_id=self.cluster.id, component=self.component, log=self.log)
        return Started(popen, logged)

    def wait_ready(self, started: Started) -> None:
        """Wait until it says that it serves (and, for a DRA driver, that its slices are published).

        Raises:
            RequirementFailed: the API server refused what it publishes.
            HarnessError: it ended otherwise, or was not ready in time; the message has the end of its log.
        """

        assert started.popen
        popen = started.popen

        def ready() -> bool:
            if (code := popen.poll()) is not None:
                raise self.failure(code, processes.tail(self.log))
            return b'"ready": true' in self.log.read_bytes()[started.log_offset :]

        try:
            wait_until(ready, _START_SECONDS, f"{self.kind} {self.name} to be ready", interval=0.02)
        except WaitTimeout as error:
            raise HarnessError(f"{error}\n{processes.tail(self.log)}") from error

    def failure(self, code: int, said: str) -> Exception:
        """What it means that it ended before it was ready, with this exit code and these last words."""
        return HarnessError(f"{self.kind} {self.name} ended with {code}: {said}")

    def kill(self) -> None:
        """End the process at once, as a crash does."""
        processes.kill(self.cluster.id, self.component)

    def stop(self) -> None:
        """End the process as its own shutdown does, and remove its files."""
        processes.kill(self.cluster.id, self.component, grace=10)
        shutil.rmtree(self.directory, ignore_errors=True)


@dataclass(frozen=True)
class HostedDriver(HostedProcess):
    """A DRA driver."""

    command: ClassVar[str] = "serve"
    kind: ClassVar[str] = "driver"

    @property
    def client(self) -> DriverClient:
        """Its control endpoint."""
        return DriverClient(self.control_socket)

    def files(self, node: Node) -> NodeFiles:
        """What it has on a node."""
        own = node.kubelet_dir / "plugins" / self.name
        return NodeFiles(str(own), str(node.cdi_dir), python_here)

    def failure(self, code: int, said: str) -> Exception:
        """As of every process, but for what the API server refused: that is a promise broken."""
        if code == _REFUSED:
            return RequirementFailed(f"the API server takes what driver {self.name} publishes", said)
        return super().failure(code, said)


@dataclass(frozen=True)
class HostedDevicePlugin(HostedProcess):
    """A device plugin."""

    command: ClassVar[str] = "device-plugin"
    kind: ClassVar[str] = "device plugin"

    @property
    def client(self) -> DevicePluginClient:
        """Its control endpoint."""
        return DevicePluginClient(self.control_socket)


def node_settings(node: Node) -> dict[str, Any]:
    """A node as the driver's config file wants it."""
    return {
        "name": node.name,
        "kubeletDir": str(node.kubelet_dir),
        "kubeletDirInNode": node.kubelet_dir_in_node,
        "cdiDir": str(node.cdi_dir),
    }


def owner_directory(cluster: Cluster, owner: str) -> Path:
    """Where the files of a run's drivers are."""
    return cluster.directory / "drivers" / owner


def kill_all(cluster: Cluster, owner: str) -> list[str]:
    """End every driver and plugin of a run that is still there; returns the names of the run's drivers."""
    for process in processes.find(cluster.id):
        if process.component.split("/")[1:2] == [owner]:
            processes.kill(cluster.id, process.component)
    directory = owner_directory(cluster, owner)
    names = [path.name for path in directory.iterdir()] if directory.exists() else []
    shutil.rmtree(directory, ignore_errors=True)
    if cluster.driver_image:
        from clusters import driver_pods

        driver_pods.remove_all(KubeClient.from_kubeconfig(cluster.kubeconfig), owner)
    return names


def why_no_driver(cluster: Cluster) -> str:
    """Why bundled drivers can't serve a cluster's nodes, for people; empty if they can."""
    if cluster.nodes:
        return ""
    return (
        "needs a driver whose faults can be switched: in pods, with --driver-image, or on nodes whose "
        "directories are on this machine"
    )


def _require_nodes(cluster: Cluster) -> None:
    if reason := why_no_driver(cluster):
        raise EnvironmentBlocked(reason)


def prepare_driver(
    cluster: Cluster, name: str, owner: str, *, nodes: Sequence[Node] | None = None, **settings: Any
) -> HostedDriver:
    """Write the settings of a DRA driver on some nodes (default: all); `settings` are keys of its config.

    It is a process beside the cluster, or, if the cluster has an image for it, pods in it.

    Raises:
        EnvironmentBlocked: see `why_no_driver`.
    """
    _require_nodes(cluster)
    driver = _kinds(cluster)[0](name, cluster, owner)
    chosen = cluster.nodes if nodes is None else nodes
    base = {
        "driver": name,
        "kubeconfig": str(cluster.driver_kubeconfig),
        "nodes": [node_settings(node) for node in chosen],
    }
    driver.write_settings({**base, **settings})
    return driver


def _kinds(cluster: Cluster) -> tuple[type[HostedDriver], type[HostedDevicePlugin]]:
    if not cluster.driver_image:
        return HostedDriver, HostedDevicePlugin
    from clusters.driver_pods import PodDevicePlugin, PodDriver  # which are such two

    return PodDriver, PodDevicePlugin


def prepare_device_plugin(
    cluster: Cluster, resource: str, owner: str, counts: Mapping[str, int]
) -> HostedDevicePlugin:
    """Write the settings of a device plugin for `resource`, with so many devices on each named node.

    It is a process beside the cluster, or pods in it, as a driver is.

    Raises:
        EnvironmentBlocked: see `why_no_driver`.
    """
    _require_nodes(cluster)
    plugin = _kinds(cluster)[1](resource, cluster, owner)
    nodes = [
        {"name": node.name, "kubeletDir": str(node.kubelet_dir), "count": counts[node.name]}
        for node in cluster.nodes
        if node.name in counts
    ]
    plugin.write_settings({"resource": resource, "nodes": nodes})
    return plugin


def bundled_inventory(path: Path | None) -> Inventory:
    """Read an inventory profile as the bundled driver does; None stands for the driver's default.

    Raises:
        UsageError: naming the file and key that is wrong, and what was expected.
    """
    try:
        if path is None:
            return load_inventory(ServeConfig.model_fields["inventory"].default, Path())
        return load_inventory(str(path.absolute()), path)
    except ConfigError as error:
        raise UsageError(str(error)) from error


def start_bundled(cluster: Cluster, inventory: Path | None) -> tuple[HostedDriver, Started]:
    """Start the driver that every cluster comes with."""
    settings: dict[str, Any] = {"inventory": str(inventory.absolute())} if inventory else {}
    driver = prepare_driver(cluster, BUNDLED_DRIVER, _BUNDLED, **settings)
    return driver, driver.start()


def wait_for_bundled(driver: HostedDriver, started: Started, client: KubeClient) -> None:
    """Wait until every node has slices of the bundled driver and the kubelets know it; give it a class."""
    try:
        driver.wait_ready(started)
    except RequirementFailed as refused:
        raise EnvironmentBlocked(str(refused)) from refused

    def published() -> bool:
        slices = client.list(RESOURCE_SLICES, fields=f"spec.driver={driver.name}")
        named = {slice_["spec"].get("nodeName") for slice_ in slices}
        missing = {node.name for node in driver.cluster.nodes} - named
        if missing:
            raise NotYet(f"no slices of {', '.join(sorted(missing))}")
        unknown = [node.name for node in driver.client.status().nodes if not node.registered]
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
