"""Provider `local`: brings real Kubernetes up as processes, and takes all of it away again."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import filelock

from clusters import driver_host, processes
from clusters.components import CONTROL_PLANE, NODE, SIMULATION, ComponentSource
from clusters.components.image import write_archive
from clusters.components.locations import origin
from clusters.interface import Cluster, ClusterSpec, ComponentStatus, Progress
from clusters.local import (
    bootstrap,
    control_plane,
    machine,
    network,
    preflight,
    restart,
    simulated,
    teardown,
)
from clusters.local.layout import Layout, Ports, write_credentials
from clusters.local.node import LocalNode, nodes_of
from clusters.local.state import ClusterState
from clusters.records import new_id
from harness.errors import HarnessError
from harness.kube import KubeClient

_APISERVER_SECONDS = 60.0
_CONTROLLER_SECONDS = 30.0


class LocalProvider:
    """Clusters made of plain processes on this machine.

    Args:
        source: gives the programs of clusters that are brought up. One that is there keeps those that it
            was made from, also when a component of it is restarted.
    """

    name = "local"

    def __init__(self, source: ComponentSource) -> None:
        self._source = source
        self._locks: dict[str, filelock.BaseFileLock] = {}

    def up(self, spec: ClusterSpec, progress: Progress) -> Cluster:
        """Bring a cluster up: control plane, real nodes, the bundled driver with its slices published."""
        preflight.require(spec)
        if spec.port:
            network.require_port(spec.port)
        driver_host.bundled_inventory(spec.inventory)  # a wrong one ends here, before anything is made
        teardown.sweep()
        ClusterState.require_free(spec.name)
        wanted = (*CONTROL_PLANE, *NODE, *(SIMULATION if spec.simulated_nodes else ()))
        programs = self._source.ensure(wanted, spec.kubernetes, progress.components)
        layout = self._reserve(spec, programs)
        try:
            return _BringUp(spec, layout, progress).run()
        except BaseException as error:
            try:
                teardown.remove(layout.state)
            except HarnessError as left:
                error.add_note(f"and not everything could be removed: {left}")
            raise

    def attach(self, name: str) -> Cluster:
        """Find a cluster that is up."""
        return ClusterState.attach(name)

    def down(self, name: str, *, force: bool = False) -> None:
        """Remove a cluster and everything of it; see `teardown.take_down`."""
        if name in self._locks:
            self._locks.pop(name).release()
        teardown.take_down(ClusterState.load(name), force=force)

    def collect_logs(self, name: str) -> None:
        """Nothing to do: they are written where they are read."""

    def sweep(self) -> None:
        """Remove whatever killed runs left behind, and what is left of clusters whose files are gone."""
        teardown.sweep()
        teardown.clear_lost()

    def list(self) -> Sequence[Cluster]:
        """All local clusters of this user, also those left half-way."""
        return [found.cluster() for found in ClusterState.every()]

    def status(self, name: str) -> Sequence[ComponentStatus]:
        """The processes that the cluster should have, and where they log."""
        found = ClusterState.load(name)
        expected = [*control_plane.COMPONENTS]
        expected += [f"{program}/{node}" for node in found.nodes for program in ("containerd", "kubelet")]
        expected += [simulated.COMPONENT] if found.simulated_nodes else []
        logs = found.directory / "logs"
        return [
            ComponentStatus(
                component=component,
                pid=processes.main_pid(found.id, component, component.split("/")[0]),
                log=logs / f"{component.replace('/', '-')}.log",
            )
            for component in expected
        ]

    def load_image(self, name: str, archive: Path) -> None:
        """Bring an image to every real node; see `LoadsImages`."""
        self.attach(name)
        for node in nodes_of(Layout.of(ClusterState.load(name))):
            node.import_image(archive)

    def restart(
        self,
        name: str,
        component: str,
        gates: Mapping[str, bool] | None = None,
        flags: Mapping[str, str] | None = None,
    ) -> None:
        """Restart one component; see `ClusterProvider.restart`."""
        restart.restart(Layout.of(ClusterState.load(name), gates, flags), component)

    def _reserve(self, spec: ClusterSpec, programs: Mapping[str, Path]) -> Layout:
        """Take a name, an id and an address block, and write them down, before anything is started."""
        with machine.lock():
            ClusterState.require_free(spec.name)
            slot = network.free_slot(machine.taken_slots())
            apiserver, *others = network.free_ports(5 + 2 * spec.nodes)
            ports = Ports(spec.port or apiserver, *others[:4])
            kubelet_ports = others[4:]
            reserved = ClusterState(
                id=new_id(),
                name=spec.name,
                kubernetes=spec.kubernetes,
                profile=spec.profile,
                nodes=tuple(f"node-{index}" for index in range(1, spec.nodes + 1)),
                slot=slot,
                simulated_nodes=spec.simulated_nodes,
                gates=dict(spec.gates),
                ports=asdict(ports),
                kubelet_ports=tuple(zip(kubelet_ports[::2], kubelet_ports[1::2], strict=True)),
                programs=dict(programs),
                origin=origin(programs[control_plane.APISERVER]),
            )
            reserved.save()
            machine.register(reserved.id, slot, reserved.path)
            self._locks[spec.name] = reserved.maker_lock()
            self._locks[spec.name].acquire()
        return Layout.of(reserved)


class _BringUp:
    """One bring-up, phase by phase; what doesn't depend on each other runs side by side."""

    def __init__(self, spec: ClusterSpec, layout: Layout, progress: Progress) -> None:
        self._spec = spec
        self._layout = layout
        self._progress = progress
        self._started = time.monotonic()
        self._phases: dict[str, float] = {}
        self._nodes = nodes_of(layout)

    def run(self) -> Cluster:
        layout = self._layout
        write_credentials(layout)
        for node in self._nodes:
            network.add_address(layout.state.id, node.address)
            node.prepare()
        control_plane.prepare(layout)
        storage = (control_plane.ETCD, control_plane.APISERVER)
        started = {component: control_plane.start(layout, component) for component in storage}
        self._reached("processes started")
        with ThreadPoolExecutor(thread_name_prefix="up") as pool:
            runtimes = [pool.submit(self._start_runtime, node) for node in self._nodes]
            client = control_plane.wait_for_apiserver(layout, started, _APISERVER_SECONDS)
            self._reached("API server ready")
            bootstrap.apply(client)
            controllers = {
                component: control_plane.start(layout, component)
                for component in (control_plane.CONTROLLER_MANAGER, control_plane.SCHEDULER)
            }
            for runtime in runtimes:
                runtime.result()
            self._reached("runtimes ready")
        kubelets = {node.name: node.start_kubelet() for node in self._nodes}
        return self._finish(client, kubelets, controllers)

    def _start_runtime(self, node: LocalNode) -> None:
        node.start_init()
        node.start_containerd()
        archive = node.directory / "images.tar"
        write_archive(self._layout.programs["pod"], archive)
        node.import_image(archive)
        archive.unlink()

    def _finish(
        self,
        client: KubeClient,
        kubelets: Mapping[str, subprocess.Popen[bytes]],
        controllers: Mapping[str, subprocess.Popen[bytes]],
    ) -> Cluster:
        cluster = self._layout.state.cluster()
        driver, started = driver_host.start_bundled(cluster, self._spec.inventory)
        bootstrap.wait_for_nodes(client, kubelets, self._layout)
        control_plane.wait_for_controllers(self._layout, controllers, _CONTROLLER_SECONDS)
        self._reached("nodes Ready")
        driver_host.wait_for_bundled(driver, started, client)
        self._reached("slices published")
        if self._spec.simulated_nodes:
            simulated.bring_up(cluster, self._layout.programs["kwok"], client, self._spec.inventory)
            self._reached("simulated nodes Ready")
        ready = self._layout.state.model_copy(
            update={
                "ready": True,
                "kept": not self._spec.ephemeral,
                "driver": driver_host.BUNDLED_DRIVER,
                "seconds": round(time.monotonic() - self._started, 2),
                "phases": self._phases,
            }
        )
        ready.save()
        return ready.cluster()

    def _reached(self, phase: str) -> None:
        seconds = round(time.monotonic() - self._started, 2)
        self._phases[phase] = seconds
        self._progress.reached(phase, seconds)
