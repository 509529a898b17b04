"""What all parts of a local cluster's bring-up share: its state, programs, credentials and ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from clusters.local.pki import CertificateAuthority, service_account_keys, write_kubeconfig
from clusters.local.state import ClusterState
from clusters.profiles import feature_gates


@dataclass(frozen=True)
class Ports:
    """Loopback ports of a cluster's servers."""

    apiserver: int
    etcd_client: int
    etcd_peer: int
    controller_manager: int
    scheduler: int


@dataclass(frozen=True)
class Layout:
    """A cluster that is being brought up, or changed."""

    state: ClusterState
    programs: Mapping[str, Path]
    """Program name -> executable."""
    ports: Ports
    other_gates: Mapping[str, bool] = field(default_factory=dict)
    """What differs from the cluster's gates for a component that is restarted."""
    other_flags: Mapping[str, str] = field(default_factory=dict)
    """Flags that a restarted component gets besides its own; of a flag given twice the last counts."""

    @classmethod
    def of(
        cls,
        state: ClusterState,
        other_gates: Mapping[str, bool] | None = None,
        other_flags: Mapping[str, str] | None = None,
    ) -> Layout:
        """The layout of a cluster that is up."""
        return cls(state, state.programs, Ports(**state.ports), other_gates or {}, other_flags or {})

    @property
    def flags(self) -> list[str]:
        """`other_flags` as arguments."""
        return [f"--{flag}={value}" for flag, value in self.other_flags.items()]

    @property
    def gates(self) -> dict[str, bool]:
        """The feature gates that a component gets."""
        own = feature_gates(self.state.profile, self.state.kubernetes)
        return {**own, **self.state.gates, **self.other_gates}

    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://127.0.0.1:{self.ports.apiserver}"

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.state.directory / "pki"

    def log(self, component: str) -> Path:
        """Where a component's output goes; a node's are in the node's folder."""
        return self.state.directory / "logs" / f"{component.replace('/', '-')}.log"

    def kubeconfig(self, user: str) -> Path:
        """The kubeconfig of one of the cluster's own users."""
        return self.state.directory / f"{user}.kubeconfig"


KUBELET_CLIENT = "kube-apiserver-kubelet-client"


def write_credentials(layout: Layout) -> None:
    """Issue every certificate and kubeconfig of the cluster.

    The users and groups are those of https://kubernetes.io/docs/setup/best-practices/certificates/.
    """
    authority = CertificateAuthority.create(layout.pki)
    service_account_keys(layout.pki)
    loopback = ("127.0.0.1", "localhost")
    authority.issue("etcd", "etcd", hosts=loopback)
    authority.issue("apiserver-etcd-client", "kube-apiserver")
    authority.issue(
        "apiserver",
        "kube-apiserver",
        hosts=(*loopback, "10.96.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"),
    )
    authority.issue(KUBELET_CLIENT, KUBELET_CLIENT)
    authority.issue("controller-manager", "kube-controller-manager", hosts=loopback)
    authority.issue("scheduler", "kube-scheduler", hosts=loopback)
    users = {
        "admin": ("dra-harness-admin", "system:masters"),
        "controller-manager-client": ("system:kube-controller-manager", ""),
        "scheduler-client": ("system:kube-scheduler", ""),
        "kwok-client": ("dra-harness-kwok", ""),
        "driver-client": ("dra-harness-driver", ""),
        **{f"kubelet-{node}": (f"system:node:{node}", "system:nodes") for node in layout.state.nodes},
    }
    for user, (common_name, organization) in users.items():
        certificate, key = authority.issue(user, common_name, organization=organization)
        write_kubeconfig(
            layout.kubeconfig(user),
            server=layout.server,
            ca=authority.certificate,
            certificate=certificate,
            key=key,
            name=f"dra-harness-{layout.state.name}",
        )
    for node in layout.state.nodes:
        authority.issue(f"kubelet-{node}-server", f"system:node:{node}", hosts=("127.0.0.1", node))
