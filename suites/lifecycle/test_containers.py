"""Which container gets what of a claim: LIF-14."""

from __future__ import annotations

from suites import calls
from suites.claims import create_claim, from_claim, get_claim, gpu_config, request
from suites.devices import allocated_to, given
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect_equal
from suites.lifecycle.rig import Bench
from suites.marks import requirement
from suites.workload import Container, Workloads, pod_manifest

_CONFIGS = {"CONFIG_OF_ONE": ["one"], "CONFIG_OF_TWO": ["two"], "CONFIG_OF_ALL": []}
"""A variable that a configuration sets -> the requests that it is for; none means all."""


@requirement("LIF-14")
def test_what_each_container_is_given(drivers: Drivers, workloads: Workloads, evidence: Observations) -> None:
    """Two requests, with a configuration for each and one for both: each container has what it refers to."""
    bench = Bench(drivers, workloads, devices=3)
    requests = [request(name, bench.device_class, count=count) for name, count in (("one", 1), ("two", 2))]
    config = [gpu_config(bench.driver, {variable: "set"}, *of) for variable, of in _CONFIGS.items()]
    create_claim(workloads, "a-claim", requests, config=config)
    uses = {"init": ["one"], "first": ["one"], "second": ["two"], "both": ["one", "two"], "none": []}
    references = {name: [f"gpu/{each}" for each in used] for name, used in uses.items()}
    references["both"] = ["gpu"]
    init = [Container("init", claims=references.pop("init"), args=["--exit", "0"])]
    regular = [Container(name, claims=own) for name, own in references.items()]

    workloads.run(pod_manifest("pod", regular, init=init, resourceClaims=[from_claim("gpu", "a-claim")]))

    claim = get_claim(workloads, "a-claim")
    reports = {name: workloads.report("pod", name) for name in uses}
    devices = {name: given(report) for name, report in reports.items()}
    configs = {name: sorted(set(_CONFIGS) & report["env"].keys()) for name, report in reports.items()}
    evidence("devices of each container", devices)
    evidence("configurations of each container", configs)
    expect_equal(
        "devices of each container", devices, {name: allocated_to(claim, used) for name, used in uses.items()}
    )
    wanted = {
        name: sorted(key for key, of in _CONFIGS.items() if used and set(of or used) & set(used))
        for name, used in uses.items()
    }
    expect_equal("configurations of each container", configs, wanted, claim)


@requirement("LIF-14")
def test_a_claim_that_no_container_uses(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """It is prepared all the same, and gives no container anything."""
    bench = Bench(drivers, workloads)
    claim = bench.claim("a-claim")

    workloads.run(pod_manifest("pod", [Container()], resourceClaims=[from_claim("gpu", "a-claim")]))

    made = calls.wait_ended(bench.driver, calls.PREPARE, claim, deadline=10)
    answers = [[device["device_name"] for device in calls.devices_of(call, claim)] for call in made]
    evidence("devices in the driver's answers", answers)
    expect_equal("devices that were prepared", answers[-1], ["gpu-0"], claim)
    expect_equal("devices of the container", given(workloads.report("pod")), [])
