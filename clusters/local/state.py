"""The state file of a local cluster: written before anything is started, removed last.

Everything a cluster owns on the machine carries its `id`, so that `down` finds it all from this file
alone, whatever moment the harness died at.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
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

    # A key of a later harness must not keep this one from listing and removing the cluster.
    model_config = pydantic.ConfigDict(frozen=True, extra="ignore")

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
    origin: str = ""
    """Where those of Kubernetes came from, as `clusters.interface.Cluster` has it."""
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
            origin=self.origin,
            driver_kubeconfig=self.directory / "driver-client.kubeconfig",
            endpoints={
                component: f"https://127.0.0.1:{self.ports[port]}"
                for component, port in _METRICS_PORTS.items()
                if port in self.ports
            }
            | {
                f"kubelet/{name}": f"https://127.0.0.1:{port}"
                for name, (port, _) in zip(self.nodes, self.kubelet_ports, strict=False)
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
    """Every cluster that has a state file, by name; one that goes meanwhile is left out.

    So is one whose state file can't be read: it must not keep the others from being listed and removed, and
    naming it (`load`) says what is wrong with it.
    """
    found = []
    for path in sorted(clusters_dir().glob(f"*/{STATE_FILE}")):
        with contextlib.suppress(UsageError):
            found.append(_read(path))
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
    """Remove the cluster's files, the state file last. Call with the machine lock held.

    A cluster of the same name that another process made meanwhile is left alone.
    """
    found = _read(state.directory / STATE_FILE)
    if found is None or found.id != state.id:
        return
    for path in state.directory.iterdir():
        if path.name == STATE_FILE:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    shutil.rmtree(state.directory)


def tidy() -> None:
    """Remove the empty folders that a harness killed at its first or last step left, and empty ones above.

    Call with the machine lock held. Nothing but our own first file is ever removed with a folder.
    """
    for folder in clusters_dir().glob("*"):
        if folder.is_dir() and not (folder / STATE_FILE).exists():
            (folder / f"{STATE_FILE}.tmp").unlink(missing_ok=True)
            _remove_if_empty(folder)
    _remove_if_empty(clusters_dir())
    _remove_if_empty(state_root())


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


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
