"""The health stream: full at first, fresh, on change, over when the kubelet says so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from fake_driver.client import DriverError
from fake_driver.config import Quirk
from fake_driver.faults import Fault, FaultKind

from harness.waiting import wait_until
from tests.fake_driver.conftest import NODE, Rig

UNKNOWN, HEALTHY, UNHEALTHY = 0, 1, 2


@pytest.fixture
def default_inventory() -> Any:
    """Two devices with the names that GPUs have."""
    return {"devices": [{"count": 2, "name": "gpu-{index}"}]}


def states(response: Any) -> dict[str, int]:
    return {device.device.device_name: device.health for device in response.devices}


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
def test_full_list_then_changes(rig: Rig, version: str) -> None:
    with rig.kubelet().watch_health(version) as stream:
        first = next(stream)
        assert states(first) == {"gpu-0": HEALTHY, "gpu-1": HEALTHY}
        assert {device.device.pool_name for device in first.devices} == {NODE}
        assert {device.health_check_timeout_seconds for device in first.devices} == {30}
        assert all(abs(device.last_updated_time - time.time()) < 60 for device in first.devices)
        rig.client.set_health("gpu-1", "Unhealthy", "too hot")
        changed = next(stream)
        assert states(changed) == {"gpu-0": HEALTHY, "gpu-1": UNHEALTHY}
        assert changed.devices[1].message == "too hot"
        rig.client.set_health("gpu-1", "Unknown")
        assert states(next(stream))["gpu-1"] == UNKNOWN
    assert rig.client.status().node(NODE).health == {"gpu-0": "Healthy", "gpu-1": "Unknown"}


def test_reports_are_refreshed(start: Callable[..., Rig]) -> None:
    rig = start(health={"refreshSeconds": 0.05})
    with rig.kubelet().watch_health() as stream:
        assert [states(next(stream))["gpu-0"] for _ in range(3)] == [HEALTHY] * 3


def test_the_stream_ends_on_cancel(rig: Rig) -> None:
    with rig.kubelet().watch_health() as stream:
        next(stream)
        assert rig.client.status().node(NODE).health_streams == 1
    wait_until(lambda: rig.client.status().node(NODE).health_streams == 0, 60, "the end", interval=0.02)


def test_a_new_inventory_is_reported(rig: Rig) -> None:
    with rig.kubelet().watch_health() as stream:
        next(stream)
        rig.client.set_inventory({"devices": [{"name": "other"}]})
        assert states(next(stream)) == {"other": HEALTHY}


def test_health_can_be_left_out(start: Callable[..., Rig]) -> None:
    rig = start(health={"enabled": False})
    with rig.kubelet().watch_health() as stream, pytest.raises(grpc.RpcError) as caught:
        next(stream)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_unknown_device_is_refused(rig: Rig) -> None:
    with pytest.raises(DriverError, match="node node-1 has no device 'gpu-9'"):
        rig.client.set_health("gpu-9", "Healthy")


def test_a_fault_ends_the_open_stream(rig: Rig) -> None:
    with rig.kubelet().watch_health() as stream:
        next(stream)
        rig.client.set_fault(Fault(method="NodeWatchResources", kind=FaultKind.ERROR, code="UNAVAILABLE"))
        with pytest.raises(grpc.RpcError) as caught:
            next(stream)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_health_alone_taints_nothing_unless_the_quirk_says_so(start: Callable[..., Rig]) -> None:
    rig = start()
    rig.client.set_health("gpu-0", "Unhealthy")
    assert "taints" not in rig.api.slices()[0]["spec"]["devices"][0]
    rig.client.set_quirks([Quirk.HEALTH_TAINTS])
    rig.client.set_health("gpu-0", "Unhealthy")
    taint = {"key": "unhealthy", "effect": "NoExecute"}
    assert rig.api.slices()[0]["spec"]["devices"][0]["taints"] == [taint]


def test_partial_list_quirk(start: Callable[..., Rig]) -> None:
    rig = start(quirks=["health-partial-list"])
    with rig.kubelet().watch_health() as stream:
        assert states(next(stream)) == {"gpu-0": HEALTHY}
