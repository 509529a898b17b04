"""Devices, seen from both ends: what a claim's allocation names, and what a container was given."""

from __future__ import annotations

from collections.abc import Collection

from harness.kube import Object
from suites.expect import field

_DEVICE_DIR = "/dev/dra-harness/"


def allocated(claim: Object) -> list[str]:
    """The names of a claim's allocated devices, sorted; one per allocation result."""
    results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    return sorted(result["device"] for result in results)


def given(report: Object) -> list[str]:
    """The devices of the bundled driver in a container, by its device nodes, sorted.

    Their paths are `/dev/dra-harness/<driver>/<device>`.
    """
    return sorted(path.split("/")[-1] for path in report["devices"] if path.startswith(_DEVICE_DIR))


def requests_of(claim: Object) -> dict[str, int]:
    """A claim's requests for a number of devices: name -> how many."""
    requests = field(claim, "spec", "devices", "requests")
    return {request["name"]: field(request, "exactly").get("count", 1) for request in requests}


def classes_of(claim: Object) -> dict[str, str]:
    """A claim's requests: name -> the device class."""
    requests = field(claim, "spec", "devices", "requests")
    return {request["name"]: field(request, "exactly", "deviceClassName") for request in requests}


def allocated_to(claim: Object, requests: Collection[str]) -> list[str]:
    """The names of the devices allocated for some of a claim's requests, sorted."""
    found = by_request(claim)
    return sorted(device for request in requests for device in found.get(request, ()))


def by_request(claim: Object) -> dict[str, list[str]]:
    """The names of a claim's allocated devices, sorted, by request or `<request>/<alternative>`."""
    found: dict[str, list[str]] = {}
    for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ()):
        found.setdefault(result["request"], []).append(result["device"])
    return {request: sorted(devices) for request, devices in found.items()}
