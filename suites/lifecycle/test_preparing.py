"""What has to be done before a pod starts: LIF-01, LIF-03, LIF-12 and LIF-18."""

from __future__ import annotations

import datetime

import pytest

from suites import calls, pod_resources
from suites.claims import allocate, from_claim, get_claim
from suites.devices import allocated, given
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal
from suites.lifecycle.rig import FAILED, Bench, expect_not_started, starts
from suites.marks import requirement
from suites.workload import Container, Workloads, pod_manifest

_WORDS = "out of order, says the check"
_TOLD_SECONDS = 60.0
"""How long the kubelet may take to tell of a failure: at most once around its loop of a few seconds."""
_TWICE_SECONDS = 150.0
"""More than twenty attempts, in every second of which the driver that doesn't fail is called first."""
_PREPARE_SECONDS = 3.0
"""Long enough to tell a container that starts before the end of it, by whole seconds."""


@requirement("LIF-01")
def test_no_container_starts_before_the_end(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Preparing takes its time: all containers start after its end, also those that don't use the claim."""
    bench = Bench(drivers, workloads)
    claim = bench.claim("a-claim")
    init = [Container("init", args=["--exit", "0"]), Container("sidecar", sidecar=True)]
    regular = [Container("user", claims=["gpu"]), Container("bystander")]
    pod = pod_manifest("pod", regular, init=init, resourceClaims=[from_claim("gpu", "a-claim")])

    with calls.fault(bench.driver, calls.PREPARE, "delay", seconds=_PREPARE_SECONDS):
        running = workloads.run(pod)

    call = calls.wait_ended(bench.driver, calls.PREPARE, claim)[0]
    begin = datetime.datetime.fromtimestamp(call.time, datetime.UTC)
    end = begin + datetime.timedelta(seconds=call.seconds or 0)
    started = starts(running)
    evidence("preparing", f"{begin} to {end}")
    evidence("containers started at", {name: str(at) for name, at in started.items()})
    early = [name for name, at in started.items() if at < end.replace(microsecond=0)]
    expect_equal("containers", sorted(started), ["bystander", "init", "sidecar", "user"], running)
    expect_equal("containers that started before the claim was prepared", early, [], running)
    expect_equal("device of the container", given(workloads.report("pod", "user")), ["gpu-0"])


@requirement("LIF-01")
def test_preparing_again_gives_the_same(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """The first answer is lost, so the kubelet asks again: it gets the same devices and CDI IDs."""
    bench = Bench(drivers, workloads, devices=4)

    with calls.fault(bench.driver, calls.PREPARE, "error", when="after", message=_WORDS, times=1):
        claim = bench.run("pod")

    made = calls.wait_ended(bench.driver, calls.PREPARE, claim, 2)
    answers = [calls.devices_of(call, claim) for call in made]
    evidence("answers to the same question", answers)
    expect("the first call has prepared the claim", answers[0], made[0])
    expect_equal("what preparing again returns", answers[1:], [answers[0]] * len(answers[1:]))
    devices = [device["device_name"] for device in answers[0]]
    expect_equal("devices in the answer", devices, allocated(get_claim(workloads, "pod")))
    expect_equal("device of the container", given(workloads.report("pod")), devices)


@requirement("LIF-03")
@pytest.mark.parametrize("scope", ["claim", "call"])
def test_a_failure_is_told_and_tried_again(
    scope: str, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """The driver fails: the pod waits with an event that has its words, and runs once preparing succeeds."""
    bench = Bench(drivers, workloads)
    kind = "claim-error" if scope == "claim" else "error"

    with calls.fault(bench.driver, calls.PREPARE, kind, message=_WORDS):
        claim = bench.create("pod")
        event = workloads.wait_event("pod", _WORDS, deadline=_TOLD_SECONDS)
        failed = calls.wait_ended(bench.driver, calls.PREPARE, claim, 2)
        expect_not_started(workloads, "pod")
    workloads.wait_running("pod")

    evidence("event", event)
    evidence("answers while it failed", [calls.error_of(call, claim) for call in failed])
    expect("the event says that preparing failed", event.startswith(f"{FAILED}: "), event)
    expect_equal("device of the container", given(workloads.report("pod")), ["gpu-0"])


@requirement("LIF-03")
def test_a_call_without_an_answer_leaves_the_pod_waiting(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """The driver hangs: the kubelet gives up on the call, the pod stays Pending, and runs in the end."""
    bench = Bench(drivers, workloads)

    with calls.fault(bench.driver, calls.PREPARE, "hang"):
        claim = bench.create("pod")
        event = workloads.wait_event("pod", "DeadlineExceeded", deadline=90)
        expect_not_started(workloads, "pod")
    workloads.wait_running("pod")

    evidence("event", event)
    call = calls.wait_ended(bench.driver, calls.PREPARE, claim)[0]
    evidence("seconds until the kubelet gave up", round(call.seconds or 0, 1))
    expect("the event says that preparing failed", event.startswith(f"{FAILED}: "), event)
    expect_equal("device of the container", given(workloads.report("pod")), ["gpu-0"])


@requirement("LIF-12")
def test_only_with_a_claim_that_is_reserved_for_it(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """A pod that no scheduler saw: it waits while its claim is missing, then while that is not its own."""
    bench = Bench(drivers, workloads)
    bench.bind("pod")

    missing = workloads.wait_event("pod", '"pod" not found', deadline=_TOLD_SECONDS)
    expect_not_started(workloads, "pod")
    claim = bench.claim("pod")
    foreign = workloads.wait_event("pod", "is not allowed to use ResourceClaim pod ", deadline=_TOLD_SECONDS)
    expect_not_started(workloads, "pod")
    before = calls.about(bench.driver, calls.PREPARE, claim)
    allocate(workloads, claim, bench.driver, bench.node)  # the claim controller reserves it then
    workloads.wait_running("pod")

    evidence("event without the claim", missing)
    evidence("event while the claim isn't reserved", foreign)
    for event in (missing, foreign):
        expect("the event says that preparing failed", event.startswith(f"{FAILED}: "), event)
    expect_equal("calls to the driver before the claim was the pod's", before, [])
    expect_equal("device of the container", given(workloads.report("pod")), ["gpu-0"])


@requirement("LIF-18")
def test_no_cdi_id_twice_after_half_a_failure(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Two drivers, one of which fails: the other is asked again, and its device is still given once."""
    bench = Bench(drivers, workloads)
    broken = Bench(drivers, workloads, suffix="broken")
    claims = {"whole": bench.claim("whole"), "late": broken.claim("late")}
    sources = [from_claim(name, name) for name in claims]
    pod = pod_manifest("pod", [Container(claims=list(claims))], resourceClaims=sources)

    with calls.fault(broken.driver, calls.PREPARE, "claim-error", message=_WORDS):
        workloads.create(pod)
        # The kubelet calls the drivers in any order, and none after one that fails.
        made = calls.wait_ended(bench.driver, calls.PREPARE, claims["whole"], 2, deadline=_TWICE_SECONDS)
    running = workloads.wait_running("pod")

    late = calls.wait_ended(broken.driver, calls.PREPARE, claims["late"])
    wanted = {
        "whole": calls.cdi_ids_of(made[-1], claims["whole"]),
        "late": calls.cdi_ids_of(late[-1], claims["late"]),
    }
    found = pod_resources.cdi_ids(bench.node, running, "main")
    evidence("calls to the driver that succeeds", len(made))
    evidence("CDI IDs of the container", found)
    twice = [id_ for ids in found.values() for id_ in set(ids) if ids.count(id_) > 1]
    expect_equal("CDI IDs that the container has twice", twice, [], running)
    expect_equal("CDI IDs of the container", found, wanted, running)


@requirement("LIF-18")
def test_a_claim_in_use_outlives_a_failed_start(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """A pod that shares a claim can't start, for want of another one: the shared one stays prepared."""
    bench = Bench(drivers, workloads)
    shared = bench.run("user")
    sources = [from_claim("shared", "user"), from_claim("own", "missing")]
    containers = [Container(claims=["shared", "own"])]

    workloads.create(pod_manifest("second", containers, resourceClaims=sources, nodeName=bench.node.name))
    event = workloads.wait_event("second", '"missing" not found', deadline=_TOLD_SECONDS)
    workloads.delete("second")

    evidence("event on the pod that fails", event)
    early = calls.about(bench.driver, calls.UNPREPARE, shared)
    expect_equal("calls to unprepare the claim that a running pod uses", early, [])
    workloads.delete("user")
    ended = calls.wait_ended(bench.driver, calls.UNPREPARE, shared)
    expect_equal("how it is unprepared in the end", calls.error_of(ended[-1], shared), "")
