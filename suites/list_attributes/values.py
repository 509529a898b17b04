"""Groups of devices told apart by one attribute alone, for checks of what lists mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clusters.driver_host import HostedDriver
from clusters.interface import Cluster
from harness.kube import Object
from harness.waiting import NotYet, wait_until
from suites.claims import create_pod, request
from suites.drivers import DeviceClass, Drivers
from suites.workload import Workloads

_PLACE_SECONDS = 60.0

Value = Mapping[str, Any]
"""An attribute's value as the API writes it, such as `{"ints": [1, 2]}`."""

Groups = Mapping[str, Sequence[Value]]
"""Group -> the value of each of its devices, whose attribute is called like the group, as no other is."""


def profile(groups: Groups) -> dict[str, Any]:
    """An inventory of groups, whose devices come in this order."""
    return {
        "devices": [
            {"name": name, "attributes": {group: dict(value)}}
            for group, values in groups.items()
            for name, value in zip(device_names(group, len(values)), values, strict=True)
        ]
    }


def device_names(group: str, count: int) -> list[str]:
    """The names of a group's devices."""
    return [f"{pod_name(group)}-{index}" for index in range(count)]


def pod_name(group: str) -> str:
    """The name of the pod that asks for a group's devices."""
    return group.replace("_", "-")


def start(drivers: Drivers, cluster: Cluster, groups: Groups) -> tuple[HostedDriver, DeviceClass]:
    """A driver with some groups on the first node, and the class of its devices."""
    driver = drivers.start(nodes=cluster.nodes[:1], inventory=profile(groups))
    return driver, drivers.device_class(driver, extended_resource="")


def attribute(driver: HostedDriver, group: str) -> str:
    """The qualified name of a group's attribute."""
    return f"{driver.name}/{group}"


def ask(
    workloads: Workloads,
    group: str,
    count: int,
    kind: str,
    source: tuple[HostedDriver, DeviceClass],
) -> Object:
    """Create a pod for `count` devices of a group, under a constraint on the group's attribute.

    Args:
        workloads: where the pod is made.
        group: which devices it asks for.
        count: how many.
        kind: matchAttribute or distinctAttribute.
        source: the driver and its class.
    """
    driver, device_class = source
    wanted = request("some", device_class, count=count, cel=has(driver, group))
    return create_pod(workloads, pod_name(group), [wanted], {kind: attribute(driver, group)})


def wait_placed(workloads: Workloads, group: str) -> None:
    """Wait until the scheduler has placed the pod of a group, which takes it no kubelet, so not long."""
    name = pod_name(group)

    def placed() -> bool:
        pod = workloads.get(name)
        if not pod["spec"].get("nodeName"):
            raise NotYet([each.get("message") for each in pod["status"].get("conditions", ())])
        return True

    wait_until(placed, _PLACE_SECONDS, f"pod {name} to be placed")


def has(driver: HostedDriver, group: str) -> str:
    """The CEL expression for the devices of a group."""
    return f'"{group}" in device.attributes["{driver.name}"]'


def of_device(driver: HostedDriver, group: str) -> str:
    """The CEL expression for the value of a group's attribute."""
    return f'device.attributes["{driver.name}"].{group}'
