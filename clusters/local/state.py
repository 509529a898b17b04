"""The state file of a local cluster: written before anything is started, removed last.

Everything a cluster owns on the machine carries its `id`, so that `down` finds it all from this file
alone, whatever moment the harness died at.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock
import pydantic

from clusters.interface import Cluster, Node, Profile
from harness.errors import UsageError
from harness.settings import state_root

_METRICS_PORTS = {"kube-scheduler": "scheduler", "kube-controller-manager": "controller_manager"}
STATE_FILE = "cluster.json"
KUBELET_DIR_IN_NODE = "/var/lib/kubelet"


class ClusterState(pydantic.BaseModel):
    """What is recorded of one cluster."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    id: str
    """Six hex digits: the mark on processes, links, addresses and cgroups."""
    name: str
    kubernetes: str
    profile: Profile
    nodes: tuple[str, ...]
    slot: int
    """Which block of addresses the cluster has, 0 to 15."""
    simulated_nodes: int = 0
    gates: dict[str, bool] = {}
    """Gates on top of the profile's."""
    ports: dict[str, int] = {}
    """Loopback ports of the control plane, by the fields of `layout.Ports`."""
    kubelet_ports: tuple[tuple[int, int], ...] = ()
    """The kubelets' ports, in the order of the nodes: for the API server, and for health."""
    programs: dict[str, Path] = {}
    """The programs that the cluster was made from."""
    ready: bool = False
    kept: bool = False
    """Whether it outlives the process that made it; otherwise it is swept once that is gone."""
    driver: str = ""
    seconds: float = 0.0
    phases: dict[str, float] = {}

    @property
    def directory(self) -> Path:
        """The cluster's files."""
        return clusters_dir() / self.name

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig."""
        return self.directory / "admin.kubeconfig"

    def node_dir(self, node: str) -> Path:
        """A node's files: what it sees as /var/lib, /run and /var/log, and its own settings."""
        return self.directory / node

    def cluster(self) -> Cluster:
        """The handle that checks use."""
        nodes = tuple(
            Node(
                name=name,
                kubelet_dir=self.node_dir(name) / "lib" / "kubelet",
                kubelet_dir_in_node=KUBELET_DIR_IN_NODE,
                cdi_dir=self.node_dir(name) / "cdi",
            )
            for name in self.nodes
        )
        return Cluster(
            name=self.name,
            provider="local",
            kubernetes=self.kubernetes,
            profile=self.profile,
            gates=self.gates,
            kubeconfig=self.kubeconfig,
            nodes=nodes,
            directory=self.directory,
            id=self.id,
            simulated_nodes=self.simulated_nodes,
            driver_kubeconfig=self.directory / "driver-client.kubeconfig",
            endpoints={
                component: f"https://127.0.0.1:{self.ports[port]}"
                for component, port in _METRICS_PORTS.items()
                if port in self.ports
            },
            seconds=self.seconds,
            phases=self.phases,
        )


def clusters_dir() -> Path:
    """Where all local clusters of this user are."""
    return state_root() / "clusters"


def new_id() -> str:
    """A fresh mark; random, so that two users' clusters differ."""
    return secrets.token_hex(3)


@contextmanager
def machine_lock() -> Iterator[None]:
    """Held while names, slots and machine settings are taken or given back.

    The lock is on the state directory itself, which goes when the last cluster has gone: whoever waited
    on a directory that was removed meanwhile, tries again on the new one.
    """
    root = state_root()
    while True:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_same_file(root, descriptor):
                yield
                return
        finally:
            os.close(descriptor)


def _is_same_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def maker_lock(state: ClusterState) -> filelock.FileLock:
    """The lock that the process which makes (and, unless kept, uses) the cluster holds; it dies with that."""
    return filelock.FileLock(state.directory / "maker.lock")


def save(state: ClusterState) -> None:
    """Write the state file, whole or not at all."""
    state.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(state.directory / STATE_FILE, state.model_dump_json(indent=1))


def load(name: str) -> ClusterState:
    """Read a cluster's state.

    Raises:
        UsageError: there is no such cluster.
    """
    found = _read(clusters_dir() / name / STATE_FILE)
    if found is None:
        known = ", ".join(state.name for state in load_all()) or "none"
        raise UsageError(f"no local cluster is named {name!r}; there are: {known}")
    return found


def load_all() -> list[ClusterState]:
    """Every cluster that has a state file, by name; one that goes meanwhile is left out."""
    found = [_read(path) for path in sorted(clusters_dir().glob(f"*/{STATE_FILE}"))]
    return [state for state in found if state is not None]


def _read(path: Path) -> ClusterState | None:
    try:
        return ClusterState.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UsageError(f"{path}: {key}: {first['msg']}") from error


def remove(state: ClusterState) -> None:
    """Remove the cluster's files, the state file last. Call with the machine lock held."""
    for path in state.directory.iterdir():
        if path.name == STATE_FILE:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    shutil.rmtree(state.directory)


def tidy() -> bool:
    """Remove folders without a state file, and empty ones above; returns whether no cluster is left.

    Call with the machine lock held: such a folder is what a harness killed at its first or last step left.
    """
    for folder in clusters_dir().glob("*"):
        if not (folder / STATE_FILE).exists():
            shutil.rmtree(folder)
    if load_all():
        return False
    with contextlib.suppress(FileNotFoundError):
        clusters_dir().rmdir()
    return True


def write_atomically(path: Path, text: str) -> None:
    """Replace a file's content in one step, readable by the owner only."""
    temporary = path.with_suffix(path.suffix + ".tmp")
    with open(temporary, "w", encoding="utf-8", opener=_private) as file:
        file.write(text)
    temporary.replace(path)


def write_json(path: Path, value: Any) -> None:
    """`write_atomically` for a JSON value."""
    write_atomically(path, json.dumps(value, indent=1))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
