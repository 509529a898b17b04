"""Programs that read the attributes, this harness's own among them: NUM-07, NUM-10 and LST-09."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from clusters.interface import Cluster
from harness.kube import RESOURCE_SLICES, KubeClient, Object
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect_equal
from suites.marks import requirement
from suites.numa.devices import published
from suites.topology import NUMA_NODE, Coverage, coverage, numa_nodes, values


def _device(name: str, **attributes: Any) -> dict[str, Any]:
    return {"name": name, "attributes": attributes}


@requirement("NUM-07")
def test_absent_is_unknown(cluster: Cluster, drivers: Drivers, evidence: Observations) -> None:
    """The harness's reader tells a device on node 0 from one that says nothing, and counts the latter."""
    known = _device("known", **{NUMA_NODE: {"int": 0}})
    inventory = {"devices": [known, _device("other", type={"string": "gpu"}), _device("bare")]}

    driver = drivers.start(inventory=inventory)

    found = {name: numa_nodes(device) for name, device in published(drivers, driver).items()}
    counted = coverage(drivers.slices(driver))
    evidence("NUMA nodes as read", found)
    evidence("coverage", {node: asdict(each) for node, each in counted.items()})
    expect_equal("NUMA nodes as read", found, {"known": (0,), "other": None, "bare": None})
    expected = {node.name: Coverage(devices=3, without_numa_node=2) for node in cluster.nodes}
    expect_equal("coverage by node", counted, expected)


@requirement("LST-09")
def test_one_value_and_a_list_are_read_alike(
    cluster: Cluster, drivers: Drivers, evidence: Observations
) -> None:
    """The harness's reader takes an integer as a list of one, and a list as it is, of every type."""
    inventory = {
        "devices": [
            _device("single", **{NUMA_NODE: {"int": 4}}, model={"string": "a"}, tested={"bool": False}),
            _device("one", **{NUMA_NODE: {"ints": [4]}}, model={"strings": ["a"]}, tested={"bools": [False]}),
            _device("more", **{NUMA_NODE: {"ints": [6, 4, 0]}}, model={"strings": ["b", "a"]}),
        ]
    }

    driver = drivers.start(nodes=cluster.nodes[:1], inventory=inventory)

    devices = published(drivers, driver)
    nodes = {name: numa_nodes(device) for name, device in devices.items()}
    others = {name: (values(each, "model"), values(each, "tested")) for name, each in devices.items()}
    evidence("published", {name: device["attributes"] for name, device in devices.items()})
    evidence("NUMA nodes as read", nodes)
    expect_equal("NUMA nodes as read", nodes, {"single": (4,), "one": (4,), "more": (6, 4, 0)})
    expected = {"single": (("a",), (False,)), "one": (("a",), (False,)), "more": (("b", "a"), ())}
    expect_equal("other attributes as read", others, expected)


@requirement("NUM-10")
def test_coverage_of_the_cluster(
    cluster: Cluster, kube: KubeClient, drivers: Drivers, evidence: Observations
) -> None:
    """By driver, how many devices each node has and how many lack numaNode; one driver is known to."""
    inventory = {"devices": [_device("known", **{NUMA_NODE: {"int": 0}}), _device("one"), _device("two")]}
    known = drivers.start(inventory=inventory)

    slices = kube.list(RESOURCE_SLICES)
    by_driver: dict[str, list[Object]] = {}
    for slice_ in slices:
        by_driver.setdefault(slice_["spec"]["driver"], []).append(slice_)
    counted = {driver: coverage(own) for driver, own in by_driver.items()}

    for driver, rows in counted.items():
        evidence(f"devices of {driver}", {node: asdict(each) for node, each in rows.items()})
    evidence("all devices", {node: asdict(each) for node, each in coverage(slices).items()})
    expected = {node.name: Coverage(devices=3, without_numa_node=2) for node in cluster.nodes}
    expect_equal("coverage of the known driver", counted.get(known.name), expected)
