"""The driver process: one driver name, any number of nodes, and what the control endpoint can ask of it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from fake_driver.calls import Call, CallLog
from fake_driver.config import Quirk, ServeConfig
from fake_driver.control import messages as m
from fake_driver.errors import ClaimError, ConfigError, StartError
from fake_driver.faults import FaultStore
from fake_driver.inventory.base import Inventory, LiveInventory, NodeInventory
from fake_driver.inventory.load import choose_inventory
from fake_driver.inventory.synthetic import load_inventory
from fake_driver.kubeapi.client import ApiClient, ApiError
from fake_driver.kubeapi.kubeconfig import load_access
from fake_driver.node.plugin import NodePlugin
from fake_driver.publishing.publisher import PublishRejected
from fake_driver.services.health import Report

log = logging.getLogger(__name__)

_SOCKET_CHECK_SECONDS = 1.0
_UNHEALTHY_TAINT = {"key": "unhealthy", "effect": "NoExecute"}


class ControlError(Exception):
    """The driver can't do what was asked; nothing was changed."""


class Driver:
    """Serves all configured nodes until it is stopped."""

    def __init__(self, config: ServeConfig, source: Path) -> None:
        """Read everything that can be wrong before anything is touched.

        Raises:
            ConfigError: an inventory or the kubeconfig can't be used.
        """
        self.config = config
        self._source = source
        inventories = _inventories(config, source)
        self._client = ApiClient(load_access(config.kubeconfig))
        self.calls = CallLog()
        self.faults = FaultStore()
        self._quirks = set(config.quirks)
        self._nodes = {
            node.name: NodePlugin(
                config, node, inventory, self._client, self.calls, self.faults, self._quirks
            )
            for node, inventory in zip(config.nodes, inventories, strict=True)
        }
        self._live = {
            node.name: inventory
            for node, inventory in zip(config.nodes, inventories, strict=True)
            if isinstance(inventory, LiveInventory)
        }
        self._taints: dict[str, dict[str, list[dict[str, Any]]]] = {name: {} for name in self._nodes}
        self._change = threading.Lock()
        self.stopping = threading.Event()
        self._uninstall = False
        self._watchdog = threading.Thread(target=self._keep_sockets, name="sockets", daemon=True)

    def start(self) -> None:
        """Serve all nodes and wait until their slices are published.

        Raises:
            StartError: a socket or checkpoint can't be used, or the API server refuses the slices.
        """
        for node in self._nodes.values():
            node.start()
        self._watchdog.start()
        for node in self._nodes.values():
            try:
                node.publisher.wait(self.config.start_timeout_seconds)
            except PublishRejected as error:
                raise StartError(f"the API server refuses the slices of node {node.name}: {error}") from None
            except TimeoutError as error:
                raise StartError(str(error)) from None
        for name, inventory in self._live.items():
            inventory.start(partial(self._publish_live, name, inventory))

    def stop(self) -> None:
        """Finish running calls and leave; with `uninstall` asked for, delete slices and checkpoints too.

        Slices stay otherwise, for a driver that comes back; if none does, the kubelet deletes them after half
        a minute (`defaultWipingDelay` in pkg/kubelet/cm/dra/manager.go).

        Raises:
            StartError: the API server refuses to delete slices.
        """
        self.stopping.set()
        self.faults.clear()
        for inventory in self._live.values():
            inventory.stop()
        for node in self._nodes.values():
            node.stop()
        try:
            if self._uninstall:
                for node in self._nodes.values():
                    node.publisher.delete_slices()
                    node.checkpoint.forget()
            else:
                for node in self._nodes.values():
                    node.state.tidy()
                    if Quirk.TAKES_SLICES_ALONG in self._quirks:
                        node.publisher.delete_slices()
        except ApiError as error:
            raise StartError(f"can't delete the slices: {error}") from None
        finally:
            self._client.close()
            if self._watchdog.is_alive():
                self._watchdog.join()

    def _keep_sockets(self) -> None:
        while not self.stopping.wait(_SOCKET_CHECK_SECONDS):
            for node in self._nodes.values():
                with self._change:
                    if not self.stopping.is_set():
                        self._ensure_sockets(node)

    def _ensure_sockets(self, node: NodePlugin) -> None:
        try:
            node.ensure_sockets()
        except StartError as error:
            log.warning("%s", error)  # the next look may find it possible

    def _publish_live(self, name: str, inventory: LiveInventory) -> None:
        """Publish what the hardware of a node has become, unless another inventory was set since."""
        with self._change:
            if self._live.get(name) is inventory:
                self._nodes[name].publish(inventory.for_node(name), self._taints[name])

    # What the control endpoint offers; each method is one operation.

    def status(self, _: m.Nothing) -> m.Status:
        """Everything there is to know."""
        return m.Status(
            driver=self.config.driver,
            pid=os.getpid(),
            stopping=self.stopping.is_set(),
            metadata_enabled=next(iter(self._nodes.values())).state.metadata_enabled,
            quirks=sorted(self._quirks),
            faults=self.faults.active(),
            nodes=[_node_status(node) for node in self._nodes.values()],
        )

    def find_calls(self, request: m.FindCalls) -> list[Call]:
        """Recorded gRPC calls, oldest first."""
        return self.calls.find(
            node=request.node, method=request.method, claim_uid=request.claim_uid, after=request.after
        )

    def clear_calls(self, _: m.Nothing) -> None:
        """Forget the recorded calls."""
        self.calls.clear()

    def set_inventory(self, request: m.SetInventory) -> None:
        """Publish another inventory, a synthetic one; all nodes asked about get it, or none.

        Raises:
            ConfigError: the profile is wrong.
            ControlError: the API server refuses it, or doesn't answer in time.
        """
        inventory = load_inventory(request.inventory, self._source)
        with self._change:
            wanted = {
                node.name: (inventory.for_node(node.name), self._taints[node.name])
                for node in self._on(request.node)
            }
            self._republish(wanted, request.timeout_seconds)
            replaced = [self._live.pop(name) for name in wanted if name in self._live]
        for live in replaced:
            live.stop()  # which may wait for `_publish_live`, and that for the lock

    def set_taints(self, request: m.SetTaints) -> None:
        """Publish extra taints of a device.

        Raises:
            ControlError: no such device, or the API server refuses.
        """
        if Quirk.KEEPS_TAINTS in self._quirks and not request.taints:
            return
        with self._change:
            wanted = {}
            for node in self._on(request.node):
                self._require_device(node, request.device)
                taints = {
                    **self._taints[node.name],
                    request.device: [taint.api() for taint in request.taints],
                }
                wanted[node.name] = (node.inventory, taints)
            self._republish(wanted, request.timeout_seconds)

    def set_health(self, request: m.SetHealth) -> None:
        """Report another health of a device.

        Raises:
            ControlError: no such device.
        """
        nodes = list(self._on(request.node))
        for node in nodes:
            self._require_device(node, request.device)
        timeout = request.timeout_seconds or self.config.health.timeout_seconds
        for node in nodes:
            node.health.set(request.device, Report(request.health, request.message, timeout))
            if Quirk.HEALTH_TAINTS in self._quirks:
                taint = [_UNHEALTHY_TAINT] if request.health == "Unhealthy" else []
                with self._change:
                    taints = {**self._taints[node.name], request.device: taint}
                    self._republish({node.name: (node.inventory, taints)}, m.PUBLISH_TIMEOUT_SECONDS)

    def set_fault(self, request: m.SetFault) -> int:
        """Put a fault into force and return its id."""
        id_ = self.faults.add(request.fault)
        for node in self._nodes.values():
            node.health.wake()  # streams have to notice
        return id_

    def clear_faults(self, request: m.ClearFaults) -> int:
        """Lift one fault or all, and return how many were lifted."""
        return self.faults.clear(request.id)

    def set_metadata(self, request: m.SetMetadata) -> None:
        """Turn metadata files on or off for claims prepared from now on."""
        for node in self._nodes.values():
            node.state.metadata_enabled = request.enabled

    def update_metadata(self, request: m.UpdateMetadata) -> int:
        """Change the metadata of a prepared claim's request and return its new generation.

        Raises:
            ControlError: no such claim, request or device.
        """
        (node,) = self._on(request.node)
        try:
            return node.state.update_metadata(request.claim_uid, request.request, request.devices)
        except ClaimError as error:
            raise ControlError(str(error)) from None

    def set_quirks(self, request: m.SetQuirks) -> None:
        """Misbehave as asked, from now on."""
        self._quirks.clear()
        self._quirks.update(request.quirks)
        for node in self._nodes.values():
            node.apply_quirks()
            node.publisher.resync()

    def register(self, request: m.OnNode) -> None:
        """Offer the registration socket again."""
        with self._change:
            for node in self._on(request.node):
                node.register()

    def unregister(self, request: m.OnNode) -> None:
        """Take the registration socket away."""
        with self._change:
            for node in self._on(request.node):
                node.unregister()

    def ask_stop(self, _: m.Nothing) -> None:
        """End the process gracefully; slices stay."""
        self.stopping.set()

    def ask_uninstall(self, _: m.Nothing) -> None:
        """End the process gracefully and delete its slices and checkpoints."""
        self._uninstall = True
        self.stopping.set()

    def _republish(
        self, wanted: dict[str, tuple[NodeInventory, dict[str, list[dict[str, Any]]]]], timeout: float
    ) -> None:
        """Publish on some nodes and wait; on failure all of them go back to what they had."""
        before = {name: (self._nodes[name].inventory, self._taints[name]) for name in wanted}
        tickets = {name: self._nodes[name].publish(*wanted[name]) for name in wanted}
        try:
            for name, ticket in tickets.items():
                self._nodes[name].publisher.wait(timeout, ticket)
        except (PublishRejected, TimeoutError) as error:
            for name, old in before.items():
                self._nodes[name].publish(*old)
            raise ControlError(f"node {name}: {error}") from None
        for name, (_, taints) in wanted.items():
            self._taints[name] = taints

    def _on(self, name: str | None) -> Iterator[NodePlugin]:
        if name is None:
            yield from self._nodes.values()
        elif name in self._nodes:
            yield self._nodes[name]
        else:
            raise ControlError(f"node: expected one of {', '.join(self._nodes)}, got {name!r}")

    def _require_device(self, node: NodePlugin, device: str) -> None:
        if node.inventory.device(device) is None:
            raise ControlError(f"device: node {node.name} has no device {device!r}")


