"""The device plugin against a stub device manager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from fake_driver.api import device_plugin_pb2 as pb
from fake_driver.client import DevicePluginClient, DriverError
from fake_driver.control.server import ControlServer
from fake_driver.deviceplugin.config import load_plugin_config
from fake_driver.deviceplugin.plugin import DevicePlugins, operations
from fake_driver.faults import Fault, FaultKind

from harness.waiting import wait_until
from tests.fake_driver.kubelet import TIMEOUT, StubDeviceManager

Start = Callable[..., DevicePluginClient]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[StubDeviceManager]:
    stub = StubDeviceManager(tmp_path / "kubelet" / "device-plugins")
    yield stub
    stub.stop()


@pytest.fixture
def start_plugin(tmp_path: Path) -> Iterator[Start]:
    started: list[tuple[DevicePlugins, ControlServer]] = []

    def start(**overrides: Any) -> DevicePluginClient:
        config = tmp_path / "plugin.yaml"
        settings = {
            "resource": "example.com/x",
            "nodes": [{"name": "n", "kubeletDir": str(tmp_path / "kubelet"), "count": 2}],
            "control": {"socket": str(tmp_path / "plugin.sock")},
        }
        config.write_text(yaml.safe_dump(settings | overrides))
        loaded = load_plugin_config(config)
        plugins = DevicePlugins(loaded)
        control = ControlServer(loaded.control, operations(plugins), (plugins.Refused,))
        control.start()
        plugins.start()
        started.append((plugins, control))
        return DevicePluginClient(tmp_path / "plugin.sock")

    yield start
    for plugins, control in started:
        plugins.stop()
        control.stop()


def wait_registered(client: DevicePluginClient, times: int = 1) -> None:
    wait_until(
        lambda: client.status().nodes[0].registrations == times, 60, f"{times} registrations", interval=0.02
    )


def test_registers_and_registers_again_when_the_kubelet_restarts(
    manager: StubDeviceManager, start_plugin: Start
) -> None:
    client = start_plugin()
    wait_registered(client)
    (request,) = manager.registered
    assert (request.version, request.resource_name) == ("v1beta1", "example.com/x")
    assert request.options.get_preferred_allocation_available
    manager.stop()
    for path in manager.directory.iterdir():
        path.unlink()  # a starting kubelet clears the directory
    again = StubDeviceManager(manager.directory)
    try:
        wait_registered(client, 2)
        with again.plugin() as stub:
            assert stub.GetDevicePluginOptions(pb.Empty(), timeout=TIMEOUT) == request.options
    finally:
        again.stop()


def test_waits_for_a_kubelet(start_plugin: Start, tmp_path: Path) -> None:
    client = start_plugin()
    wait_until(lambda: "no kubelet at" in client.status().nodes[0].error, 60, "the reason", interval=0.02)
    manager = StubDeviceManager(tmp_path / "kubelet" / "device-plugins")
    try:
        wait_registered(client)
        assert client.status().nodes[0].error == ""
    finally:
        manager.stop()


def test_a_folder_that_it_cannot_use_for_a_while_is_said_and_tried_again(
    manager: StubDeviceManager, start_plugin: Start
) -> None:
    client = start_plugin()
    wait_registered(client)
    folder = manager.directory
    folder.rename(folder.with_name("away"))
    folder.symlink_to(folder.name)  # a loop
    wait_until(lambda: "ymbolic links" in client.status().nodes[0].error, 60, "the reason", interval=0.02)
    folder.unlink()
    folder.with_name("away").rename(folder)
    wait_registered(client, 2)


def listed(response: Any) -> dict[str, str]:
    return {device.ID: device.health for device in response.devices}


def test_list_follows_count_and_health(manager: StubDeviceManager, start_plugin: Start) -> None:
    client = start_plugin()
    wait_registered(client)
    with manager.plugin() as stub:
        stream = stub.ListAndWatch(pb.Empty(), timeout=TIMEOUT)
        assert listed(next(stream)) == {"dev-0": "Healthy", "dev-1": "Healthy"}
        client.set_health("dev-1", "Unhealthy")
        assert listed(next(stream)) == {"dev-0": "Healthy", "dev-1": "Unhealthy"}
        client.set_count(3)
        assert listed(next(stream)) == {"dev-0": "Healthy", "dev-1": "Unhealthy", "dev-2": "Healthy"}
        client.set_count(0)
        assert listed(next(stream)) == {}
        stream.cancel()
    with pytest.raises(DriverError, match="device: node n has no device 'dev-0'"):
        client.set_health("dev-0", "Healthy")


def test_allocation(manager: StubDeviceManager, start_plugin: Start) -> None:
    client = start_plugin(preStartRequired=True)
    wait_registered(client)
    with manager.plugin() as stub:
        assert stub.GetDevicePluginOptions(pb.Empty(), timeout=TIMEOUT).pre_start_required
        wanted = pb.ContainerAllocateRequest(devices_ids=["dev-1", "dev-0"])
        answer = stub.Allocate(pb.AllocateRequest(container_requests=[wanted]), timeout=TIMEOUT)
        (container,) = answer.container_responses
        assert dict(container.envs) == {"DRA_HARNESS_PLUGIN_DEVICES_EXAMPLE_COM_X": "dev-1,dev-0"}
        assert [(node.container_path, node.host_path, node.permissions) for node in container.devices] == [
            ("/dev/dra-harness/example.com/x/dev-1", "/dev/null", "rw"),
            ("/dev/dra-harness/example.com/x/dev-0", "/dev/null", "rw"),
        ]
        preferred = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=["dev-2", "dev-0", "dev-1"],
            must_include_deviceIDs=["dev-1"],
            allocation_size=2,
        )
        request = pb.PreferredAllocationRequest(container_requests=[preferred])
        answer = stub.GetPreferredAllocation(request, timeout=TIMEOUT)
        assert list(answer.container_responses[0].deviceIDs) == ["dev-1", "dev-0"]
        stub.PreStartContainer(pb.PreStartContainerRequest(devices_ids=["dev-1"]), timeout=TIMEOUT)
    assert [call.method for call in client.calls()] == [
        "GetDevicePluginOptions",
        "Allocate",
        "GetPreferredAllocation",
        "PreStartContainer",
    ]


def test_faults_hit_the_device_plugin_too(manager: StubDeviceManager, start_plugin: Start) -> None:
    client = start_plugin()
    wait_registered(client)
    client.set_fault(Fault(method="Allocate", kind=FaultKind.ERROR, message="none left"))
    with manager.plugin() as stub, pytest.raises(grpc.RpcError) as caught:
        stub.Allocate(pb.AllocateRequest(), timeout=TIMEOUT)
    assert caught.value.details() == "none left"
    assert client.clear_faults() == 1
