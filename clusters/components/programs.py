"""The programs that a local cluster consists of, and the pinned modules that they come from."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from clusters.components.interface import Module, Program

KUBERNETES_MODULE = Module("kubernetes")
OWN_MODULE = Module("programs")

_ETCD = Module("etcd")
_CONTAINERD = Module("containerd")
_RUNC = Module("runc", cgo=True, tags=("seccomp",), libraries=("libseccomp",))
_CNI = Module("cni")
_KWOK = Module("kwok")
_KIND = Module("kind")
_CRICTL = Module("crictl")
_HELM = Module("helm")

CONTROL_PLANE = (
    Program("etcd", _ETCD, "go.etcd.io/etcd/server/v3"),
    Program("kube-apiserver", KUBERNETES_MODULE, "k8s.io/kubernetes/cmd/kube-apiserver"),
    Program("kube-controller-manager", KUBERNETES_MODULE, "k8s.io/kubernetes/cmd/kube-controller-manager"),
    Program("kube-scheduler", KUBERNETES_MODULE, "k8s.io/kubernetes/cmd/kube-scheduler"),
)
"""One of each per cluster."""

NODE = (
    Program("kubelet", KUBERNETES_MODULE, "k8s.io/kubernetes/cmd/kubelet"),
    Program("containerd", _CONTAINERD, "github.com/containerd/containerd/v2/cmd/containerd"),
    Program(
        "containerd-shim-runc-v2",
        _CONTAINERD,
        "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
    ),
    Program("ctr", _CONTAINERD, "github.com/containerd/containerd/v2/cmd/ctr"),
    Program("runc", _RUNC, "github.com/opencontainers/runc"),
    Program("bridge", _CNI, "github.com/containernetworking/plugins/plugins/main/bridge"),
    Program("loopback", _CNI, "github.com/containernetworking/plugins/plugins/main/loopback"),
    Program("host-local", _CNI, "github.com/containernetworking/plugins/plugins/ipam/host-local"),
    Program("node-init", OWN_MODULE, "dra-harness.local/programs/cmd/node-init"),
    Program("pod", OWN_MODULE, "dra-harness.local/programs/cmd/pod"),
)
"""What a real node runs. Programs of one module lie in one directory: the shim beside containerd, and the
CNI plugins together, as containerd wants them."""

SIMULATION = (Program("kwok", _KWOK, "sigs.k8s.io/kwok/cmd/kwok"),)
"""What keeps simulated nodes alive; only needed when a cluster has some."""

KIND = Program("kind", _KIND, "sigs.k8s.io/kind")
"""What the provider `kind` drives, unless the user has one on PATH."""

HELM = Program("helm", _HELM, "helm.sh/helm/v4/cmd/helm")
"""What renders the driver's chart, unless the user has one on PATH."""

NODE_IMAGE = (
    Program("kubeadm", KUBERNETES_MODULE, "k8s.io/kubernetes/cmd/kubeadm"),
    Program("kubectl", KUBERNETES_MODULE, "k8s.io/kubernetes/cmd/kubectl"),
    Program("kube-proxy", KUBERNETES_MODULE, "k8s.io/kubernetes/cmd/kube-proxy"),
    Program("crictl", _CRICTL, "sigs.k8s.io/cri-tools/cmd/crictl"),
)
"""What kind's node image has besides `CONTROL_PLANE` and `NODE`."""

PROGRAMS: Mapping[str, Program] = MappingProxyType(
    {program.name: program for program in (*CONTROL_PLANE, *NODE, *SIMULATION, *NODE_IMAGE, KIND, HELM)}
)
"""Every program, by name."""
