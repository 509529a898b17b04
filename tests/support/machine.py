"""What a cluster could leave on a machine, taken down as values that can be compared.

Clusters of other state directories (a developer's own, say) are left out; while there are some, what can't be
told apart (network namespaces, kernel settings) is not compared.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.settings import machine_root
from tests.support.files import tree

_CGROUPS = Path("/sys/fs/cgroup")
_FOLDERS = ("/run/netns", "/var/lib/kubelet", "/var/lib/cni", "/var/log/pods", "/var/log/containers")
_SYSCTLS = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward")
_MARK = b"DRA_HARNESS_CLUSTER="


@dataclass(frozen=True)
class Machine:
    """One look at the machine."""

    processes: frozenset[str]
    """Command lines of processes that carry a cluster's mark, with their pids."""
    mounts: frozenset[str]
    namespaces: frozenset[str]
    """Network namespaces that some process is in."""
    links: frozenset[str]
    addresses: frozenset[str]
    cgroups: frozenset[str]
    files: frozenset[str]
    sysctls: frozenset[str]
    registry: frozenset[str]

    def difference(self, later: Machine) -> dict[str, list[str]]:
        """What a later look has that this one hasn't, or the other way round, by subject."""
        before, after = asdict(self), asdict(later)
        return {
            name: sorted(before[name] ^ after[name])
            for name in before
            if before[name] != after[name] and not ({_ELSEWHERE} & (before[name] | after[name]))
        }


_ELSEWHERE = "not comparable: there are clusters of other state directories"


def look(state_dir: Path) -> Machine:
    """Look at the machine now; `state_dir` is where the clusters' files are."""
    registered = {path.name for path in (machine_root() / "clusters").glob("*")}
    foreign = registered - _ids(state_dir)
    incomparable = frozenset({_ELSEWHERE})
    return Machine(
        processes=_processes(foreign),
        mounts=frozenset(Path("/proc/self/mounts").read_text().splitlines()),
        namespaces=incomparable if foreign else _namespaces(),
        links=_without(foreign, (link["ifname"] for link in _ip("link"))),
        addresses=frozenset(
            address["local"]
            for link in _ip("addr")
            for address in link["addr_info"]
            if address.get("family") == "inet" and not any(each in address["label"] for each in foreign)
        ),
        cgroups=_without(
            foreign, (str(path) for path in tree(_CGROUPS) if path.name.startswith("dra-harness-"))
        ),
        files=_files(state_dir),
        sysctls=incomparable if foreign else frozenset(map(_sysctl, _SYSCTLS)),
        registry=frozenset(registered - foreign),
    )


def _ids(state_dir: Path) -> set[str]:
    found = set()
    for path in state_dir.glob("clusters/*/cluster.json"):
        found.add(json.loads(path.read_text())["id"])
    return found


def _without(foreign: Collection[str], values: Any) -> frozenset[str]:
    # veth interfaces have no name of ours; those of foreign pods come and go.
    kept = (value for value in values if not any(each in value for each in foreign))
    return frozenset(value for value in kept if not (foreign and value.startswith("veth")))


def _processes(foreign: Collection[str]) -> frozenset[str]:
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            marks = [each[len(_MARK) :].decode() for each in variables if each.startswith(_MARK)]
            if marks and not set(marks) & set(foreign):
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
    found = set(map(str, tree(state_dir)))
    for folder in (*map(Path, _FOLDERS), state_dir):
        if folder.exists():
            found |= {str(folder), *map(str, folder.iterdir())}
    return frozenset(found)


def _sysctl(name: str) -> str:
    return f"{name}={Path('/proc/sys', name).read_text().strip()}"
