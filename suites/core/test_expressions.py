"""Selectors that fail while they are evaluated: COR-02."""

from __future__ import annotations

import pytest

from clusters.interface import Cluster
from suites import kinds
from suites.claims import allocated_to, create_pod, request
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal
from suites.marks import needs_nodes, requirement
from suites.workload import Workloads

_ERROR = "CEL runtime error"


@requirement("COR-02")
@needs_nodes(2)
@pytest.mark.parametrize("where", ["claim", "class"])
def test_an_expression_that_fails_on_one_node(
    where: str, cluster: Cluster, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Its pod waits, though a device of the other node matches; other pods of the same driver run.

    Once the expression fails on no device, the pod runs.
    """
    # Two, since devices that are in use are not looked at: one is left when another pod has the other.
    driver = drivers.start(
        nodes=cluster.nodes[:2], inventory={"devices": [{"name": "plain-{index}", "count": 2}]}
    )
    driver.client.set_inventory(kinds.inventory(gpu=3), node=cluster.nodes[0].name)
    attributes = f'device.attributes["{driver.name}"]'
    cel, guarded = f'{attributes}.kind == "gpu"', f'{attributes}.?kind.orValue("") == "gpu"'
    every = drivers.device_class(driver, extended_resource="")
    strict = drivers.device_class(driver, suffix="strict", extended_resource="", cel=cel)

    wanted = request("gpu", every, cel=cel) if where == "claim" else request("gpu", strict)
    create_pod(workloads, "pod", [wanted])
    refusal = workloads.wait_unschedulable("pod", _ERROR)
    create_pod(workloads, "guarded", [request("gpu", every, cel=guarded)])
    create_pod(workloads, "other", [request("gpu", every)])
    others = {name: workloads.wait_running(name)["spec"]["nodeName"] for name in ("guarded", "other")}
    still = workloads.wait_unschedulable("pod", _ERROR)

    evidence("what the scheduler says", refusal)
    evidence("and while other pods run", still)
    evidence("nodes of the other pods", others)
    evidence("the reason names the device", "/plain-" in refusal)
    expect("the reason is CEL's own", "no such key: kind" in refusal, refusal)
    expect_equal("node of the pod that asks the same, guarded", others["guarded"], cluster.nodes[0].name)
    driver.client.set_inventory(kinds.inventory(gpu=3))
    workloads.wait_running("pod")
    evidence("device, once every device has the attribute", allocated_to(workloads, "pod"))
