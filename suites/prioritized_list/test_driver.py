"""What a driver does with a request named `<request>/<alternative>`: PRI-05."""

from __future__ import annotations

from suites.claims import from_claim
from suites.devices import given
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect_equal
from suites.marks import requirement
from suites.prioritized_list import scopes
from suites.workload import Container, Workloads, pod_manifest


@requirement("PRI-05")
def test_containers_of_the_request_are_served(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """A container that names the request gets the alternative's device, with the alternative's configuration.

    One that names another request gets nothing of it, and one that names the whole claim gets both.
    """
    scopes.create(workloads, drivers, scopes.start(drivers), "claim")
    references = {"gpu": "device/gpu", "other": "device/other", "both": "device"}
    containers = [Container(name, claims=[reference]) for name, reference in references.items()]
    claims = [from_claim("device", "claim")]

    workloads.run(pod_manifest("pod", containers, resourceClaims=claims))

    reports = {name: workloads.report("pod", name) for name in references}
    devices = {name: given(report) for name, report in reports.items()}
    variables = {name: sorted(scopes.VARIABLES & report["env"].keys()) for name, report in reports.items()}
    evidence("devices in each container", devices)
    evidence("variables in each container", variables)
    both = {"gpu": ["big-0"], "other": ["small-0"], "both": ["big-0", "small-0"]}
    expect_equal("devices in each container", devices, both)
    expected = {"gpu": scopes.OF_GPU, "other": scopes.OF_OTHER}
    expected["both"] = sorted({*scopes.OF_GPU, *scopes.OF_OTHER})
    expect_equal("configuration in each container", variables, expected)
