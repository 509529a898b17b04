"""Alternatives that ask for more devices than a claim can hold: PRI-06."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from clusters.interface import Cluster
from harness.kube import Object
from suites import kinds
from suites.claims import create_pod, first_available, get_claim
from suites.devices import by_request
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect_equal
from suites.kinds import Kinds
from suites.marks import exclusive, requirement
from suites.workload import Workloads

_MOST = 32
"""Devices that a claim can hold: AllocationResultsMaxSize in the API's types."""
_DEVICES = 40
"""So that it is not for want of devices that an alternative is passed over."""
_HUGE = 2**63 - 1
"""The API's largest number: another device on top of it, in the same type, is less than none."""


def _one_more(gpus: Kinds) -> list[Object]:
    return _either(gpus, gpus.of("gpu", name="many", count=_MOST + 1))


def _all(gpus: Kinds) -> list[Object]:
    return _either(gpus, gpus.of("gpu", name="many", everything=True))


def _too_many_with_another(gpus: Kinds) -> list[Object]:
    return [gpus.of("gpu", name="one"), *_either(gpus, gpus.of("gpu", name="many", count=_MOST))]


def _huge_with_another(gpus: Kinds) -> list[Object]:
    return [gpus.of("gpu", name="one"), *_either(gpus, gpus.of("gpu", name="many", count=_HUGE))]


def _either(gpus: Kinds, many: Object) -> list[Object]:
    return [first_available("some", [many, gpus.of("gpu", name="few", count=2)])]


@requirement("PRI-06")
@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        pytest.param(_one_more, {"some/few": 2}, id="33"),
        pytest.param(_all, {"some/few": 2}, id="all of 40"),
        pytest.param(_too_many_with_another, {"one": 1, "some/few": 2}, id="32 and one"),
        pytest.param(_huge_with_another, {"one": 1, "some/few": 2}, id="as many as can be written and one"),
    ],
)
def test_too_large_an_alternative_is_passed_over(
    requests: Callable[[Kinds], list[Object]],
    expected: Mapping[str, int],
    cluster: Cluster,
    drivers: Drivers,
    workloads: Workloads,
    evidence: Observations,
) -> None:
    """Though there are 40 devices, the second alternative is used, and the pod runs."""
    gpus = kinds.start(drivers, cluster.nodes[:1], gpu=_DEVICES)

    create_pod(workloads, "pod", requests(gpus))
    workloads.wait_running("pod")

    claim = get_claim(workloads, "pod")
    counts = {name: len(devices) for name, devices in by_request(claim).items()}
    evidence("requests", requests(gpus))
    evidence("devices of each request", by_request(claim))
    expect_equal("devices of each request", counts, expected, claim)


@requirement("PRI-06")
@exclusive  # a scheduler that breaks this promise ends, and everybody's pods wait
def test_too_large_alternatives_alone_stop_nobody(
    cluster: Cluster, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """A pod whose alternatives are all too large waits, for that reason; the next pod is scheduled."""
    gpus = kinds.start(drivers, cluster.nodes[:1], gpu=_DEVICES)
    huge = [first_available(name, [gpus.of("gpu", name="many", count=_HUGE)]) for name in ("one", "two")]

    create_pod(workloads, "pod", huge)
    refusal = workloads.wait_unschedulable("pod", f"exceeds the claim limit of {_MOST}")
    create_pod(workloads, "next", [gpus.of("gpu")])
    workloads.wait_running("next")

    evidence("what the scheduler says", refusal)
    evidence("devices of the next pod", by_request(get_claim(workloads, "next")))
