"""What must be true before a kind cluster is made; every failure is one clear message."""

from __future__ import annotations

import os
import shutil

from clusters.interface import ClusterSpec, Finding
from clusters.kind import daemon, docker, node_image
from clusters.local import preflight as local
from clusters.local.node import has_cap_sys_resource
from harness.errors import EnvironmentBlocked, UsageError

_MAX_WORKERS = 5
"""Each node takes about 20 of the machine's 128 inotify instances."""
_SHARED = "nodes share folders with this machine, so expected unix://..."


def check_machine(*, builds: bool = True) -> list[Finding]:
    """Everything that provider kind needs of the machine, found or not.

    Args:
        builds: whether a node image may have to be built.
    """
    root = os.geteuid() == 0
    findings = [
        Finding("root", root, "yes" if root else "provider kind shares the kubelets' folders; use sudo"),
        _client(),
    ]
    if all(finding.ok for finding in findings):
        findings.append(_daemon())
    if builds and all(finding.ok for finding in findings):
        findings.append(_node_image())
    return findings


def require(spec: ClusterSpec, *, builds: bool = True) -> None:
    """Refuse a spec or a machine that can't work.

    Args:
        spec: what is to be made.
        builds: whether a node image may have to be built.

    Raises:
        UsageError: naming what is wrong and what was expected.
    """
    local.require_name(spec.name)
    if not 1 <= spec.nodes <= _MAX_WORKERS:
        raise UsageError(f"--nodes {spec.nodes}: provider kind expects 1 to {_MAX_WORKERS} workers")
    local.require_simulated(spec.simulated_nodes)
    for finding in check_machine(builds=builds):
        if not finding.ok:
            raise UsageError(f"{finding.subject}: {finding.message}")


def _client() -> Finding:
    path = shutil.which("docker")
    return Finding("docker", path is not None, path or "not on PATH: apt-get install docker.io")


def _daemon() -> Finding:
    host = docker.environment().get("DOCKER_HOST", "")
    if host and not host.startswith("unix://"):
        message = f"DOCKER_HOST is {host}: {_SHARED}"
        return Finding("docker daemon", ok=False, message=message)
    try:
        version = docker.run(["version", "--format", "{{.Server.Version}}"], timeout=20).strip()
    except EnvironmentBlocked as error:
        return Finding("docker daemon", ok=False, message=_advice(str(error)))
    place = host or docker.context_host()
    if place and not place.startswith("unix://"):
        message = f"Docker's context leads to {place}: {_SHARED}"
        return Finding("docker daemon", ok=False, message=message)
    return Finding("docker daemon", ok=True, message=f"{version} {_place(host)}{_runtime()}".strip())


def _runtime() -> str:
    """What is to be known of the runtime where root, and so mostly the daemon, lacks CAP_SYS_RESOURCE."""
    if has_cap_sys_resource():
        return ""
    runtime = docker.run(["info", "--format", "{{.DefaultRuntime}}"], timeout=20).strip()
    if runtime == daemon.RUNTIME:
        return ""
    return (
        f"; root lacks CAP_SYS_RESOURCE here, and the default runtime {runtime} may not start nodes without "
        "it (that of `dra-harness docker up` does)"
    )


def _node_image() -> Finding:
    try:
        node_image.require_buildable()
    except UsageError as error:
        return Finding("node image", ok=False, message=f"{error}, or give --node-image")
    return Finding("node image", ok=True, message="can be built, or was")


def _advice(refusal: str) -> str:
    if "permission denied" in refusal.lower():
        return f"{refusal}; add yourself to the group docker, or use sudo"
    missing = [f"{name} ({package})" for name, package in daemon.PACKAGES.items() if not shutil.which(name)]
    lacking = f"; for that, first apt-get install what it needs: {', '.join(missing)}" if missing else ""
    limits = "" if has_cap_sys_resource() else " (root lacks CAP_SYS_RESOURCE here; it copes with that)"
    return f"{refusal}; start yours, or `dra-harness docker up`{limits}{lacking}"


def _place(host: str) -> str:
    return "(the harness's own)" if host == docker.own_host() else host
