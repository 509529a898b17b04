"""Drivers and device classes of one check: its own names, so that checks share a cluster without meeting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clusters import driver_host
from clusters.driver_host import HostedDevicePlugin, HostedDriver, HostedProcess
from clusters.interface import Cluster, Node
from harness.errors import UsageError
from harness.kube import DEVICE_CLASSES, NODES, RESOURCE_SLICES, KubeClient, Object
from harness.waiting import NotYet, wait_until
from suites.catalogue import Form
from suites.naming import LABEL, Names

IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
_REGISTER_SECONDS = 30.0


@dataclass(frozen=True)
class DeviceClass:
    """A DeviceClass that a check made."""

    name: str
    extended_resource: str = ""
    """Its explicit extended resource name, if it has one."""

    def resource(self, form: Form) -> str:
        """The name by which a pod asks for the class's devices."""
        if form is Form.IMPLICIT:
            return IMPLICIT_PREFIX + self.name
        if not self.extended_resource:
            raise UsageError(f"class {self.name} has no explicit extended resource name")
        return self.extended_resource


class Drivers:
    """Makes drivers and device classes, and takes them away with the check."""

    def __init__(self, cluster: Cluster, kube: KubeClient, names: Names, quirks: Sequence[str] = ()) -> None:
        self.cluster = cluster
        self._quirks = list(quirks)
        self.kube = kube
        self._names = names
        self.hosted: list[HostedProcess] = []
        self._classes: list[str] = []

    def start(
        self,
        *,
        devices: int = 1,
        suffix: str = "gpu",
        nodes: Sequence[Node] | None = None,
        inventory: Any = None,
        **settings: Any,
    ) -> HostedDriver:
        """Start a driver and wait until its slices are published and the kubelets know it.

        Args:
            devices: devices per node, if no inventory is given.
            suffix: tells the check's drivers apart.
            nodes: where it runs; everywhere by default.
            inventory: a whole inventory profile instead.
            settings: further keys of the driver's config file.
        """
        if self._quirks:
            settings.setdefault("quirks", self._quirks)
        profile = inventory or {"devices": [{"preset": "h200", "count": devices}]}
        driver = driver_host.prepare_driver(
            self.cluster,
            self._names.driver(suffix),
            self._names.run_id,
            nodes=nodes,
            inventory=profile,
            **settings,
        )
        self.hosted.append(driver)
        driver.wait_ready(driver.start())
        self.wait_registered(driver)
        return driver

    def wait_registered(self, driver: HostedDriver) -> None:
        """Wait until the kubelet of each of its nodes has registered a driver."""

        def registered() -> bool:
            missing = [node.name for node in driver.client.status().nodes if not node.registered]
            if missing:
                raise NotYet(f"not by {', '.join(missing)}")
            return True

        wait_until(registered, _REGISTER_SECONDS, f"driver {driver.name} to be registered", interval=0.05)

    def start_device_plugin(self, resource: str, counts: dict[str, int]) -> HostedDevicePlugin:
        """Start a device plugin for `resource` with so many devices per node, and wait for allocatable."""
        plugin = driver_host.prepare_device_plugin(self.cluster, resource, self._names.run_id, counts)
        self.hosted.append(plugin)
        plugin.wait_ready(plugin.start())
        for node, count in counts.items():
            self.wait_allocatable(node, resource, count)
        return plugin

    def wait_allocatable(self, node: str, resource: str, count: int) -> None:
        """Wait until a node's allocatable has so many of a resource; 0 is the same as absent."""

        def reached() -> bool:
            allocatable = self.kube.get(NODES, node)["status"]["allocatable"]
            if int(allocatable.get(resource, 0)) != count:
                raise NotYet(allocatable.get(resource))
            return True

        wait_until(reached, 30, f"{count} of {resource} allocatable on {node}")

    def device_class(
        self,
        driver: HostedDriver,
        *,
        suffix: str = "gpu",
        extended_resource: str | None = None,
        cel: str = "true",
        config: Sequence[Object] = (),
    ) -> DeviceClass:
        """Make a DeviceClass of a driver's devices that match `cel`, with entries of `config`.

        `extended_resource`: its explicit name; None takes one of the check's own, "" leaves it without.
        """
        name = self._names.name(suffix)
        if extended_resource is None:
            extended_resource = self._names.extended_resource(suffix)
        manifest = driver_host.device_class(name, driver.name, extended_resource)
        if cel != "true":
            manifest["spec"]["selectors"].append({"cel": {"expression": cel}})
        if config:
            manifest["spec"]["config"] = list(config)
        self.create_class(manifest)
        return DeviceClass(name, extended_resource)

    def create_class(self, manifest: Object) -> Object:
        """Create a DeviceClass that goes with the check."""
        manifest["metadata"].setdefault("labels", {})[LABEL] = self._names.run_id
        self._classes.append(manifest["metadata"]["name"])
        return self.kube.create(DEVICE_CLASSES, manifest)

    def slices(self, driver: HostedDriver) -> list[Object]:
        """The driver's ResourceSlices; they are the check's to change, like what it creates itself."""
        found = self.kube.list(RESOURCE_SLICES, fields=f"spec.driver={driver.name}")
        for slice_ in found:
            self.kube.adopt(RESOURCE_SLICES, slice_)
        return found

    def clear(self) -> None:
        """Stop every driver, with its slices, and delete the classes."""
        for name in self._classes:
            self.kube.delete(DEVICE_CLASSES, name)
        for driver in self.hosted:
            driver.stop()
            if isinstance(driver, HostedDriver):
                for slice_ in self.slices(driver):
                    self.kube.delete(RESOURCE_SLICES, slice_["metadata"]["name"])
