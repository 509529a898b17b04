"""The record of a kind cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pydantic

from clusters.interface import Cluster, Node
from clusters.kubelet import KUBELET_DIR
from clusters.records import Record

NODE_FOLDERS: Mapping[str, str] = {
    **{
        f"kubelet/{folder}": f"{KUBELET_DIR}/{folder}"
        for folder in ("plugins", "plugins_registry", "device-plugins", "pod-resources")
    },
    "cdi": "/etc/cdi",
}
"""Folder of a node's on this machine, relative to the node's own -> the same folder in the node.

Not the kubelet's whole directory: mounts of its volumes would have to show in both."""


class KindState(Record):
    """What is recorded of one cluster; its id marks the processes that are started for it on this machine."""

    PROVIDER: ClassVar[str] = "kind"
    FOLDER: ClassVar[str] = "kind"

    nodes: int
    """Workers; the control plane is a node besides."""
    node_image: str
    kind: Path
    """The program that made it, and removes it."""
    docker_host: str = ""
    """The DOCKER_HOST that it was made with; empty for Docker's own default."""
    ports: dict[str, int] = pydantic.Field(default_factory=dict)
    """Loopback ports of components that serve metrics, by component."""

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
                kubelet_dir_in_node=KUBELET_DIR,
                cdi_dir=self.node_dir(index) / "cdi",
            )
            for index, name in enumerate(self.workers, start=1)
        )
        return Cluster(
            name=self.name,
            provider=self.PROVIDER,
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
