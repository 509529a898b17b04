"""Several pods' control endpoints as one: two real drivers or device plugins, one node each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_driver.client import DriverError
from fake_driver.control.server import ControlServer
from fake_driver.deviceplugin.config import DevicePluginConfig
from fake_driver.deviceplugin.plugin import DevicePlugins, operations
from fake_driver.faults import Fault, FaultKind
from fake_driver.transports import UnixTransport

from clusters.driver_pods_client import DevicePluginPodsClient, DriverPodsClient
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
def client(rigs: dict[str, Rig]) -> DriverPodsClient:
    return DriverPodsClient({node: rig.client.transport for node, rig in rigs.items()})


def test_the_status_has_every_node(client: DriverPodsClient) -> None:
    assert [node.name for node in client.status().nodes] == ["node-1", "node-2"]


def test_a_request_for_one_node_goes_there_alone(client: DriverPodsClient, rigs: dict[str, Rig]) -> None:
    client.set_health("dev-0", "Unhealthy", node="node-2")
    assert client.status().node("node-2").health["dev-0"] == "Unhealthy"
    assert client.status().node("node-1").health["dev-0"] == "Healthy"
    with pytest.raises(DriverError, match="node: expected one of node-1, node-2, got 'node-3'"):
        client.set_health("dev-0", "Unhealthy", node="node-3")


def test_a_request_for_no_node_goes_to_all(client: DriverPodsClient) -> None:
    client.set_inventory({"devices": [{"count": 5, "name": "new-{index}"}]})
    assert [len(node.devices) for node in client.status().nodes] == [5, 5]


def test_calls_come_in_the_order_of_their_time(
    client: DriverPodsClient, rigs: dict[str, Rig], claim: Callable[..., Any]
) -> None:
    for node in ("node-2", "node-1", "node-2"):
        rigs[node].kubelet(node).prepare(claim({"request": "r", "device": "dev-0", "pool": node}))
    called = client.calls(method="NodePrepareResources")
    assert [call.node for call in called] == ["node-2", "node-1", "node-2"]
    assert [call.node for call in client.calls(node="node-1")] == ["node-1"]
    with pytest.raises(DriverError, match="`after` counts the calls of one pod"):
        client.calls(after=1)


def test_a_fault_is_set_and_lifted_on_all(client: DriverPodsClient, rigs: dict[str, Rig]) -> None:
    id_ = client.set_fault(Fault(method="NodePrepareResources", kind=FaultKind.ERROR))
    assert [len(rig.client.status().faults) for rig in rigs.values()] == [1, 1]
    client.clear_faults(id_)
    assert [len(rig.client.status().faults) for rig in rigs.values()] == [0, 0]


def test_faults_that_are_numbered_apart_are_an_error(client: DriverPodsClient, rigs: dict[str, Rig]) -> None:
    rigs["node-1"].client.set_fault(Fault(method="NodePrepareResources", kind=FaultKind.ERROR))
    with pytest.raises(DriverError, match="the pods number their faults differently"):
        client.set_fault(Fault(method="NodePrepareResources", kind=FaultKind.ERROR))


@contextmanager
def device_plugin(directory: Path, node: str) -> Iterator[UnixTransport]:
    """The way to a real one, whose kubelet is not there."""
    socket = directory / f"{node}.sock"
    config = DevicePluginConfig.model_validate(
        {
            "resource": "a.example/b",
            "nodes": [{"name": node, "kubeletDir": directory / node}],
            "control": {"socket": socket},
        }
    )
    plugins = DevicePlugins(config)
    server = ControlServer(config.control, operations(plugins), (plugins.Refused,))
    server.start()
    plugins.start()
    yield UnixTransport(socket, 10)
    plugins.stop()
    server.stop()


def test_device_plugins_are_asked_alike(tmp_path: Path) -> None:
    with ExitStack() as running:
        client = DevicePluginPodsClient(
            {node: running.enter_context(device_plugin(tmp_path, node)) for node in NODES}
        )
        client.set_count(2, node="node-2")
        client.set_health("dev-0", "Unhealthy")

        assert {node.name: node.devices for node in client.status().nodes} == {
            "node-1": {"dev-0": "Unhealthy"},
            "node-2": {"dev-0": "Unhealthy", "dev-1": "Healthy"},
        }
        assert client.calls() == []
        with pytest.raises(DriverError, match="node: expected one of node-1, node-2, got 'node-3'"):
            client.set_count(1, node="node-3")


def test_a_driver_without_pods_is_an_error() -> None:
    with pytest.raises(DriverError, match="none of its pods is there"):
        DriverPodsClient({})
