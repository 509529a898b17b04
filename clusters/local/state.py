"""The record of a local cluster."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pydantic

from clusters.interface import Cluster, Node
from clusters.kubelet import KUBELET_DIR
from clusters.records import STATE_FILE, Record, remove_if_empty
from harness.settings import state_root

_METRICS_PORTS = {"kube-scheduler": "scheduler", "kube-controller-manager": "controller_manager"}


class ClusterState(Record):
    """What is recorded of one cluster; its id marks processes, links, addresses and cgroups."""

    PROVIDER: ClassVar[str] = "local"
    FOLDER: ClassVar[str] = "clusters"

    nodes: tuple[str, ...]
    slot: int
    """Which block of addresses the cluster has, 0 to 15."""
    ports: dict[str, int] = pydantic.Field(default_factory=dict)
    """Loopback ports of the control plane, by the fields of `layout.Ports`."""
    kubelet_ports: tuple[tuple[int, int], ...] = ()
    """The kubelets' ports, in the order of the nodes: for the API server, and for health."""
    programs: dict[str, Path] = pydantic.Field(default_factory=dict)
    """The programs that the cluster was made from."""
    origin: str = ""
    """Where those of Kubernetes came from, as `clusters.interface.Cluster` has it."""
    driver: str = ""

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
                kubelet_dir_in_node=KUBELET_DIR,
                cdi_dir=self.node_dir(name) / "cdi",
            )
            for name in self.nodes
        )
        return Cluster(
            name=self.name,
            provider=self.PROVIDER,
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


def tidy() -> None:
    """Remove the empty folders that a harness killed at its first or last step left, and empty ones above.

    Call with the machine lock held. Nothing but our own first file is ever removed with a folder.
    """
    for folder in ClusterState.folder().glob("*"):
        if folder.is_dir() and not (folder / STATE_FILE).exists():
            (folder / f"{STATE_FILE}.tmp").unlink(missing_ok=True)
            remove_if_empty(folder)
    remove_if_empty(ClusterState.folder())
    remove_if_empty(state_root())
