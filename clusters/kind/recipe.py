"""What the node image consists of: Debian packages, programs, and files of our own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusters.components.image import PAUSE_IMAGE, Image

FILES = Path(__file__).parent / "files"
SUITE = "bookworm"
PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "iptables",
    "iproute2",
    "conntrack",
    "ca-certificates",
    "kmod",
    "procps",
    "util-linux",
    "mount",
    "ethtool",
    "socat",
    "libseccomp2",
    "nftables",
    "ebtables",
)
"""Debian's, on top of its smallest system."""

_BIN = "usr/local/bin"
_UNITS = "etc/systemd/system"
_PLACES = {
    "entrypoint": _BIN,
    "node-cni": _BIN,
    "kubelet-hosts": _BIN,
    "containerd.service": _UNITS,
    "kubelet.service": _UNITS,
    "node-cni.service": _UNITS,
    "containerd.toml": "etc/containerd",
    "default-cni.yaml": "kind/manifests",
    "default-storage.yaml": "kind/manifests",
    "preload": "build",
    "preload.toml": "build",
}
"""File of ours -> its folder in the image."""

_RENAMED = {"containerd.toml": "config.toml"}
_TOOLS = ("kubeadm", "kubelet", "kubectl", "crictl", "containerd", "containerd-shim-runc-v2", "ctr", "runc")
_PLUGINS = ("bridge", "loopback", "host-local")
_COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "etcd")
_TOOL_MODE, _FILE_MODE = 0o755, 0o644
VERSION_FILE = "kind/version"
"""Where kind looks for the version of Kubernetes."""

LABEL = "dra-harness.dev/node-image"
"""What an image is known by, under whatever name."""


@dataclass(frozen=True)
class Placed:
    """A file that is put into the image."""

    source: Path
    mode: int


def placed(programs: Mapping[str, Path]) -> dict[str, Placed]:
    """The files of the image besides Debian's, by their paths without a leading slash."""
    files = {f"{_BIN}/{name}": Placed(programs[name], _TOOL_MODE) for name in _TOOLS}
    files |= {f"opt/cni/bin/{name}": Placed(programs[name], _TOOL_MODE) for name in _PLUGINS}
    for name, folder in _PLACES.items():
        mode = _FILE_MODE if "." in name else _TOOL_MODE
        files[f"{folder}/{_RENAMED.get(name, name)}"] = Placed(FILES / name, mode)
    return files


def images(
    names: Sequence[str], programs: Mapping[str, Path], proxy_files: Mapping[str, Path]
) -> list[Image]:
    """The images that nodes start with.

    Args:
        names: what kubeadm asks for, as `kubeadm config images list` prints it. Those that we have no
            program for (CoreDNS) are left out; the pause image is our own.
        programs: name to path.
        proxy_files: what kube-proxy needs besides itself: nft and its libraries.
    """
    made = [Image(PAUSE_IMAGE, {"pod": programs["pod"]}, ["/pod", "pause"])]
    for name in names:
        component = name.rpartition("/")[2].partition(":")[0]
        if component not in _COMPONENTS:
            continue
        extra = proxy_files if component == "kube-proxy" else {}
        files = {f"{_BIN}/{component}": programs[component], **extra}
        made.append(Image(name, files))
    return made


def digest(kubernetes: str, programs: Mapping[str, Path]) -> str:
    """Names an image by everything that decides what is in it, but for the state of Debian's archive."""
    found = hashlib.sha256(f"{kubernetes} {SUITE} {PACKAGES} {_PLACES} {_TOOLS} {_PLUGINS} {LABEL}".encode())
    for path in sorted(FILES.iterdir()):
        found.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    for name in sorted({*_TOOLS, *_PLUGINS, *_COMPONENTS, "pod"}):
        with programs[name].open("rb") as program:
            found.update(f"{name} {hashlib.file_digest(program, 'sha256').hexdigest()}\n".encode())
    return found.hexdigest()[:12]
