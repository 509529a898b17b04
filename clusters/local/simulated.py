"""Simulated nodes: Node and ResourceSlice objects, and kwok in the place of their kubelets.

Everything that the scheduler and the controllers do for them is real; nothing is prepared or run. They carry
a taint, so a pod comes to one only if it tolerates that.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from fake_driver.inventory.base import Inventory
from fake_driver.publishing.plan import slice_prefix
from fake_driver.publishing.split import split

from clusters import driver_host, processes
from clusters.interface import Cluster
from clusters.local import bootstrap
from harness.errors import EnvironmentBlocked
from harness.files import write_atomically
from harness.kube import (
    FLOW_SCHEMAS,
    MERGE_PATCH,
    METADATA,
    NODES,
    RESOURCE_SLICES,
    ROLE_BINDINGS,
    KubeClient,
    Object,
    Resource,
)
from harness.waiting import NotYet, wait_until

COMPONENT = "kwok"
SIMULATED = "dra-harness.dev/simulated"
"""Label (with the value `true`) and taint (NoSchedule, without a value) of every simulated node."""

CAPACITY = {"cpu": "192", "memory": "2Ti", "ephemeral-storage": "1Ti", "pods": "110"}
"""Capacity and allocatable of every simulated node."""

_TAINTS = [{"key": SIMULATED, "effect": "NoSchedule"}]
_CONDITIONS = {
    "Ready": "KubeletReady",
    "MemoryPressure": "KubeletHasSufficientMemory",
    "DiskPressure": "KubeletHasNoDiskPressure",
    "PIDPressure": "KubeletHasSufficientPID",
}
"""Condition -> the reason that a healthy kubelet gives."""

_USER = "dra-harness-kwok"
_STAGES = Path(__file__).parent / "stages"
_NAME_PREFIX = "sim-"
_THREADS = 4 * (os.cpu_count() or 1)
"""The client keeps 5 connections per CPU."""
_START_SECONDS = 30.0
_SECONDS_PER_NODE = 0.05

_LEASES = Resource("coordination.k8s.io/v1", "leases", namespaced=True)

_TTL_ANNOTATION = "node.alpha.kubernetes.io/ttl"
_TTLS = ((100, 0), (500, 15), (1000, 30), (2000, 60))
"""Nodes in the cluster -> the annotation's value up to there (pkg/controller/ttl/ttl_controller.go)."""
_LARGEST_TTL = 300

_RULES: list[dict[str, Any]] = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch", "patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch", "delete"]},
    {"apiGroups": [""], "resources": ["nodes/status", "pods/status"], "verbs": ["patch"]},
]
_LEASE_RULES: list[dict[str, Any]] = [
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["list", "watch", "create", "update"],
    }
]
_LEASE_NAMESPACE = "kube-node-lease"

_OPTIONS = {
    "manageNodesWithLabelSelector": f"{SIMULATED}=true",
    # Class E: no machine routes it, so nothing is ever mistaken for a simulated pod.
    "cidr": "240.0.0.0/8",
    # kwok renews a lease after a quarter of its duration. The node controller waits 50 s, a kubelet renews
    # every 10 s: 25 s keeps 1,000 nodes Ready at 40 writes/s.
    "nodeLeaseDurationSeconds": 100,
    # The simulator must not be what limits a load test; the default of all of these is 4 or 1.
    "nodePlayStageParallelism": 16,
    "podPlayStageParallelism": 16,
    "nodeLeaseParallelism": 16,
    "podsOnNodeSyncParallelism": 4,
}


KUBECONFIG = "kwok-client.kubeconfig"
"""The credentials that kwok gets, in the cluster's folder."""


