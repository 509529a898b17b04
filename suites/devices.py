"""Devices, seen from both ends: what a claim's allocation names, and what a container was given."""

from __future__ import annotations

from harness.kube import Object

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
    """A claim's requests: name -> how many devices of a class."""
    requests = claim["spec"]["devices"]["requests"]
    return {request["name"]: request["exactly"].get("count", 1) for request in requests}
