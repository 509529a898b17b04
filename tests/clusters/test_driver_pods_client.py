"""Several pods' control endpoints as one: two real drivers, one node each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_driver.client import DriverError
from fake_driver.faults import Fault, FaultKind

from clusters.driver_pods_client import PodsClient
from tests.fake_driver.conftest import Rig, api, claim, default_inventory, node_config, start, write_config
from tests.fake_driver.standin import ApiServerStandin

__all__ = ["api", "claim", "default_inventory", "start", "write_config"]

NODES = ("node-1", "node-2")


@pytest.fixture
def rigs(start: Callable[..., Rig], api: ApiServerStandin, tmp_path: Path) -> dict[str, Rig]:
    api.node("node-2")
    return {
        node: start(nodes=[node_config(tmp_path, node)], control={"socket": str(tmp_path / f"{node}.sock")})
        for node in NODES
    }


@pytest.fixture
def client(rigs: dict[str, Rig]) -> PodsClient:
    return PodsClient({node: rig.client.transport for node, rig in rigs.items()})


def test_the_status_has_every_node(client: PodsClient) -> None:
    assert [node.name for node in client.status().nodes] == ["node-1", "node-2"]


def test_a_request_for_one_node_goes_there_alone(client: PodsClient, rigs: dict[str, Rig]) -> None:
    client.set_health("dev-0", "Unhealthy", node="node-2")
    assert client.status().node("node-2").health["dev-0"] == "Unhealthy"
    assert client.status().node("node-1").health["dev-0"] == "Healthy"
    with pytest.raises(DriverError, match="node: expected one of node-1, node-2, got 'node-3'"):
        client.set_health("dev-0", "Unhealthy", node="node-3")


def test_a_request_for_no_node_goes_to_all(client: PodsClient) -> None:
    client.set_inventory({"devices": [{"count": 5, "name": "new-{index}"}]})
    assert [len(node.devices) for node in client.status().nodes] == [5, 5]


def test_calls_come_in_the_order_of_their_time(
    client: PodsClient, rigs: dict[str, Rig], claim: Callable[..., Any]
) -> None:
    for node in ("node-2", "node-1", "node-2"):
        rigs[node].kubelet(node).prepare(claim({"request": "r", "device": "dev-0", "pool": node}))
    called = client.calls(method="NodePrepareResources")
    assert [call.node for call in called] == ["node-2", "node-1", "node-2"]
    assert [call.node for call in client.calls(node="node-1")] == ["node-1"]
    with pytest.raises(DriverError, match="`after` counts the calls of one pod"):
        client.calls(after=1)


def test_a_fault_is_set_and_lifted_on_all(client: PodsClient, rigs: dict[str, Rig]) -> None:
    id_ = client.set_fault(Fault(method="NodePrepareResources", kind=FaultKind.ERROR))
    assert [len(rig.client.status().faults) for rig in rigs.values()] == [1, 1]
    client.clear_faults(id_)
    assert [len(rig.client.status().faults) for rig in rigs.values()] == [0, 0]


def test_faults_that_are_numbered_apart_are_an_error(client: PodsClient, rigs: dict[str, Rig]) -> None:
    rigs["node-1"].client.set_fault(Fault(method="NodePrepareResources", kind=FaultKind.ERROR))
    with pytest.raises(DriverError, match="the pods number their faults differently"):
        client.set_fault(Fault(method="NodePrepareResources", kind=FaultKind.ERROR))


def test_a_driver_without_pods_is_an_error() -> None:
    with pytest.raises(DriverError, match="the driver has no pod"):
        PodsClient({})