def bring_up(cluster: Cluster, kwok: Path, client: KubeClient, inventory: Path | None) -> None:
    """Start kwok, create the cluster's simulated nodes with their slices, and wait until all are Ready.

    Args:
        cluster: which has a Ready real node to model the simulated ones on.
        kwok: the program.
        client: as admin.
        inventory: the bundled driver's inventory profile; None takes its default.

    Raises:
        EnvironmentBlocked: kwok ended, or the nodes were not Ready in time.
    """
    count = cluster.simulated_nodes
    _grant(client)
    model = client.get(NODES, cluster.nodes[0].name)
    real = len(cluster.nodes)
    nodes = [
        node_object(f"{_NAME_PREFIX}{index}", cluster.name, model, ttl(real + index))
        for index in range(1, count + 1)
    ]
    publish = partial(_publish, client, driver_host.bundled_inventory(inventory))
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="simulated") as pool:
        stored = list(pool.map(partial(_create, client), nodes))
        # Slices, and the leases that kwok makes, come only now: for each owner that the garbage collector has
        # not seen yet it asks the API server, at 20 requests/s, into the load that is to be measured.
        popen = _start(cluster, kwok)
        list(pool.map(publish, stored))
    _wait_held(cluster, client, popen)


def ttl(nodes: int) -> int:
    """What the TTL controller annotates a node with that comes to a cluster as the last of so many."""
    return next((seconds for most, seconds in _TTLS if nodes <= most), _LARGEST_TTL)


def node_object(name: str, cluster: str, model: Object, ttl_seconds: int = 0) -> Object:
    """A Node that looks to the scheduler like `model`, a real one, but for its size and its taint.

    It is Ready and has all that the controllers would add to it one node after the other, at 20 requests/s:
    for a thousand nodes that would take a minute, into the load that is to be measured.
    """
    info = model["status"]["nodeInfo"]
    now = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"
    labels = {SIMULATED: "true", "dra-harness.dev/cluster": cluster, "kubernetes.io/hostname": name}
    for prefix in ("kubernetes.io", "beta.kubernetes.io"):
        labels |= {f"{prefix}/os": info["operatingSystem"], f"{prefix}/arch": info["architecture"]}
    status = {
        "capacity": CAPACITY,
        "allocatable": CAPACITY,
        # No InternalIP: a request for logs fails at once, instead of waiting for a kubelet that isn't there.
        "addresses": [{"type": "Hostname", "address": name}],
        "nodeInfo": info | {"machineID": "", "systemUUID": "", "bootID": ""},
        "conditions": [
            {
                "type": kind,
                "status": "True" if kind == "Ready" else "False",
                "reason": reason,
                "message": "simulated by kwok",
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            for kind, reason in _CONDITIONS.items()
        ],
    }
    if features := model["status"].get("declaredFeatures"):
        status["declaredFeatures"] = features
    # Many tools know nodes that are not there by the first annotation.
    annotations = {"kwok.x-k8s.io/node": "fake", _TTL_ANNOTATION: str(ttl_seconds)}
    return {
        "apiVersion": NODES.api_version,
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {"taints": _TAINTS},
        "status": status,
    }


def slices_of(node: Object, inventory: Inventory) -> list[Object]:
    """The ResourceSlices of a stored Node: one pool, cut and named as the bundled driver does it."""
    name = node["metadata"]["name"]
    contents = split(inventory.for_node(name), {})
    pool = {"name": name, "generation": 1, "resourceSliceCount": len(contents)}
    owner = {
        "apiVersion": NODES.api_version,
        "kind": "Node",
        "name": name,
        "uid": node["metadata"]["uid"],
        "controller": True,
    }
    return [
        {
            "apiVersion": RESOURCE_SLICES.api_version,
            "kind": "ResourceSlice",
            "metadata": {
                "generateName": f"{slice_prefix(index)}{driver_host.BUNDLED_DRIVER}-{name}-",
                "ownerReferences": [owner],
            },
            "spec": {"driver": driver_host.BUNDLED_DRIVER, "nodeName": name, "pool": pool} | content,
        }
        for index, content in enumerate(contents)
    ]


def kwok_config() -> list[Object]:
    """The documents of kwok's settings: its options, and the stages that nodes and pods go through."""
    options = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "options": _OPTIONS,
    }
    stages = [
        stage for path in sorted(_STAGES.glob("*.yaml")) for stage in yaml.safe_load_all(path.read_text())
    ]
    return [options, *stages]


