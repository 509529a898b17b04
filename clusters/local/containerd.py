"""Settings of a node's containerd."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from clusters.components.image import PAUSE_IMAGE
from harness.files import write_atomically

SOCKET = "/run/containerd.sock"
"""Where the runtime serves, as seen inside the node: a path from outside may be too long for a socket."""


def write_config(directory: Path, programs: Mapping[str, Path], *, restricted: bool) -> None:
    """Write `containerd.toml` into the node's folder.

    Args:
        directory: the node's folder.
        programs: where runc, the shim and the CNI plugins are.
        restricted: root here may not lower OOM scores.
    """
    cni_bin = programs["bridge"].parent
    text = f"""\
version = 3
root = "{directory / "containerd"}"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.internal.v1.tracing",
]

[grpc]
address = "{SOCKET}"

[ttrpc]
address = "{SOCKET}.ttrpc"

[plugins.'io.containerd.cri.v1.images']
snapshotter = "{snapshotter(directory)}"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{PAUSE_IMAGE}"

[plugins.'io.containerd.cri.v1.runtime']
enable_cdi = true
cdi_spec_dirs = ["{directory / "cdi"}", "/var/run/cdi"]
restrict_oom_score_adj = {str(restricted).lower()}
disable_apparmor = true
max_container_log_line_size = 1048576

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{cni_bin}"]
conf_dir = "{directory / "cni" / "net.d"}"

[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = "runc"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
runtime_path = "{programs["containerd-shim-runc-v2"]}"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = "{programs["runc"]}"
SystemdCgroup = false
"""
    write_atomically(directory / "containerd.toml", text)


def snapshotter(directory: Path) -> str:
    """`overlayfs`, or `native` where the folder is on an overlay itself, which overlayfs can't stack on."""
    return "native" if _file_system(directory) == "overlay" else "overlayfs"


def _file_system(path: Path) -> str:
    resolved = os.path.realpath(path)
    best = ("", "")
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount_point, kind, *_ = line.split(" ")
        if (resolved + "/").startswith(mount_point.rstrip("/") + "/") and len(mount_point) >= len(best[0]):
            best = (mount_point, kind)
    return best[1]
