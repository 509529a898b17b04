"""Devices of two drivers placed together: NUM-05 and NUM-06."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.driver_host import HostedDriver
from clusters.interface import Cluster
from suites.claims import NO_FIT, allocated_to, create_pod, request
from suites.drivers import DeviceClass, Drivers
from suites.evidence import Observations
from suites.expect import expect_equal
from suites.marks import needs_nodes, requirement
from suites.topology import NUMA_NODE, PCIE_ROOT
from suites.workload import Workloads


def _on(name: str, value: Any) -> dict[str, Any]:
    """A device on some NUMA nodes, its value as the API writes it; none of it without a value."""
    return {"name": name, "attributes": {NUMA_NODE: value} if value else {}}


def _start(
    drivers: Drivers, cluster: Cluster, suffix: str, *devices: dict[str, Any], nodes: slice = slice(1)
) -> tuple[HostedDriver, DeviceClass]:
    inventory = {"devices": list(devices)}
    driver = drivers.start(suffix=suffix, nodes=cluster.nodes[nodes], inventory=inventory)
    return driver, drivers.device_class(driver, suffix=suffix, extended_resource="")


@requirement("NUM-05")
@pytest.mark.parametrize("cpu", [{"ints": [4]}, {"int": 4}], ids=["list", "single"])
def test_lists_of_two_drivers_meet(
    cpu: dict[str, Any], cluster: Cluster, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """A CPU on node 4 goes with a card on 6, 4, 5 and 7; one on node 0 waits until it is on 4."""
    _, nics = _start(
        drivers, cluster, "nic", _on("nic0", {"ints": [6, 4, 5, 7]}), _on("nic1", {"ints": [6, 4]})
    )
    _, near = _start(drivers, cluster, "near", _on("cpu4", cpu))
    driver, far = _start(drivers, cluster, "far", _on("cpu0", {"ints": [0]}))
    constraint = {"matchAttribute": NUMA_NODE}

    create_pod(workloads, "near", [request("cpu", near), request("nic", nics)], constraint)
    workloads.wait_running("near")
    create_pod(workloads, "far", [request("cpu", far), request("nic", nics)], constraint)
    refusal = workloads.wait_unschedulable("far", NO_FIT)

    evidence("devices of the pod near", allocated_to(workloads, "near"))
    evidence("what the scheduler says to the pod far", refusal)
    expect_equal("the pair", allocated_to(workloads, "near"), ["cpu4", "nic0"])
    driver.client.set_inventory({"devices": [_on("cpu0", cpu)]})
    workloads.wait_running("far")
    evidence("devices of the pod far, once on 4", allocated_to(workloads, "far"))


@requirement("NUM-05")
@needs_nodes(2)
def test_the_machine_with_a_common_node_is_found(
    cluster: Cluster, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Cards are on node 4 of one machine and 1 of the other; a GPU on 1 is placed where its card is."""
    first, second = cluster.nodes[:2]
    _, gpus = _start(drivers, cluster, "gpu", _on("gpu", {"int": 1}), nodes=slice(2))
    driver, nics = _start(drivers, cluster, "nic", _on("nic", {"ints": [4, 5]}), nodes=slice(2))
    driver.client.set_inventory({"devices": [_on("nic", {"ints": [0, 1]})]}, node=second.name)
    wanted = [request("nic", nics), request("gpu", gpus)]

    create_pod(workloads, "pod", wanted, {"matchAttribute": NUMA_NODE})
    pod = workloads.wait_running("pod")

    evidence("node of the pod", pod["spec"]["nodeName"])
    evidence("refused for its card on nodes 4 and 5", first.name)
    expect_equal("the machine whose card shares a node", pod["spec"]["nodeName"], second.name, pod)


@requirement("NUM-05")
def test_gpu_and_card_below_one_pcie_root(
    cluster: Cluster, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """With cards below the roots of GPUs 2 and 3 only, two pods get those pairs and a third waits."""
    _, gpus = _start(drivers, cluster, "gpu", {"preset": "h200", "count": 4})
    cards = {"preset": "nic", "firstIndex": 2, "count": 2, "name": "nic-{index}"}
    _, nics = _start(drivers, cluster, "nic", cards)

    for pod in ("one", "two", "three"):
        wanted = [request("gpu", gpus), request("nic", nics)]
        create_pod(workloads, pod, wanted, {"matchAttribute": PCIE_ROOT})
        if pod != "three":
            workloads.wait_running(pod)
    refusal = workloads.wait_unschedulable("three", NO_FIT)

    pairs = sorted(allocated_to(workloads, pod) for pod in ("one", "two"))
    evidence("pairs", pairs)
    evidence("what the scheduler says to the third pod", refusal)
    expect_equal("pairs below one root", pairs, [["gpu-2", "nic-2"], ["gpu-3", "nic-3"]])


@requirement("NUM-06")
@pytest.mark.parametrize("kind", ["matchAttribute", "distinctAttribute"])
def test_without_the_attribute_no_constraint_is_met(
    kind: str, cluster: Cluster, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """A device without it is never chosen, not even alone or beside another without; with it, it is."""
    driver, device_class = _start(drivers, cluster, "gpu", _on("a", None), _on("b", None), _on("c", None))

    for pod, count in {"alone": 1, "pair": 2}.items():
        create_pod(workloads, pod, [request("some", device_class, count=count)], {kind: NUMA_NODE})
    refusals = {pod: workloads.wait_unschedulable(pod, NO_FIT) for pod in ("alone", "pair")}
    create_pod(workloads, "free", [request("some", device_class)])
    workloads.wait_running("free")

    evidence("what the scheduler says", refusals)
    evidence("a pod without the constraint", allocated_to(workloads, "free"))
    expect_equal("a pod without the constraint gets a device", len(allocated_to(workloads, "free")), 1)
    spare = min({"a", "b", "c"} - set(allocated_to(workloads, "free")))
    devices = [_on(name, {"int": 0} if name == spare else None) for name in ("a", "b", "c")]
    driver.client.set_inventory({"devices": devices})
    workloads.wait_running("alone")
    evidence("once one device has the attribute", allocated_to(workloads, "alone"))
    expect_equal("the device that has it", allocated_to(workloads, "alone"), [spare])
    evidence("a pod that asks for two", workloads.wait_unschedulable("pair", NO_FIT))


@requirement("NUM-06")
def test_a_card_without_the_attribute_goes_with_no_gpu(
    cluster: Cluster, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Absent is unknown, not node 0: a card that says nothing doesn't go with a GPU on node 0."""
    _, gpus = _start(drivers, cluster, "gpu", _on("gpu", {"int": 0}))
    driver, nics = _start(drivers, cluster, "nic", _on("nic", None))

    wanted = [request("gpu", gpus), request("nic", nics)]
    create_pod(workloads, "pod", wanted, {"matchAttribute": NUMA_NODE})
    refusal = workloads.wait_unschedulable("pod", NO_FIT)

    evidence("what the scheduler says", refusal)
    driver.client.set_inventory({"devices": [_on("nic", {"int": 0})]})
    workloads.wait_running("pod")
    evidence("once the card is on node 0", allocated_to(workloads, "pod"))
    expect_equal("the pair", allocated_to(workloads, "pod"), ["gpu", "nic"])
