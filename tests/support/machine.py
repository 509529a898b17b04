"""What a cluster could leave on a machine, taken down as values that can be compared."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_FOLDERS = (
    "/run/netns",
    "/var/lib/kubelet",
    "/var/lib/cni",
    "/var/log/pods",
    "/var/log/containers",
    "/var/run/cdi",
)
_SYSCTLS = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward")


@dataclass(frozen=True)
class Machine:
    """One look at the machine."""

    processes: frozenset[str]
    """Command lines of processes that carry any cluster's mark, with their pids."""
    mounts: frozenset[str]
    namespaces: frozenset[str]
    """Network namespaces that some process is in."""
    links: frozenset[str]
    addresses: frozenset[str]
    cgroups: frozenset[str]
    files: frozenset[str]
    sysctls: frozenset[str]

    def difference(self, later: Machine) -> dict[str, list[str]]:
        """What a later look has that this one hasn't, or the other way round, by subject."""
        before, after = asdict(self), asdict(later)
        changes = {name: sorted(before[name] ^ after[name]) for name in before}
        return {name: values for name, values in changes.items() if values}


def look(state_dir: Path) -> Machine:
    """Look at the machine now; `state_dir` is where the clusters' files are."""
    return Machine(
        processes=_processes(),
        mounts=frozenset(Path("/proc/self/mounts").read_text().splitlines()),
        namespaces=_namespaces(),
        links=frozenset(link["ifname"] for link in _ip("link")),
        addresses=frozenset(
            address["local"] for link in _ip("addr") for address in link["addr_info"] if "local" in address
        ),
        cgroups=frozenset(str(path) for path in Path("/sys/fs/cgroup").glob("**/dra-harness-*")),
        files=_files(state_dir),
        sysctls=frozenset(f"{name}={Path('/proc/sys', name).read_text().strip()}" for name in _SYSCTLS),
    )


def _processes() -> frozenset[str]:
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if b"DRA_HARNESS_CLUSTER=" in (entry / "environ").read_bytes():
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found.add(f"{entry.name} {command}")
        except OSError:
            continue
    return frozenset(found)


def _namespaces() -> frozenset[str]:
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found.add(str((entry / "ns" / "net").readlink()))
            except OSError:
                continue
    return frozenset(found)


def _ip(what: str) -> list[dict[str, Any]]:
    output = subprocess.run(["ip", "-j", what, "show"], check=True, capture_output=True, text=True).stdout
    links: list[dict[str, Any]] = json.loads(output)
    return links


def _files(state_dir: Path) -> frozenset[str]:
    found = {str(path) for path in state_dir.rglob("*")} if state_dir.exists() else set()
    for folder in (*map(Path, _FOLDERS), state_dir):
        if folder.exists():
            found |= {str(folder), *map(str, folder.iterdir())}
    return frozenset(found)
