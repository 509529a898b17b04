"""The state file of a kind cluster: written before anything is made, removed last."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path

import filelock
import pydantic

from clusters.interface import Cluster, Node, Profile
from clusters.local.state import KUBELET_DIR_IN_NODE, write_atomically
from harness.errors import UsageError
from harness.settings import state_root

STATE_FILE = "cluster.json"
NODE_FOLDERS: Mapping[str, str] = {
    **{
        f"kubelet/{folder}": f"{KUBELET_DIR_IN_NODE}/{folder}"
        for folder in ("plugins", "plugins_registry", "device-plugins", "pod-resources")
    },
    "cdi": "/etc/cdi",
}
"""Folder of a node's on this machine, relative to the node's own -> the same folder in the node.

Not the kubelet's whole directory: mounts of its volumes would have to show in both."""


class KindState(pydantic.BaseModel):
    """What is recorded of one cluster."""

    # A key of a later harness must not keep this one from listing and removing the cluster.
    model_config = pydantic.ConfigDict(frozen=True, extra="ignore")

    id: str
    """Six hex digits: the mark on the processes that are started for the cluster on this machine."""
    name: str
    kubernetes: str
    profile: Profile
    nodes: int
    """Workers; the control plane is a node besides."""
    node_image: str
    kind: Path
    """The program that made it, and removes it."""
    docker_host: str = ""
    """The DOCKER_HOST that it was made with; empty for Docker's own default."""
    simulated_nodes: int = 0
    gates: dict[str, bool] = {}
    """Gates on top of the profile's."""
    ports: dict[str, int] = {}
    """Loopback ports of components that serve metrics, by component."""
    ready: bool = False
    kept: bool = False
    """Whether it outlives the process that made it; otherwise it is swept once that is gone."""
    seconds: float = 0.0
    phases: dict[str, float] = {}

    @property
    def kind_name(self) -> str:
        """What kind calls it, and the start of its containers' names."""
        return f"dra-harness-{self.name}"

    @property
    def control_plane(self) -> str:
        """The container (and node) of the control plane."""
        return f"{self.kind_name}-control-plane"

    @property
    def workers(self) -> tuple[str, ...]:
        """The containers (and nodes) that pods are run on."""
        numbers = ("" if index == 1 else str(index) for index in range(1, self.nodes + 1))
        return tuple(f"{self.kind_name}-worker{number}" for number in numbers)

    @property
    def directory(self) -> Path:
        """The cluster's files."""
        return clusters_dir() / self.name

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.directory / "pki"

    def node_dir(self, index: int) -> Path:
        """The folder of a worker (counted from 1) that holds what is shared with it."""
        return self.directory / f"node-{index}"

    def kubeconfig(self, user: str) -> Path:
        """The kubeconfig of a user."""
        return self.directory / f"{user}.kubeconfig"

    def cluster(self) -> Cluster:
        """The handle that checks use."""
        nodes = tuple(
            Node(
                name=name,
                kubelet_dir=self.node_dir(index) / "kubelet",
                kubelet_dir_in_node=KUBELET_DIR_IN_NODE,
                cdi_dir=self.node_dir(index) / "cdi",
            )
            for index, name in enumerate(self.workers, start=1)
        )
        return Cluster(
            name=self.name,
            provider="kind",
            kubernetes=self.kubernetes,
            profile=self.profile,
            kubeconfig=self.kubeconfig("admin"),
            nodes=nodes,
            directory=self.directory,
            gates=self.gates,
            id=self.id,
            driver_kubeconfig=self.kubeconfig("driver-client"),
            endpoints={component: f"https://127.0.0.1:{port}" for component, port in self.ports.items()},
            simulated_nodes=self.simulated_nodes,
            seconds=self.seconds,
            phases=self.phases,
        )


def clusters_dir() -> Path:
    """Where all kind clusters of this user are."""
    return state_root() / "kind"


def maker_lock(state: KindState) -> filelock.FileLock:
    """The lock that the process which makes (and, unless kept, uses) the cluster holds; it dies with that."""
    return filelock.FileLock(state.directory / "maker.lock")


def save(state: KindState) -> None:
    """Write the state file, whole or not at all."""
    state.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(state.directory / STATE_FILE, state.model_dump_json(indent=1))


def load(name: str) -> KindState | None:
    """Read a cluster's state; None if there is no such cluster.

    Raises:
        UsageError: the file can't be read, naming it and the key.
    """
    path = clusters_dir() / name / STATE_FILE
    try:
        return KindState.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UsageError(f"{path}: {key}: {first['msg']}") from error


def load_all() -> list[KindState]:
    """Every cluster whose state can be read, by name."""
    found = []
    for path in sorted(clusters_dir().glob(f"*/{STATE_FILE}")):
        with contextlib.suppress(UsageError):
            found.append(load(path.parent.name))
    return [state for state in found if state is not None]


def remove(state: KindState) -> None:
    """Remove the cluster's files, the state file last, and empty folders above."""
    if state.directory.exists():
        for path in state.directory.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != STATE_FILE:
                path.unlink()
        shutil.rmtree(state.directory)
    for folder in (clusters_dir(), state_root()):
        with contextlib.suppress(OSError):
            folder.rmdir()
