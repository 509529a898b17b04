"""The cgroup that a cluster's pods live under, on cgroup v1, v2 and the hybrid of both."""

from __future__ import annotations

import contextlib
from pathlib import Path

from harness.errors import EnvironmentBlocked
from harness.waiting import wait_until


def root_name(cluster_id: str) -> str:
    """The cluster's cgroup, relative to each hierarchy."""
    return f"dra-harness-{cluster_id}"


def path(cluster_id: str, node: str) -> str:
    """A node's cgroup as the kubelet wants it (`cgroupRoot`)."""
    return f"/{root_name(cluster_id)}/{node}"


def create(cluster_id: str, node: str) -> None:
    """Make a node's cgroup in every hierarchy."""
    for hierarchy, version in _hierarchies():
        folder = hierarchy
        for part in (root_name(cluster_id), node):
            if version == 2:
                _delegate_controllers(folder)
            folder = folder / part
            with contextlib.suppress(OSError):  # a hierarchy that is read-only here has no pods in it either
                folder.mkdir(exist_ok=True)
                _inherit_cpuset(folder)


def remove(cluster_id: str) -> None:
    """Remove the cluster's cgroups; their processes must be gone.

    Raises:
        EnvironmentBlocked: one stays busy for more than 10 s.
    """
    roots = [hierarchy / root_name(cluster_id) for hierarchy, _ in _hierarchies()]

    def removed() -> bool:
        return all(_remove_tree(root) for root in roots)

    try:
        wait_until(removed, 10, f"cgroups {root_name(cluster_id)} to be empty", interval=0.05)
    except AssertionError as error:
        raise EnvironmentBlocked(str(error)) from error


def _remove_tree(root: Path) -> bool:
    with contextlib.suppress(OSError):  # it is busy, or another command has just removed it
        for child in root.iterdir():
            if child.is_dir():
                _remove_tree(child)
        root.rmdir()
    return not root.exists()


def is_v2() -> bool:
    """Whether the machine's controllers are all on the unified hierarchy."""
    return Path("/sys/fs/cgroup/cgroup.controllers").exists()


def _hierarchies() -> list[tuple[Path, int]]:
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount_point, kind, *_ = line.split(" ")
        if kind in ("cgroup", "cgroup2"):
            found.append((Path(mount_point), 2 if kind == "cgroup2" else 1))
    return found


def _delegate_controllers(path: Path) -> None:
    with contextlib.suppress(OSError):  # in the hybrid layout there is none to delegate
        controllers = (path / "cgroup.controllers").read_text().split()
        (path / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))


def _inherit_cpuset(path: Path) -> None:
    # On v1 a new cpuset is empty and nothing can run in it: https://docs.kernel.org/admin-guide/cgroup-v1/cpusets.html
    for name in ("cpuset.cpus", "cpuset.mems"):
        file = path / name
        if file.exists() and not (path / "cgroup.controllers").exists():
            file.write_text((path.parent / name).read_text())
