"""Machine-wide settings that a kubelet or a CNI plugin changes: remembered before, put back after."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from harness.files import write_json

PROC_SYS = Path("/proc/sys")

_NAMES = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/ip_forward",
    "fs/inotify/max_user_instances",
)
"""The kubelet's (pkg/kubelet/cm/container_manager_linux.go), the CNI bridge's, and that of `raise_limits`."""

_AT_LEAST = {"fs/inotify/max_user_instances": 1024}
"""A node takes about 18 of the usual 128 for the whole machine."""


def remember(file: Path) -> None:
    """Keep the present values in a file, unless it has the values of an earlier moment already."""
    if not file.exists():
        write_json(file, {name: _path(name).read_text().strip() for name in _NAMES if _path(name).exists()})


def raise_limits() -> None:
    """Raise what several kubelets and containerds of one user run out of; a higher limit stays."""
    for name, wanted in _AT_LEAST.items():
        with contextlib.suppress(OSError):
            if int(_path(name).read_text()) < wanted:
                _path(name).write_text(str(wanted))


def restore(file: Path) -> None:
    """Put the values of a file back and remove it; without a file nothing was changed."""
    if not file.exists():
        return
    for name, value in json.loads(file.read_text()).items():
        with contextlib.suppress(OSError):  # a setting that we may not write, no component could change
            if _path(name).read_text().strip() != value:
                _path(name).write_text(value)
    file.unlink()


def _path(name: str) -> Path:
    return PROC_SYS / name
