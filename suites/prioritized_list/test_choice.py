"""Which alternative is chosen, on a node and among nodes: PRI-01 and PRI-04."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from clusters.interface import Cluster
from harness.kube import Object
from suites import kinds
from suites.claims import NO_FIT, create_pod, first_available, get_claim
from suites.devices import by_request
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect_equal
from suites.kinds import Kinds
from suites.marks import needs_nodes, requirement
from suites.workload import Workloads


def _chosen(workloads: Workloads, pod: str) -> dict[str, list[str]]:
    """The devices of the claim of a pod that runs, by request."""
    workloads.wait_running(pod)
    return by_request(get_claim(workloads, pod))


@requirement("PRI-01")
@pytest.mark.parametrize("order", [("small", "big"), ("big", "small")], ids="-".join)
def test_the_first_that_can_be_met_is_used(
    order: tuple[str, str],
    cluster: Cluster,
    drivers: Drivers,
    workloads: Workloads,
    evidence: Observations,
) -> None:
    """A kind that isn't there is passed over; one that is used up makes room for the next, until it is free.

    The order of the list decides, not that of the devices.
    """
    gpus = kinds.start(drivers, cluster.nodes[:1], small=1, big=1)
    first, second = order
    wanted = first_available("gpu", [gpus.of("absent"), gpus.of(first), gpus.of(second)])

    chosen = {}
    for pod in ("one", "two"):
        create_pod(workloads, pod, [wanted])
        chosen[pod] = _chosen(workloads, pod)
    create_pod(workloads, "three", [wanted])
    refusal = workloads.wait_unschedulable("three", NO_FIT)
    workloads.delete("one")
    chosen["three"] = _chosen(workloads, "three")

    evidence("alternatives", ["absent", *order])
    evidence("chosen", chosen)
    evidence("what the scheduler says when both are used up", refusal)
    expect_equal("of the first pod", chosen["one"], {f"gpu/{first}": [f"{first}-0"]})
    expect_equal("once the first alternative is used up", chosen["two"], {f"gpu/{second}": [f"{second}-0"]})
    expect_equal("once the first alternative is free again", chosen["three"], chosen["one"])


def _too_few(gpus: Kinds) -> list[Object]:
    alternatives = [gpus.of("small", name="pair", count=2), gpus.of("big", name="big-pair", count=2)]
    return [first_available("gpu", alternatives)]


def _none_of_all(gpus: Kinds) -> list[Object]:
    return [first_available("gpu", [gpus.of("absent", everything=True), gpus.of("big", everything=True)])]


def _nothing_for_the_rest(gpus: Kinds) -> list[Object]:
    alternatives = [gpus.of("big", name="pair", count=2), gpus.of("big", name="single")]
    return [first_available("gpu", alternatives), gpus.of("big", name="rest")]


@requirement("PRI-01")
@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        pytest.param(_too_few, {"gpu/big-pair": ["big-0", "big-1"]}, id="one where two are asked for"),
        pytest.param(_none_of_all, {"gpu/big": ["big-0", "big-1"]}, id="all of none"),
        pytest.param(
            _nothing_for_the_rest,
            {"gpu/single": ["big-0"], "rest": ["big-1"]},
            id="nothing left for the rest of the claim",
        ),
    ],
)
def test_what_can_be_met_in_part_only_is_passed_over(
    requests: Callable[[Kinds], list[Object]],
    expected: Mapping[str, list[str]],
    cluster: Cluster,
    drivers: Drivers,
    workloads: Workloads,
    evidence: Observations,
) -> None:
    """An alternative counts as met if all of its devices can be had, and the rest of the claim too."""
    gpus = kinds.start(drivers, cluster.nodes[:1], small=1, big=2)

    create_pod(workloads, "pod", requests(gpus))
    chosen = _chosen(workloads, "pod")

    evidence("requests", requests(gpus))
    evidence("chosen", chosen)
    expect_equal("the first alternative that can be met", chosen, expected)


@requirement("PRI-04")
@needs_nodes(2)
def test_the_node_with_the_earlier_alternative_is_preferred(
    cluster: Cluster, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """One node has the first of eight alternatives and the other the last: pods go where their first is.

    They fit on either: once the first is used up, the next pod goes to the other node. Between the first and
    the last, no other of the scheduler's scores weighs more, such as how busy the nodes are.
    """
    here = kinds.start(drivers, cluster.nodes[:1], "here", near=2)
    there = kinds.start(drivers, cluster.nodes[1:2], "there", far=2)
    between = [here.of("absent", name=f"absent-{index}") for index in range(6)]
    near_first = first_available("gpu", [here.of("near"), *between, there.of("far")])
    far_first = first_available("gpu", [there.of("far"), *between, here.of("near")])

    near, far = (cluster.nodes[0].name, ["gpu/near"]), (cluster.nodes[1].name, ["gpu/far"])

    def place(pod: str, wanted: Object, expected: tuple[str, list[str]]) -> None:
        create_pod(workloads, pod, [wanted])
        node = workloads.wait_running(pod)["spec"]["nodeName"]
        placed = (node, list(by_request(get_claim(workloads, pod))))
        evidence(f"node and alternative of pod {pod}", placed)
        expect_equal(f"node and alternative of pod {pod}", placed, expected)

    place("near-first", near_first, near)
    place("far-first", far_first, far)
    place("near-again", near_first, near)
    place("near-used-up", near_first, far)
