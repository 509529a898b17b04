"""Provider `kind`: Kubernetes in containers, made by the real tool, with the bundled driver on workers."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import yaml

from clusters import driver_host, processes
from clusters.components import KIND, PROGRAMS, ComponentSource
from clusters.components.image import write_archive
from clusters.interface import Cluster, ClusterSpec, ComponentStatus, Progress
from clusters.kind import (
    config,
    credentials,
    docker,
    logs,
    node_image,
    nodes,
    preflight,
    removal,
    restart,
    tool,
)
from clusters.kind.state import NODE_FOLDERS, KindState
from clusters.local import bootstrap, cgroups, network, simulated
from clusters.local.node import has_cap_sys_resource
from clusters.node_ready import all_take_pods
from clusters.profiles import feature_gates
from clusters.records import new_id
from harness.errors import EnvironmentBlocked, HarnessError, UsageError
from harness.files import write_atomically
from harness.kube import KubeClient
from harness.waiting import WaitTimeout, wait_until

_CREATE_SECONDS = 300.0
_READY_SECONDS = 120.0
_LOAD_SECONDS = 120.0
_DAEMON_SETS = "/apis/apps/v1/namespaces/kube-system/daemonsets"


class KindProvider:
    """Clusters of nodes that are containers of Docker."""

    name = "kind"

    def __init__(self, source: ComponentSource, image: str | None = None) -> None:
        self._source = source
        self._image = image
        self._locks: dict[str, filelock.BaseFileLock] = {}

    def up(self, spec: ClusterSpec, progress: Progress) -> Cluster:
        """Bring a cluster up: `spec.nodes` workers beside the control plane, and the bundled driver."""
        preflight.require(spec, builds=self._image is None)
        if spec.port:
            network.require_port(spec.port)
        driver_host.bundled_inventory(spec.inventory)  # a wrong one ends here, before anything is made
        try:
            self.sweep()
        except HarnessError as error:  # none of this cluster's
            progress.warn(str(error))
        KindState.require_free(spec.name)
        programs = self._programs(spec, progress)
        image = self._image or node_image.ensure(self._source, spec.kubernetes, progress.components)
        reserved = self._reserve(spec, image, programs["kind"])
        try:
            return _BringUp(spec, reserved, programs, progress).run()
        except BaseException as error:
            try:
                removal.remove(reserved)
            except HarnessError as left:
                error.add_note(f"and not everything could be removed: {left}")
            raise

    def attach(self, name: str) -> Cluster:
        """Find a cluster that is up."""
        return KindState.attach(name)

    def down(self, name: str, *, force: bool = False) -> None:
        """Remove a cluster and everything of it; see `ClusterProvider.down`."""
        found = KindState.load(name)
        if name in self._locks:
            self._locks.pop(name).release()
        with found.taken(force=force):
            removal.remove(found)

    def sweep(self) -> None:
        """Remove what killed runs left: clusters that were not to be kept and whose maker is gone.

        Raises:
            EnvironmentBlocked: naming those that could not be removed; all the others were.
        """
        failed = []
        for found in KindState.every():
            try:
                with found.orphaned() as orphaned:
                    if orphaned:
                        removal.remove(found)
            except HarnessError as error:
                failed.append(f"cluster {found.name!r} of a run that ended can't be removed: {error}")
        if failed:
            raise EnvironmentBlocked("; ".join(failed))

    def list(self) -> Sequence[Cluster]:
        """All kind clusters of this user, also those left half-way."""
        return [found.cluster() for found in KindState.every()]

    def status(self, name: str) -> Sequence[ComponentStatus]:
        """The processes that the cluster should have, and where `collect_logs` puts their logs."""
        found = KindState.load(name)
        statuses = []
        for component in logs.components(found):
            program, _, node = component.partition("/")
            statuses.append(_status(found, component, _pid(node or found.control_plane, program)))
        if found.simulated_nodes:
            kwok = simulated.COMPONENT
            statuses.append(_status(found, kwok, processes.main_pid(found.id, kwok, kwok)))
        return statuses

    def collect_logs(self, name: str) -> None:
        """Bring the logs of the cluster's components out of its nodes; see `logs.collect`."""
        logs.collect(name)

    def load_image(self, name: str, archive: Path) -> None:
        """Bring an image to every worker; see `LoadsImages`."""
        _load_archive(KindState.load(name), archive)

    def restart(
        self,
        name: str,
        component: str,
        gates: Mapping[str, bool] | None = None,
        flags: Mapping[str, str] | None = None,
    ) -> None:
        """Restart one component; see `ClusterProvider.restart`."""
        restart.restart(KindState.load(name), component, gates, flags)

    def _programs(self, spec: ClusterSpec, progress: Progress) -> dict[str, Path]:
        wanted = [PROGRAMS["pod"]]
        if spec.simulated_nodes:
            wanted.append(PROGRAMS[simulated.COMPONENT])
        on_path = shutil.which("kind")
        if on_path is None:
            wanted.append(KIND)
        programs = dict(self._source.ensure(wanted, spec.kubernetes, progress.components))
        return programs if on_path is None else programs | {"kind": Path(on_path)}

    def _reserve(self, spec: ClusterSpec, image: str, kind: Path) -> KindState:
        """Take a name, and write it down, before anything is made."""
        reserved = KindState(
            id=new_id(),
            name=spec.name,
            kubernetes=spec.kubernetes,
            profile=spec.profile,
            nodes=spec.nodes,
            node_image=image,
            kind=kind,
            docker_host=docker.environment().get("DOCKER_HOST", ""),
            simulated_nodes=spec.simulated_nodes,
            gates=dict(spec.gates),
        )
        reserved.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = reserved.maker_lock()
        try:
            lock.acquire(blocking=False)  # first: a record that nobody holds is swept
        except filelock.Timeout:
            raise UsageError(f"a kind cluster named {spec.name!r} is just being made") from None
        try:
            KindState.require_free(spec.name)  # another command may have made it while programs were built
            reserved.save()
        except BaseException:
            lock.release()
            raise
        self._locks[spec.name] = lock
        return reserved


