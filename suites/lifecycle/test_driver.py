"""What a driver promises to the kubelet: LIF-09, LIF-10, LIF-11 and LIF-16."""

from __future__ import annotations

import re

from clusters.driver_host import HostedDriver
from harness.kube import RESOURCE_CLAIMS
from suites import calls
from suites.claims import from_claim
from suites.devices import given
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal
from suites.kubelet import Kubelet
from suites.lifecycle.rig import FAILED, Bench, expect_not_started
from suites.marks import requirement
from suites.workload import Container, Workloads, pod_manifest

_QUALIFIED = re.compile(
    r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
    r"=[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?"
)
"""vendor/class=name: https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md"""


def _expect_refused(bench: Bench, workloads: Workloads, evidence: Observations) -> None:
    """Require that a pod is refused whose claim has a device of another one's claim, until that is gone.

    The other one is pod `holder`. The scheduler would never allocate so; the check does it instead.
    """
    claim = bench.allocated_claim("second")
    bench.bind("second")
    error = calls.error_of(calls.wait_ended(bench.driver, calls.PREPARE, claim)[0], claim)
    evidence("the driver's answer for the second claim", error)
    expect("the driver refuses a device that another claim uses", error, "it prepares it", claim)
    evidence("event", workloads.wait_event("second", FAILED))
    expect_not_started(workloads, "second")

    workloads.delete("holder")
    workloads.wait_running("second")
    expect_equal("device once it is free", given(workloads.report("second")), ["gpu-0"])


@requirement("LIF-10")
def test_a_device_in_use_is_refused(drivers: Drivers, workloads: Workloads, evidence: Observations) -> None:
    """Two claims are allocated one device: the driver prepares it for the second once the first is done."""
    bench = Bench(drivers, workloads)
    bench.run("holder")

    _expect_refused(bench, workloads, evidence)


@requirement("LIF-09")
def test_a_restarted_driver_knows_what_is_prepared(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """It crashes and comes back: it still guards the device of a running pod, and can unprepare its claim."""
    bench = Bench(drivers, workloads)
    held = bench.run("holder")
    specs = bench.cdi_specs()

    _restart(drivers, bench.driver)

    expect_equal("CDI specs after the restart", bench.cdi_specs(), specs)
    _expect_refused(bench, workloads, evidence)
    ended = calls.about(bench.driver, calls.UNPREPARE, held)
    expect_equal("how the claim is unprepared", [calls.error_of(call, held) for call in ended], [""])


def _restart(drivers: Drivers, driver: HostedDriver) -> None:
    driver.kill()
    driver.wait_ready(driver.start())
    drivers.wait_registered(driver)


@requirement("LIF-11")
def test_cdi_ids(drivers: Drivers, workloads: Workloads, evidence: Observations) -> None:
    """Two pods have the same device one after the other: with other CDI IDs, and specs that go."""
    bench = Bench(drivers, workloads)
    ids: dict[str, list[str]] = {}
    for name in ("first", "second"):
        claim = bench.create(name)
        call = calls.wait_ended(bench.driver, calls.PREPARE, claim)[0]
        ids[name] = calls.cdi_ids_of(call, claim)
        evidence(f"CDI IDs of the {name} claim", ids[name])
        wrong = [id_ for id_ in ids[name] if not _QUALIFIED.fullmatch(id_)]
        expect("the driver answers with CDI IDs", ids[name], call.response, claim)
        expect_equal("CDI IDs that are not fully qualified", wrong, [], claim)
        workloads.wait_running(name)
        expect("a prepared claim has a CDI spec", bench.cdi_specs(), "none")
        workloads.delete(name)
        workloads.kube.delete(RESOURCE_CLAIMS, name, workloads.namespace)
        expect_equal("CDI specs once the pod is gone", bench.cdi_specs(), [])

    expect_equal("CDI IDs of both claims", set(ids["first"]) & set(ids["second"]), set())


@requirement("LIF-16")
def test_both_versions_say_the_same(drivers: Drivers, workloads: Workloads, evidence: Observations) -> None:
    """A claim that is prepared in one version of the interface has the same devices in the other."""
    bench = Bench(drivers, workloads)
    claim = bench.allocated_claim("a-claim")
    offered = bench.driver.client.status().node(bench.node.name).supported_versions
    found = {}
    for version in ("v1", "v1beta1"):
        with Kubelet(bench.driver, bench.node, version) as kubelet:
            found[version] = kubelet.prepare(claim)
    for version in ("v1beta1", "v1"):
        with Kubelet(bench.driver, bench.node, version) as kubelet:
            kubelet.unprepare(claim)

    evidence("services that it registers", offered)
    evidence("devices", found)
    missing = {f"{version}.DRAPlugin" for version in found} - set(offered)
    expect_equal("versions that it doesn't register", missing, set())
    expect("preparing gives devices", found["v1"], found)
    expect_equal("devices in v1beta1", found["v1beta1"], found["v1"])
    expect_equal("CDI specs in the end", bench.cdi_specs(), [])


@requirement("LIF-16")
def test_a_kubelet_gets_on_with_either_version(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """A pod with devices of two drivers that have one version each: the kubelet calls each in its own."""
    benches = {
        version: Bench(drivers, workloads, suffix=version, apiVersions=[version])
        for version in ("v1", "v1beta1")
    }
    claims = {version: bench.claim(version) for version, bench in benches.items()}
    sources = [from_claim(version, version) for version in claims]

    workloads.run(pod_manifest("pod", [Container(claims=list(claims))], resourceClaims=sources))
    devices = given(workloads.report("pod"))
    workloads.delete("pod")

    used = {
        version: sorted(
            {
                call.service
                for method in (calls.PREPARE, calls.UNPREPARE)
                for call in calls.wait_ended(bench.driver, method, claims[version])
            }
        )
        for version, bench in benches.items()
    }
    evidence("services that the kubelet called", used)
    expect_equal("devices of the container", devices, ["gpu-0", "gpu-0"])
    expect_equal(
        "services that the kubelet called", used, {version: [f"{version}.DRAPlugin"] for version in benches}
    )
