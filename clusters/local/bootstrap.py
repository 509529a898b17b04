"""What a new cluster gets through its API: roles for its own users, and Ready nodes."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Any

from clusters import processes
from clusters.local.layout import KUBELET_CLIENT, Layout
from clusters.node_ready import all_take_pods
from harness.errors import EnvironmentBlocked
from harness.kube import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, KubeClient
from harness.waiting import wait_until

_READY_SECONDS = 60.0
_DRIVER = "dra-harness-driver"

DRIVER_RULES: list[dict[str, Any]] = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
    {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get"]},
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceslices"],
        "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
    },
]
"""What a hosted driver may do: no write on claims."""


def apply(client: KubeClient) -> None:
    """Give the cluster's own users their rights."""
    admit_driver(client)
    # Logs and exec: https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/
    bind_role(client, "dra-harness-kubelet-api", "system:kubelet-api-admin", KUBELET_CLIENT)


def admit_driver(client: KubeClient) -> None:
    """Give the user of hosted drivers its rights."""
    create_role(client, _DRIVER, DRIVER_RULES)
    bind_role(client, _DRIVER, _DRIVER, _DRIVER)


def wait_for_nodes(
    client: KubeClient, kubelets: Mapping[str, subprocess.Popen[bytes]], layout: Layout
) -> None:
    """Wait until the nodes are Ready and may take pods.

    Args:
        client: the admin's.
        kubelets: node name -> the process of its kubelet.
        layout: the cluster.

    Raises:
        EnvironmentBlocked: a kubelet ended, or the nodes were not Ready in time.
    """

    def ready() -> bool:
        for name, kubelet in kubelets.items():
            if kubelet.poll() is not None:
                log = layout.log(f"kubelet/{name}")
                raise EnvironmentBlocked(f"{name}: its kubelet ended: {processes.tail(log)}")
        return all_take_pods(client, kubelets)

    try:
        wait_until(ready, _READY_SECONDS, "all nodes to be Ready", interval=0.05)
    except AssertionError as error:
        logs = "\n".join(processes.tail(layout.log(f"kubelet/{name}"), 5) for name in kubelets)
        raise EnvironmentBlocked(f"{error}\n{logs}") from error


def create_role(client: KubeClient, name: str, rules: list[dict[str, Any]]) -> None:
    """Create a ClusterRole."""
    role = {
        "apiVersion": CLUSTER_ROLES.api_version,
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    }
    client.create(CLUSTER_ROLES, role)


def bind_role(client: KubeClient, name: str, role: str, user: str) -> None:
    """Bind a ClusterRole to a user, in all namespaces."""
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": CLUSTER_ROLE_BINDINGS.api_version,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    client.create(CLUSTER_ROLE_BINDINGS, binding)
