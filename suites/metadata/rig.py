"""What the checks of this area share: allocations, and where the metadata of a pod's claims is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from clusters.driver_host import HostedDriver
from clusters.interface import Node
from harness.kube import Object
from suites.workload import Workloads

DIRECTORY = "/var/run/kubernetes.io/dra-device-attributes"
"""Where a container finds metadata; see k8s.io/dynamic-resource-allocation/api/metadata."""
HOST_FOLDER = "dra-device-metadata"
"""Where a driver has it on the host, in its own folder."""


def results(claim: Object, driver: str = "") -> list[tuple[str, str, str]]:
    """What is allocated to a claim, sorted: request, pool and device; of one driver if given."""
    allocated = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    return sorted(
        (result["request"], result["pool"], result["device"])
        for result in allocated
        if driver in ("", result["driver"])
    )


def direct_path(claim: str, request_: str, driver: str) -> str:
    """Where a container finds the metadata of a claim that the pod names."""
    return f"{DIRECTORY}/resourceclaims/{claim}/{request_}/{driver}-metadata.json"


def template_path(pod_claim: str, request_: str, driver: str) -> str:
    """Where a container finds the metadata of a claim made from a template."""
    return f"{DIRECTORY}/resourceclaimtemplates/{pod_claim}/{request_}/{driver}-metadata.json"


def files(report: Object) -> dict[str, str]:
    """The metadata files that a container's report shows: path -> content."""
    return {path: text for path, text in report["files"].items() if path.startswith(DIRECTORY + "/")}


def read_again(workloads: Workloads, pod: str, *arguments: str, container: str = "main") -> Object:
    """A report of a running container as of now."""
    command = ["/pod", "report", *arguments]
    value: Object = json.loads(workloads.kube.exec(workloads.namespace, pod, container, command))
    return value


def on_hosts(driver: HostedDriver, nodes: Sequence[Node]) -> list[str]:
    """What a driver has on its nodes' hosts for metadata: files, folders of claims, and CDI specs.

    The places are those of k8s.io/dynamic-resource-allocation/kubeletplugin.
    """
    return sorted(path for node in nodes for path in _on_host(driver, node))


def _on_host(driver: HostedDriver, node: Node) -> Iterator[str]:
    there = driver.files(node)
    for path in there.below(f"{there.own}/{HOST_FOLDER}"):
        yield f"{node.name}: plugins/{driver.name}/{HOST_FOLDER}/{path}"
    for name in there.below(there.cdi):
        if name.startswith(f"{driver.name}_metadata_"):
            yield f"{node.name}: {name}"


def listed(document: Object) -> dict[str, list[Any]]:
    """The devices of a metadata object by request, as (driver, pool, name), sorted."""
    return {
        entry["name"]: sorted(
            (device["driver"], device["pool"], device["name"]) for device in entry.get("devices", ())
        )
        for entry in document.get("requests", ())
    }
