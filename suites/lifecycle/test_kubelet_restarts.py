"""A kubelet that restarts: LIF-05 and LIF-06."""

from __future__ import annotations

import pytest

from harness.kube import PODS, Object
from harness.waiting import NotYet, wait_until
from suites import calls
from suites.control import Control
from suites.devices import given
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal
from suites.lifecycle.rig import Bench, container_statuses, expect_not_started
from suites.marks import exclusive, requirement
from suites.workload import Workloads

_WORDS = "not yet, says the check"
_RECONCILED_SECONDS = 150.0
"""A kubelet looks for claims of pods that are gone every 60 s (`defaultReconcilePeriod`)."""


def _restart(control: Control, bench: Bench) -> None:
    """Restart the kubelet of the bench's node, and wait until it has registered the driver anew."""
    before = _registrations(bench)
    control.restart(f"kubelet/{bench.node.name}")
    wait_until(
        lambda: _registrations(bench) > before, 60, f"driver {bench.driver.name} to be registered anew"
    )


def _registrations(bench: Bench) -> int:
    return bench.driver.client.status().node(bench.node.name).registrations


def _containers(pod: Object) -> list[tuple[str, int]]:
    return [(status["containerID"], status["restartCount"]) for status in container_statuses(pod)]


@requirement("LIF-05")
@exclusive
def test_running_pods_are_left_alone(
    drivers: Drivers, workloads: Workloads, control: Control, evidence: Observations
) -> None:
    """The kubelet restarts: the driver registers again, pods run on as they were, new ones start."""
    bench = Bench(drivers, workloads, devices=2)
    claim = bench.run("pod")
    before = _containers(workloads.get("pod"))

    _restart(control, bench)
    bench.run("next")

    after = _containers(workloads.get("pod"))
    evidence("containers and their restarts, before and after", [before, after])
    expect_equal("containers and their restarts", after, before)
    expect_equal("calls to unprepare its claim", calls.about(bench.driver, calls.UNPREPARE, claim), [])
    workloads.delete("pod")
    ended = calls.wait_ended(bench.driver, calls.UNPREPARE, claim)
    expect_equal("how its claim is unprepared in the end", calls.error_of(ended[-1], claim), "")


@requirement("LIF-05")
@exclusive
@pytest.mark.parametrize("what", ["prepare", "unprepare"])
def test_what_was_left_to_do_is_done(
    what: str, drivers: Drivers, workloads: Workloads, control: Control, evidence: Observations
) -> None:
    """Preparing or unpreparing fails when the kubelet restarts: it goes on trying, and succeeds."""
    bench = Bench(drivers, workloads)
    method = calls.PREPARE if what == "prepare" else calls.UNPREPARE
    claim = bench.run("pod") if what == "unprepare" else bench.claim("pod")

    with calls.fault(bench.driver, method, "claim-error", message=_WORDS):
        if what == "prepare":
            bench.schedule("pod")
        else:
            workloads.kube.delete(PODS, "pod", workloads.namespace)
        failed = calls.wait_ended(bench.driver, method, claim)
        _restart(control, bench)
        again = calls.wait_ended(bench.driver, method, claim, len(failed) + 1)
        if what == "prepare":
            expect_not_started(workloads, "pod")
    if what == "prepare":
        workloads.wait_running("pod")
        expect_equal("device of the container", given(workloads.report("pod")), ["gpu-0"])
    else:
        workloads.wait_gone("pod")

    last = calls.about(bench.driver, method, claim)[-1]
    evidence("calls before and after the restart that fail", [len(failed), len(again) - len(failed)])
    expect_equal("the driver's last word", calls.error_of(last, claim), "")


@requirement("LIF-05")
@exclusive
def test_nothing_is_prepared_for_a_pod_that_is_gone(
    drivers: Drivers, workloads: Workloads, control: Control, evidence: Observations
) -> None:
    """A pod that could not start is gone when its kubelet restarts: its claim is unprepared, no more."""
    bench = Bench(drivers, workloads)
    with (
        calls.fault(bench.driver, calls.PREPARE, "claim-error", message=_WORDS),
        calls.fault(bench.driver, calls.UNPREPARE, "claim-error", message=_WORDS),
    ):
        claim = bench.create("pod")
        calls.wait_ended(bench.driver, calls.PREPARE, claim)
        workloads.kube.delete(PODS, "pod", workloads.namespace, grace_seconds=0)
        _restart(control, bench)
    prepared = len(calls.about(bench.driver, calls.PREPARE, claim))

    def unprepared() -> bool:
        after = calls.about(bench.driver, calls.PREPARE, claim)[prepared:]
        expect_equal("calls to prepare once the kubelet is back", after, [])
        errors = [calls.error_of(each, claim) for each in calls.about(bench.driver, calls.UNPREPARE, claim)]
        if not errors or errors[-1]:
            raise NotYet(errors)
        return True

    wait_until(unprepared, _RECONCILED_SECONDS, "the claim of a pod that is gone to be unprepared")
    evidence("calls to unprepare it", len(calls.about(bench.driver, calls.UNPREPARE, claim)))


@requirement("LIF-06")
@exclusive
def test_a_kubelet_that_starts_deletes_slices(
    drivers: Drivers, workloads: Workloads, control: Control, evidence: Observations
) -> None:
    """A driver is away when the kubelet starts: its slices go at once, and are back when it is."""
    bench = Bench(drivers, workloads)
    before = [each["metadata"]["uid"] for each in drivers.slices(bench.driver)]
    bench.driver.kill()

    control.restart(f"kubelet/{bench.node.name}")
    wait_until(lambda: not drivers.slices(bench.driver), 20, "the slices of a driver that is away to go")
    bench.driver.wait_ready(bench.driver.start())
    drivers.wait_registered(bench.driver)

    after = [each["metadata"]["uid"] for each in drivers.slices(bench.driver)]
    evidence("slices before and after", [before, after])
    expect("the driver publishes slices again", after and not set(after) & set(before), after)
    bench.run("pod")
