"""The users of a kind cluster: certificates of its own authority, as files of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import yaml

from clusters.kind import nodes
from clusters.kind.state import KindState
from clusters.local.pki import CertificateAuthority, write_kubeconfig
from harness.errors import EnvironmentBlocked

_PKI = "/etc/kubernetes/pki"

USERS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "admin": ("dra-harness-admin", "system:masters"),
        "driver-client": ("dra-harness-driver", ""),
        "kwok-client": ("dra-harness-kwok", ""),
    }
)
"""File -> user and group, as on a local cluster."""


def write(state: KindState, kinds_own: Path) -> None:
    """Issue the credentials of all users; the authority's key does not reach the disk.

    Args:
        state: the cluster, whose control plane runs.
        kinds_own: the kubeconfig that kind wrote, which says where the API server is.

    Raises:
        EnvironmentBlocked: the cluster's authority can't be read.
    """
    config = yaml.safe_load(kinds_own.read_text(encoding="utf-8"))
    server = config["clusters"][0]["cluster"]["server"]
    certificate, key = (
        nodes.read(state.control_plane, f"{_PKI}/ca.{suffix}").encode() for suffix in ("crt", "key")
    )
    try:
        authority = CertificateAuthority.of(state.pki, certificate, key)
    except ValueError as error:
        raise EnvironmentBlocked(f"{state.control_plane}: {_PKI}/ca.key: {error}") from error
    for file_name, (user, group) in USERS.items():
        issued, private = authority.issue(file_name, user, organization=group)
        write_kubeconfig(
            state.kubeconfig(file_name),
            server=server,
            ca=authority.certificate,
            certificate=issued,
            key=private,
            name=state.kind_name,
        )
