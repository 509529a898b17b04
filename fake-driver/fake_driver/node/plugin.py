"""One node's driver: its sockets, its claims, its pool."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from fake_driver.calls import CallLog
from fake_driver.config import NodeConfig, Quirk, ServeConfig
from fake_driver.faults import FaultStore
from fake_driver.inventory.base import Inventory, NodeInventory
from fake_driver.inventory.misplaced import misplaced
from fake_driver.kubeapi.client import ApiClient
from fake_driver.node.cdi import CdiWriter
from fake_driver.node.checkpoint import Checkpoint
from fake_driver.node.metadata import MetadataPaths, MetadataWriter
from fake_driver.node.state import NodeIdentity, NodeState
from fake_driver.publishing.publisher import PoolPublisher
from fake_driver.publishing.split import MAX_DEVICES, MAX_DEVICES_RICH, split
from fake_driver.services.dra import dra_service
from fake_driver.services.guard import Guard
from fake_driver.services.health import HealthBoard, health_service
from fake_driver.services.registration import Registration
from fake_driver.services.socket_server import SocketServer

SOCKET_PATH_LIMIT = 107  # bytes, without the closing NUL
Taints = Mapping[str, Sequence[dict[str, Any]]]


def socket_names(driver: str, instance: str | None, kubelet_dir: str) -> tuple[str, str]:
    """File names of the registration and the DRA socket.

    A name with the whole instance in it is shortened to a hash where the kubelet's path would get too long.
    """
    if instance is None:
        return f"{driver}-reg.sock", "dra.sock"
    digest = hashlib.sha256(instance.encode()).hexdigest()
    whole = hashlib.sha256(f"{driver}/{instance}".encode()).hexdigest()
    registration = [f"{driver}-{instance}", f"{driver}-{digest[:8]}", f"dra-{whole[:16]}"]
    service = [f"dra-{instance}.sock", f"dra-{digest[:8]}.sock"]
    return (
        _fitting(f"{kubelet_dir}/plugins_registry", [f"{name}-reg.sock" for name in registration]),
        _fitting(f"{kubelet_dir}/plugins/{driver}", service),
    )


def _fitting(directory: str, names: Sequence[str]) -> str:
    fits = (name for name in names if len(f"{directory}/{name}".encode()) <= SOCKET_PATH_LIMIT)
    return next(fits, names[-1])


class NodePlugin:
    """Everything that the driver does for one node."""

    def __init__(
        self,
        config: ServeConfig,
        node: NodeConfig,
        inventory: Inventory,
        client: ApiClient,
        log: CallLog,
        faults: FaultStore,
        quirks: set[Quirk],
    ) -> None:
        self.name = node.name
        self.inventory: NodeInventory = inventory.for_node(node.name)
        self._quirks = quirks
        self._grace = config.stop_grace_seconds
        guard = Guard(node.name, log, faults)
        plugin_dir = node.kubelet_dir / "plugins" / config.driver
        plugin_dir.mkdir(parents=True, exist_ok=True)
        node.cdi_dir.mkdir(parents=True, exist_ok=True)
        in_node = PurePosixPath(node.kubelet_dir_in_node) / "plugins" / config.driver
        self.checkpoint = Checkpoint(plugin_dir)
        paths = MetadataPaths(config.driver, plugin_dir, in_node, node.cdi_dir)
        self.state = NodeState(
            NodeIdentity(config.driver, node.name),
            client,
            self.checkpoint,
            CdiWriter(config.driver, config.cdi_class, node.cdi_dir, quirks),
            MetadataWriter(paths, list(config.metadata.versions), quirks),
            lambda: self.inventory,
            quirks,
        )
        self.state.metadata_enabled = config.metadata.enabled
        self.health = HealthBoard(
            node.name, self.device_names, config.health, quirks, lambda: self.inventory.health
        )
        self._build_servers(config, node, guard, in_node)
        contents = split(misplaced(self.inventory, quirks), {})
        self.publisher = PoolPublisher(client, config.driver, node.name, contents)
        self.apply_quirks()

    def _build_servers(
        self, config: ServeConfig, node: NodeConfig, guard: Guard, plugin_dir_in_node: PurePosixPath
    ) -> None:
        reg_name, dra_name = socket_names(config.driver, config.instance, node.kubelet_dir_in_node)
        health_versions = config.health.versions if config.health.enabled else []
        versions = [f"{version}.DRAPlugin" for version in config.api_versions]
        versions += [f"{version}.DRAResourceHealth" for version in health_versions]
        self.registration = Registration(config.driver, str(plugin_dir_in_node / dra_name), versions, guard)
        services = [dra_service(version, self.state, guard, self._quirks) for version in config.api_versions]
        services += [health_service(version, self.health, guard) for version in health_versions]
        self._service = SocketServer(node.kubelet_dir / "plugins" / config.driver / dra_name, services)
        registry = node.kubelet_dir / "plugins_registry"
        self._registrar = SocketServer(registry / reg_name, [self.registration.register])

    def start(self) -> None:
        """Restore prepared claims, serve, and begin to publish.

        Raises:
            StartError: the checkpoint or a socket can't be used.
        """
        self.state.restore()
        self._service.start()
        self._registrar.start()
        self.publisher.start()

    def register(self) -> None:
        """Offer the registration socket to the kubelet (again)."""
        if not self._registrar.running:
            self._registrar.start()

    def unregister(self) -> None:
        """Take the registration socket away, and go on otherwise."""
        self._registrar.stop(self._grace)
        self.registration.state.registered = False

    def ensure_sockets(self) -> None:
        """Make sockets anew that somebody removed."""
        self._service.ensure()
        self._registrar.ensure()

    def stop(self) -> None:
        """Leave the kubelet, finish running calls, stop publishing; slices and prepared claims stay."""
        self.unregister()
        self._service.stop(self._grace)
        self.publisher.stop()

    def device_names(self) -> list[str]:
        """The names of the node's devices."""
        return [device["name"] for device in self.inventory.devices]

    def publish(self, inventory: NodeInventory, taints: Taints) -> int:
        """Use `inventory` with extra `taints` from now on; returns the publisher's ticket."""
        self.inventory = inventory
        self.health.wake()
        rich = MAX_DEVICES if Quirk.OVERFULL_SLICES in self._quirks else MAX_DEVICES_RICH
        return self.publisher.want(split(misplaced(inventory, self._quirks), taints, rich=rich))

    def apply_quirks(self) -> None:
        """Hand the quirks on that the publisher has to know."""
        self.publisher.restores = Quirk.NO_SLICE_RESTORE not in self._quirks
        self.publisher.count_error = int(Quirk.WRONG_SLICE_COUNT in self._quirks)
        self.publisher.keeps_old = Quirk.KEEPS_OLD_SLICES in self._quirks
        self.publisher.trusts_old = Quirk.TRUSTS_OLD_SLICES in self._quirks
        self.publisher.hides_refusals = Quirk.HIDES_REFUSALS in self._quirks
        self.publisher.renumbers = Quirk.NUMA_RENUMBERS in self._quirks

    def sockets(self) -> list[Path]:
        """The socket files, the registration one first."""
        return [self._registrar.path, self._service.path]
