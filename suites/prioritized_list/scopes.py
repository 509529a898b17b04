"""A claim with configuration for all of it, for requests and for alternatives: what of it applies."""

from __future__ import annotations

from harness.kube import Object
from suites import kinds
from suites.claims import create_claim, first_available, gpu_config
from suites.drivers import Drivers
from suites.kinds import Kinds
from suites.workload import Workloads

_SCOPES = {
    "ALL": (),
    "REQUEST": ("gpu",),
    "PASSED_OVER": ("gpu/first",),
    "CHOSEN": ("gpu/second",),
    "EITHER": ("gpu/first", "gpu/second"),
    "OTHER": ("other",),
}
"""Configuration, by the variable that it sets -> the requests and alternatives that it is for."""

OF_GPU = ["ALL", "CHOSEN", "CLASS_SECOND", "EITHER", "REQUEST"]
"""What applies to the request `gpu`, whose first alternative can't be met."""

OF_OTHER = ["ALL", "OTHER"]
"""What applies to the request `other`."""

VARIABLES = {*_SCOPES, "CLASS_FIRST", "CLASS_SECOND"}


def create(workloads: Workloads, drivers: Drivers, gpus: Kinds, name: str) -> Object:
    """Create the claim: `gpu` can be had as `big` alone, its second alternative, and `other` is `small`.

    The classes of the two alternatives have configuration too.
    """
    first, second = (
        Kinds(
            gpus.driver,
            drivers.device_class(
                gpus.driver,
                suffix=order,
                extended_resource="",
                config=[gpu_config(gpus.driver, {f"CLASS_{order.upper()}": "set"})],
            ),
        )
        for order in ("first", "second")
    )
    alternatives = [first.of("absent", name="first"), second.of("big", name="second")]
    requests = [first_available("gpu", alternatives), gpus.of("small", name="other")]
    config = [gpu_config(gpus.driver, {variable: "set"}, *names) for variable, names in _SCOPES.items()]
    return create_claim(workloads, name, requests, config=config)


def start(drivers: Drivers) -> Kinds:
    """A driver for the claim, on the first node."""
    return kinds.start(drivers, drivers.cluster.nodes[:1], big=1, small=1)
