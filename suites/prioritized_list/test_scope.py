"""How an allocation names the chosen alternative, and what of the claim applies to it: PRI-02."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from clusters.interface import Cluster
from harness.kube import Object
from suites.claims import create_pod, first_available, get_claim, pod_with_claim
from suites.devices import by_request
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect_equal, field
from suites.kinds import Kinds
from suites.marks import requirement
from suites.prioritized_list import scopes
from suites.workload import Workloads


def _applying(claim: Object, request: str) -> list[str]:
    """The variables of all configuration that is for a request or `<request>/<alternative>`."""
    found: set[str] = set()
    for config in field(claim, "status", "allocation", "devices", "config"):
        names = config.get("requests", ())
        if not names or {request, request.partition("/")[0]} & set(names):
            found |= config["opaque"]["parameters"]["env"].keys()
    return sorted(found)


@requirement("PRI-02")
def test_only_configuration_for_the_chosen_alternative_applies(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Of the alternative that was passed over, nothing applies, neither from the claim nor from its class.

    What is for one alternative or the other is not for other requests (k/k#139814).
    """
    scopes.create(workloads, drivers, scopes.start(drivers), "pod")

    workloads.run(pod_with_claim("pod"))

    claim = get_claim(workloads, "pod")
    chosen = by_request(claim)
    applying = {request: _applying(claim, request) for request in chosen}
    evidence("configuration of the claim", claim["spec"]["devices"]["config"])
    evidence("configuration of the allocation", claim["status"]["allocation"]["devices"]["config"])
    evidence("variables for each request", applying)
    expect_equal("devices", chosen, {"gpu/second": ["big-0"], "other": ["small-0"]}, claim)
    expect_equal("what applies", applying, {"gpu/second": scopes.OF_GPU, "other": scopes.OF_OTHER}, claim)


@requirement("PRI-02")
@pytest.mark.parametrize(
    ("bound", "slow_groups", "expected"),
    [
        pytest.param(("gpu", "card"), (0, 1), {"gpu/slow": ["slow-1"]}, id="the request"),
        pytest.param(("gpu/fast", "card"), (0,), {"gpu/slow": ["slow-0"]}, id="the first alternative"),
        pytest.param(("gpu/slow", "card"), (1,), {"gpu/fast": ["fast-0"]}, id="the second alternative"),
    ],
)
def test_only_constraints_for_the_chosen_alternative_apply(
    bound: Sequence[str],
    slow_groups: Sequence[int],
    expected: Mapping[str, list[str]],
    cluster: Cluster,
    drivers: Drivers,
    workloads: Workloads,
    evidence: Observations,
) -> None:
    """The GPU has to be of the card's group, 1, in the alternatives that the constraint names.

    The fast GPU is of group 0: it is passed over where it is bound, and taken where only the slow one is.
    """
    groups = {"fast": (0,), "slow": slow_groups, "card": (1,)}
    driver = drivers.start(nodes=cluster.nodes[:1], inventory=_inventory(groups))
    devices = Kinds(driver, drivers.device_class(driver, extended_resource=""))
    requests = [first_available("gpu", [devices.of("fast"), devices.of("slow")]), devices.of("card")]
    constraint = {"matchAttribute": f"{driver.name}/group", "requests": list(bound)}

    create_pod(workloads, "pod", requests, constraint)
    workloads.wait_running("pod")

    claim = get_claim(workloads, "pod")
    evidence("groups of the devices", groups)
    evidence("requests of the constraint", list(bound))
    evidence("devices of each request", by_request(claim))
    expect_equal("devices", by_request(claim), {**expected, "card": ["card-0"]}, claim)


def _inventory(groups: Mapping[str, Sequence[int]]) -> Object:
    return {
        "devices": [
            {"name": f"{kind}-{index}", "attributes": {"kind": {"string": kind}, "group": {"int": group}}}
            for kind, members in groups.items()
            for index, group in enumerate(members)
        ]
    }
