"""What the checks of this area share: drivers of numbered devices on one node, and what became of pods."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

from clusters.driver_host import HostedDriver
from clusters.interface import Node
from harness.kube import Object
from suites import claims
from suites.drivers import DeviceClass, Drivers
from suites.expect import expect_equal
from suites.workload import Workloads

FAILED = "FailedPrepareDynamicResources"
"""The reason of the event on a pod whose claims can't be prepared: pkg/kubelet/events/event.go."""


class Bench:
    """A driver on the first node, `gpu-0` and on, with a class of its devices, and pods with a claim each."""

    def __init__(
        self,
        drivers: Drivers,
        workloads: Workloads,
        devices: int = 1,
        *,
        suffix: str = "gpu",
        **settings: Any,
    ) -> None:
        """Start the driver; `settings` are further keys of its config file."""
        self.node: Node = drivers.cluster.nodes[0]
        self.driver: HostedDriver = drivers.start(
            devices=devices, nodes=[self.node], suffix=suffix, **settings
        )
        self.device_class: DeviceClass = drivers.device_class(self.driver, suffix=suffix)
        self._workloads = workloads

    def claim(self, name: str) -> Object:
        """Create a claim for one device."""
        return claims.create_claim(self._workloads, name, [claims.request("device", self.device_class)])

    def allocated_claim(self, name: str, device: str = "gpu-0") -> Object:
        """Create a claim and allocate a device to it, whether or not another claim has that."""
        claim = self.claim(name)
        claims.allocate(self._workloads, claim, self.driver, self.node, device)
        return claim

    def create(self, name: str) -> Object:
        """Create a claim, and a pod of that name that uses it; returns the claim."""
        claim = self.claim(name)
        self.schedule(name)
        return claim

    def schedule(self, name: str) -> None:
        """Create a pod that uses the claim of its name, and leave it to the scheduler."""
        self._workloads.create(claims.pod_with_claim(name))

    def bind(self, name: str) -> None:
        """Create a pod with the claim of its name that is on the node from the start, past the scheduler."""
        self._workloads.create(claims.pod_with_claim(name, nodeName=self.node.name))

    def run(self, name: str) -> Object:
        """Like `create`, and wait until the pod runs."""
        claim = self.create(name)
        self._workloads.wait_running(name)
        return claim

    def cdi_specs(self) -> list[str]:
        """The driver's CDI specs on the node."""
        files = self.driver.files(self.node)
        return [name for name in files.below(files.cdi) if name.startswith(self.driver.name)]


def slice_uids(drivers: Drivers, bench: Bench) -> list[str]:
    """The UIDs of a bench's driver's slices, sorted."""
    return sorted(each["metadata"]["uid"] for each in drivers.slices(bench.driver))


def container_statuses(pod: Object) -> Iterator[Object]:
    """The status of each of a pod's containers, init containers first."""
    yield from pod["status"].get("initContainerStatuses", ())
    yield from pod["status"].get("containerStatuses", ())


def starts(pod: Object) -> dict[str, datetime.datetime]:
    """When each container that has been started was; in whole seconds, as the API has it."""
    return {
        status["name"]: datetime.datetime.fromisoformat(state["startedAt"])
        for status in container_statuses(pod)
        for state in status["state"].values()
        if state.get("startedAt")
    }


def expect_not_started(workloads: Workloads, name: str) -> None:
    """Require that a pod waits and that none of its containers has been started."""
    pod = workloads.get(name)
    started = [each["name"] for each in container_statuses(pod) if "waiting" not in each["state"]]
    expect_equal(f"phase of pod {name}", pod["status"].get("phase"), "Pending", pod)
    expect_equal(f"containers of pod {name} that were started", started, [], pod)
