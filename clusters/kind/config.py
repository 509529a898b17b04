"""The settings that kind makes a cluster from: https://kind.sigs.k8s.io/docs/user/configuration/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from clusters.kind.state import NODE_FOLDERS, KindState
from clusters.kubelet import FREQUENCIES
from clusters.profiles import gates_value, minor, runtime_config

METRICS_PORTS: Mapping[str, int] = {"kube-scheduler": 10259, "kube-controller-manager": 10257}
"""Component -> the port that it serves on; each is to be reached on loopback of this machine."""

_DOCKERS_CHOICE = -1
"""A port on this machine that is free at the moment when it is taken."""
_POD_SUBNET = "10.240.0.0/12"
"""Simulated nodes take a /24 each, like real ones: kind's own choice ends after 256."""
_PKI = "/etc/kubernetes/pki"
_LISTS_SINCE = 36
"""From this minor release on kind writes kubeadm's v1beta4, where extraArgs is a list
(pkg/cluster/internal/kubeadm/config.go)."""


def document(
    state: KindState,
    gates: Mapping[str, bool],
    *,
    port: int = 0,
    kubelet_gates: Mapping[str, bool] | None = None,
    own_image: bool = False,
    fail_cgroup_v1: bool | None = None,
) -> dict[str, Any]:
    """The configuration of a cluster.

    Args:
        state: what is to be made.
        gates: feature gates of every component.
        port: of the API server, on loopback; 0 leaves it to Docker.
        kubelet_gates: further gates of the kubelets alone.
        own_image: whether the node image is of the harness's own, which has no CoreDNS and no iptables.
        fail_cgroup_v1: what the kubelets are told; None leaves it out.
    """
    kubelet = {"kind": "KubeletConfiguration", **FREQUENCIES}
    if kubelet_gates:
        kubelet["featureGates"] = dict(kubelet_gates)
    if fail_cgroup_v1 is not None:
        kubelet["failCgroupV1"] = fail_cgroup_v1
    networking = {
        "apiServerAddress": "127.0.0.1",
        "apiServerPort": port or _DOCKERS_CHOICE,
        "podSubnet": _POD_SUBNET,
    }
    patches = [_cluster_patch(gates, state.kubernetes), kubelet]
    if own_image:
        networking["kubeProxyMode"] = "nftables"
        kubelet["resolvConf"] = "/kind/pod-resolv.conf"
        patches.append({"kind": "InitConfiguration", "skipPhases": ["preflight", "addon/coredns"]})
    served = runtime_config(state.profile)
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "name": state.kind_name,
        "networking": networking,
        "featureGates": dict(gates),
        "runtimeConfig": dict(pair.split("=") for pair in served.split(",") if pair),
        "nodes": [_control_plane(state), *(_worker(state, index) for index in range(1, state.nodes + 1))],
        "kubeadmConfigPatches": [yaml.safe_dump(patch, sort_keys=False) for patch in patches],
    }


def _control_plane(state: KindState) -> dict[str, Any]:
    ports = [
        {
            "containerPort": port,
            "hostPort": _DOCKERS_CHOICE,
            "listenAddress": "127.0.0.1",
            "protocol": "TCP",
        }
        for port in METRICS_PORTS.values()
    ]
    logs = _mount(state.directory / "pod-logs", "/var/log/pods")
    return {"role": "control-plane", "extraPortMappings": ports, "extraMounts": [logs]}


def _worker(state: KindState, index: int) -> dict[str, Any]:
    folder = state.node_dir(index)
    mounts = [_mount(folder / ours, theirs) for ours, theirs in NODE_FOLDERS.items()]
    return {"role": "worker", "extraMounts": mounts}


def _mount(host: Path, container: str) -> dict[str, Any]:
    return {"hostPath": str(host), "containerPath": container}


def _cluster_patch(gates: Mapping[str, bool], kubernetes: str) -> dict[str, Any]:
    """What differs from kind's own ClusterConfiguration. kind replaces its lists by those of a patch."""
    common = {
        # The harness reads metrics from outside of the node, where a probe of the kubelet doesn't go.
        "bind-address": "0.0.0.0",  # noqa: S104 - inside the container; Docker publishes it on loopback
        "tls-cert-file": f"{_PKI}/apiserver.crt",
        "tls-private-key-file": f"{_PKI}/apiserver.key",
        # A restarted one would wait for the lease of the one before.
        "leader-elect": "false",
    }
    if gates:
        common["feature-gates"] = gates_value(gates)
    volume = {
        "name": "pki",
        "hostPath": _PKI,
        "mountPath": _PKI,
        "readOnly": True,
        "pathType": "DirectoryOrCreate",
    }
    manager = {"enable-hostpath-provisioner": "true", **common}
    return {
        "kind": "ClusterConfiguration",
        "controllerManager": {"extraArgs": _arguments(manager, kubernetes)},
        "scheduler": {"extraArgs": _arguments(common, kubernetes), "extraVolumes": [volume]},
        # The data lives no longer than the cluster.
        "etcd": {"local": {"extraArgs": _arguments({"unsafe-no-fsync": "true"}, kubernetes)}},
    }


def _arguments(pairs: Mapping[str, str], kubernetes: str) -> Mapping[str, str] | Sequence[Mapping[str, str]]:
    if minor(kubernetes) < _LISTS_SINCE:
        return pairs
    return [{"name": name, "value": value} for name, value in pairs.items()]