def _grant(client: KubeClient) -> None:
    """Give kwok its rights, and a place outside the API server's queues: it must not be what is throttled."""
    bootstrap.create_role(client, _USER, _RULES)
    bootstrap.bind_role(client, _USER, _USER, _USER)
    bootstrap.create_role(client, f"{_USER}-leases", _LEASE_RULES)
    group = "rbac.authorization.k8s.io"
    subject = {"apiGroup": group, "kind": "User", "name": _USER}
    binding = {
        "apiVersion": ROLE_BINDINGS.api_version,
        "kind": "RoleBinding",
        "metadata": {"name": _USER},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": f"{_USER}-leases"},
        "subjects": [subject],
    }
    client.create(ROLE_BINDINGS, binding, _LEASE_NAMESPACE)
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}
    flow_schema = {
        "apiVersion": FLOW_SCHEMAS.api_version,
        "kind": "FlowSchema",
        "metadata": {"name": _USER},
        "spec": {
            "priorityLevelConfiguration": {"name": "exempt"},
            "matchingPrecedence": 1000,
            "rules": [
                {
                    "subjects": [{"kind": "User", "user": {"name": _USER}}],
                    "resourceRules": [everything | {"clusterScope": True}],
                }
            ],
        },
    }
    client.create(FLOW_SCHEMAS, flow_schema)


def _log(cluster: Cluster) -> Path:
    return cluster.directory / "logs" / f"{COMPONENT}.log"


def _start(cluster: Cluster, kwok: Path) -> subprocess.Popen[bytes]:
    """Start kwok; it serves nothing, since it gets no port."""
    directory = cluster.directory / COMPONENT
    directory.mkdir(mode=0o700)
    config = directory / "config.yaml"
    write_atomically(config, yaml.safe_dump_all(kwok_config(), sort_keys=False))
    argv: list[str | Path] = [
        # It would also read the stages in the user's own ~/.kwok.
        "env",
        f"KWOK_WORKDIR={directory}",
        kwok,
        f"--config={config}",
        f"--kubeconfig={cluster.directory / KUBECONFIG}",
        "--v=WARN",
    ]
    return processes.spawn(argv, cluster_id=cluster.id, component=COMPONENT, log=_log(cluster))


def _create(client: KubeClient, node: Object) -> Object:
    """Create a node, and lift the taint that the API server gives every new one; returns its metadata.

    The node controller would lift it too, at its own pace.
    """
    stored: Object = json.loads(client.request("POST", NODES.path(), body=node, accept=METADATA))
    # A patch, since kubeadm's controller manager gives nodes an address range meanwhile.
    path, taints = NODES.path(name=node["metadata"]["name"]), {"spec": {"taints": node["spec"]["taints"]}}
    client.request("PATCH", path, body=taints, content_type=MERGE_PATCH, accept=METADATA)
    return stored


def _publish(client: KubeClient, inventory: Inventory, node: Object) -> None:
    for slice_ in slices_of(node, inventory):
        client.request("POST", RESOURCE_SLICES.path(), body=slice_, accept=METADATA)


def _wait_held(cluster: Cluster, client: KubeClient, popen: subprocess.Popen[bytes]) -> None:
    """Wait until kwok holds the leases of all nodes: only then it looks after their pods, too."""
    count = cluster.simulated_nodes

    def held() -> bool:
        if popen.poll() is not None:
            raise EnvironmentBlocked(f"{COMPONENT} ended: {processes.tail(_log(cluster))}")
        leases, _ = client.metadata(_LEASES, _LEASE_NAMESPACE)
        missing = count - sum(lease["name"].startswith(_NAME_PREFIX) for lease in leases)
        if missing:
            raise NotYet(f"{missing} of {count} have no lease")
        return True

    deadline = _START_SECONDS + _SECONDS_PER_NODE * count
    try:
        wait_until(held, deadline, "kwok to look after the simulated nodes", interval=0.2)
    except AssertionError as error:
        raise EnvironmentBlocked(f"{error}\n{processes.tail(_log(cluster))}") from error