def image_version(image: str) -> str:
    """The Kubernetes version of a node image, where kind itself looks for it.

    Raises:
        EnvironmentBlocked: it is no node image, or Docker can't get it.
    """
    return docker.run(["run", "--rm", "--entrypoint", "cat", image, "/kind/version"]).strip()


def _pid(node: str, program: str) -> int | None:
    try:
        running = nodes.running(node, program)
    except EnvironmentBlocked:
        return None
    return running[0].pid if running else None


def _status(found: KindState, component: str, pid: int | None) -> ComponentStatus:
    log = found.directory / "logs" / f"{component.replace('/', '-')}.log"
    return ComponentStatus(component, pid, log)


def _load_archive(of: KindState, archive: Path) -> None:
    nodes = ["--name", of.kind_name, "--nodes", ",".join(of.workers)]
    tool.run(of, ["load", "image-archive", archive, *nodes], _LOAD_SECONDS)


@dataclass
class _BringUp:
    """One bring-up, phase by phase."""

    spec: ClusterSpec
    state: KindState
    programs: Mapping[str, Path]
    progress: Progress

    def run(self) -> Cluster:
        self._started = time.monotonic()
        self._phases: dict[str, float] = {}
        self._make_folders()
        self._create()
        self._reached("nodes made")
        credentials.write(self.state, self.state.kubeconfig("kind"))
        self._note_ports()
        restart.remember(self.state)
        client = KubeClient.from_kubeconfig(self.state.kubeconfig("admin"))
        bootstrap.admit_driver(client)
        cluster = self.state.cluster()
        driver, started = driver_host.start_bundled(cluster, self.spec.inventory)
        self._load_images()
        self._wait_for_nodes(client)
        self._reached("nodes Ready")
        driver_host.wait_for_bundled(driver, started, client)
        self._reached("slices published")
        if self.spec.simulated_nodes:
            _keep_daemon_sets_off(client, simulated.SIMULATED)
            simulated.bring_up(cluster, self.programs[simulated.COMPONENT], client, self.spec.inventory)
            self._reached("simulated nodes Ready")
        seconds = round(time.monotonic() - self._started, 2)
        ready = {
            "ready": True,
            "kept": not self.spec.ephemeral,
            "seconds": seconds,
            "phases": self._phases,
        }
        self._update(ready)
        return self.state.cluster()

    def _make_folders(self) -> None:
        for index in range(1, self.state.nodes + 1):
            for folder in NODE_FOLDERS:
                (self.state.node_dir(index) / folder).mkdir(parents=True)
        (self.state.directory / "pod-logs").mkdir()

    def _create(self) -> None:
        own_gates = feature_gates(self.state.profile, self.state.kubernetes)
        document = config.document(
            self.state,
            {**own_gates, **self.state.gates},
            port=self.spec.port,
            kubelet_gates={} if has_cap_sys_resource() else {"KubeletInUserNamespace": True},
            own_image=node_image.is_ours(self.state.node_image),
            fail_cgroup_v1=None if cgroups.is_v2() else False,
        )
        path = self.state.directory / "kind.yaml"
        write_atomically(path, yaml.safe_dump(document, sort_keys=False))
        image = self.state.node_image
        create: list[str | Path] = ["create", "cluster", "--config", path, "--image", image]
        tool.run(self.state, create, _CREATE_SECONDS)

    def _note_ports(self) -> None:
        published = nodes.published(self.state.control_plane)
        ports = {component: published[f"{port}/tcp"] for component, port in config.METRICS_PORTS.items()}
        self._update({"ports": ports})

    def _load_images(self) -> None:
        archive = self.state.directory / "images.tar"
        write_archive(self.programs["pod"], archive)
        _load_archive(self.state, archive)
        archive.unlink()

    def _wait_for_nodes(self, client: KubeClient) -> None:
        def ready() -> bool:
            return all_take_pods(client, self.state.workers)

        try:
            wait_until(ready, _READY_SECONDS, "all workers to be Ready", interval=0.1)
        except WaitTimeout as error:
            raise EnvironmentBlocked(str(error)) from error

    def _update(self, what: Mapping[str, Any]) -> None:
        self.state = self.state.model_copy(update=dict(what))
        self.state.save()

    def _reached(self, phase: str) -> None:
        seconds = round(time.monotonic() - self._started, 2)
        self._phases[phase] = seconds
        self.progress.reached(phase, seconds)


def _keep_daemon_sets_off(client: KubeClient, label: str) -> None:
    """Keep kube-system's daemon sets, which tolerate everything, off nodes that have a label."""
    expression = {"key": label, "operator": "DoesNotExist"}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    patch = {"spec": {"template": {"spec": {"affinity": affinity}}}}
    listed = yaml.safe_load(client.request("GET", _DAEMON_SETS))
    for daemon_set in listed["items"]:
        path = f"{_DAEMON_SETS}/{daemon_set['metadata']['name']}"
        client.request("PATCH", path, body=patch, content_type="application/strategic-merge-patch+json")