def _inventories(config: ServeConfig, source: Path) -> list[Inventory]:
    """The inventory of each node."""
    shared = choose_inventory(config.inventory, source, config.driver)
    inventories = [
        shared
        if node.inventory is None
        else choose_inventory(node.inventory, source, config.driver, f"nodes.{i}.inventory")
        for i, node in enumerate(config.nodes)
    ]
    live = [
        node.name
        for node, inventory in zip(config.nodes, inventories, strict=True)
        if isinstance(inventory, LiveInventory)
    ]
    if len(live) > 1:
        raise ConfigError(
            f"{source}: inventory: nvml is the hardware of one machine; expected it on one node, "
            f"got {', '.join(live)}"
        )
    return inventories


def _node_status(node: NodePlugin) -> m.NodeStatus:
    registration, pool = node.registration.state, node.publisher.status()
    return m.NodeStatus(
        name=node.name,
        registered=registration.registered,
        registration_error=registration.error,
        registrations=registration.registrations,
        supported_versions=registration.supported_versions,
        sockets=[str(path) for path in node.sockets()],
        published=pool.published,
        generation=pool.generation,
        slices=pool.slices,
        dropped_fields=pool.dropped_fields,
        publish_error=pool.error,
        inventory_problem=node.inventory.problem,
        devices=node.device_names(),
        health={device: report.health for device, report in node.health.reports().items()},
        health_streams=node.health.streams,
        prepared_claims=sorted(node.state.prepared()),
    )
