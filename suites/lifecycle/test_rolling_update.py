"""Two instances of a driver side by side: LIF-08."""

from __future__ import annotations

from collections.abc import Sequence

from clusters.driver_host import HostedDriver
from harness.errors import EnvironmentBlocked
from harness.kube import Object
from suites import calls
from suites.devices import given
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal
from suites.lifecycle.rig import FAILED, Bench, slice_uids
from suites.marks import requirement
from suites.workload import Workloads


def _second(drivers: Drivers, bench: Bench, instance: str, devices: int) -> HostedDriver:
    """Start another instance of a driver; it has its own process and sockets, all else is shared.

    Raises:
        EnvironmentBlocked: the drivers are in pods, where a driver has one instance for each node.
    """
    if drivers.cluster.driver_image:
        raise EnvironmentBlocked("needs two instances of a driver on a node, as processes of this machine")
    return drivers.start(
        suffix=instance, nodes=[bench.node], devices=devices, driver=bench.driver.name, instance=instance
    )


@requirement("LIF-08")
def test_an_update_and_back(drivers: Drivers, workloads: Workloads, evidence: Observations) -> None:
    """A new instance beside the old one, gone again, and there for good: claims and slices notice nothing."""
    bench = Bench(drivers, workloads, devices=3, instance="old")
    slices = slice_uids(drivers, bench)
    by_old = bench.run("by-old")
    specs = bench.cdi_specs()
    errors: dict[str, Sequence[str]] = {}

    trial = _second(drivers, bench, "trial", 3)
    expect_equal("CDI specs beside a new instance", bench.cdi_specs(), specs)
    by_trial = bench.run("by-trial")
    errors["by-trial is prepared"] = _errors(trial, calls.PREPARE, by_trial)
    trial.stop()
    workloads.delete("by-trial")
    errors["by-trial is unprepared by the old one"] = _errors(bench.driver, calls.UNPREPARE, by_trial)
    expect_equal("CDI specs once that pod is gone", bench.cdi_specs(), specs)

    new = _second(drivers, bench, "new", 3)
    bench.driver.stop()
    workloads.delete("by-old")
    errors["by-old is unprepared by the new one"] = _errors(new, calls.UNPREPARE, by_old)
    expect_equal("CDI specs once that pod is gone too", bench.cdi_specs(), [])
    bench.run("last")

    evidence("errors of the calls", errors)
    events = [event for name in ("by-old", "by-trial", "last") for event in workloads.events(name)]
    expect_equal("errors of the calls", errors, {key: [""] for key in errors})
    expect_equal("failures to prepare", [event for event in events if FAILED in event], [])
    expect_equal("slices, by their UIDs", slice_uids(drivers, bench), slices)
    devices = given(workloads.report("last"))
    expect("the last pod has a device", devices, devices)


def _errors(driver: HostedDriver, method: str, claim: Object) -> list[str]:
    """The errors of an instance's calls about a claim; empty text for one without."""
    return [calls.error_of(call, claim) for call in calls.about(driver, method, claim)]
