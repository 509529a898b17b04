"""What must be true before a local cluster is started; every failure is one clear message."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from clusters.interface import ClusterSpec, Finding
from clusters.local.network import MAX_NODES
from harness.errors import UsageError
from harness.settings import cache_root, state_root

TOOLS = {"unshare": "util-linux", "nsenter": "util-linux", "mount": "mount", "ip": "iproute2"}
"""Program on PATH -> the Debian package that has it."""

_TRIALS = {
    "namespaces": (
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--propagation",
        "private",
        "true",
    ),
    "network settings": ("ip", "-j", "link", "show", "lo"),
}
"""What only trying tells: capabilities, and whether the tools know the options."""

_MOVED_BY = {"state directory": "DRA_HARNESS_STATE", "cache": "DRA_HARNESS_CACHE"}

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_NEEDED_MIB = 1024
_MAX_SIMULATED = 5000
_MASKED = ("/var/lib", "/var/log", "/run")


def check_machine() -> list[Finding]:
    """Everything a local cluster needs of the machine, found or not."""
    tools = _tools()
    findings = [
        _root(),
        _disk(),
        _place("state directory", state_root()),
        _place("cache", cache_root()),
        *tools,
    ]
    if all(finding.ok for finding in findings):
        findings += [_trial(subject, command) for subject, command in _TRIALS.items()]
    return findings


def require(spec: ClusterSpec) -> None:
    """Refuse a spec or a machine that can't work.

    Raises:
        UsageError: naming what is wrong and what was expected.
    """
    require_name(spec.name)
    if not 1 <= spec.nodes <= MAX_NODES:
        raise UsageError(f"--nodes {spec.nodes}: expected 1 to {MAX_NODES}")
    require_simulated(spec.simulated_nodes)
    for finding in check_machine():
        if not finding.ok:
            raise UsageError(f"{finding.subject}: {finding.message}")


def require_name(name: str) -> None:
    """Refuse what can't be the name of a cluster."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"cluster name {name!r}: expected at most 32 of a-z, 0-9 and -, not at the ends")


def require_simulated(count: int) -> None:
    """Refuse a number of simulated nodes that can't be."""
    if not 0 <= count <= _MAX_SIMULATED:
        raise UsageError(f"--simulated-nodes {count}: expected 0 to {_MAX_SIMULATED}")


def _root() -> Finding:
    ok = os.geteuid() == 0
    return Finding(
        "root", ok, "yes" if ok else "a local cluster needs root (namespaces and mounts); use sudo"
    )


def _disk() -> Finding:
    place = state_root()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free // 2**20
    return Finding("disk", free >= _NEEDED_MIB, f"{place} has {free} MiB free, {_NEEDED_MIB} MiB needed")


def _place(subject: str, path: Path) -> Finding:
    real = Path(os.path.realpath(path))
    masked = next((top for top in _MASKED if real.is_relative_to(os.path.realpath(top))), None)
    if masked:
        message = f"{real} is inside {masked}, which a node hides by its own; {_MOVED_BY[subject]} moves it"
        return Finding(subject, ok=False, message=message)
    existing = next(each for each in (real, *real.parents) if each.exists())
    if not existing.is_dir():
        return Finding(subject, ok=False, message=f"{existing} is no folder")
    return Finding(subject, ok=True, message=str(real))


def _trial(subject: str, command: Sequence[str]) -> Finding:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(subject, ok=False, message=f"{' '.join(command)}: {error}")
    if done.returncode:
        return Finding(subject, ok=False, message=f"{' '.join(command)}: {done.stderr.strip()}")
    return Finding(subject, ok=True, message="yes")


def _tools() -> list[Finding]:
    findings = []
    for tool, package in TOOLS.items():
        path = shutil.which(tool)
        findings.append(Finding(tool, path is not None, path or f"not on PATH: apt-get install {package}"))
    return findings
