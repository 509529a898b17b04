"""What a driver does with taints of its own: TNT-17, TNT-18 and TNT-19.

The bundled driver taints a device when it is told to, which stands for hardware that fails.
"""

from __future__ import annotations

from collections.abc import Iterator

from fake_driver.client import DriverError

from harness.errors import RequirementFailed
from harness.kube import Object
from harness.waiting import NotYet, wait_until
from suites.claims import pod_with_claim
from suites.devices import given
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal
from suites.marks import requirement
from suites.taints.support import Bench, expect_evicted, taint, wait_evicted
from suites.workload import Workloads

_MAX_TAINTED_DEVICES = 64


def _devices(slices: list[Object]) -> Iterator[Object]:
    for slice_ in slices:
        yield from slice_["spec"].get("devices", [])


def _tainted(slices: list[Object]) -> dict[str, list[Object]]:
    return {device["name"]: device["taints"] for device in _devices(slices) if device.get("taints")}


@requirement("TNT-17")
def test_keys_are_the_vendors_and_values_plain(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Two devices fail together, one gets unhealthy: keys are in the vendor's domain, the two in one slice.

    Whether a value can be understood without parsing is for people: the report shows them.
    """
    bench = Bench(drivers, workloads, 8)
    vendor = bench.driver.name.partition(".")[2]
    link_down = taint("NoSchedule", key=f"{bench.driver.name}/link-down", value="nvlink")
    before = drivers.slices(bench.driver)

    for slot in (2, 3):
        bench.set_taints(slot, link_down)
    bench.driver.client.set_health("gpu-5", "Unhealthy", "on request")
    slices = drivers.slices(bench.driver)

    tainted = _tainted(slices)
    evidence("taints of the driver", tainted)
    keys = {each["key"] for taints in tainted.values() for each in taints}
    foreign = [key for key in keys if not _in_domain(key, vendor)]
    expect_equal(f"keys outside of {vendor}", foreign, [])
    expect("the two devices are tainted", {"gpu-2", "gpu-3"} <= set(tainted), sorted(tainted))
    homes = {slice_["metadata"]["name"] for slice_ in slices if {"gpu-2", "gpu-3"} & set(_tainted([slice_]))}
    expect_equal("slices of the two devices that fail together", len(homes), 1)
    untainted, after = ({each["spec"]["pool"]["generation"] for each in found} for found in (before, slices))
    expect_equal("generation of the pool, which taints in one slice don't change", after, untainted)


def _in_domain(key: str, domain: str) -> bool:
    prefix, slash, _ = key.partition("/")
    return bool(slash) and (prefix == domain or prefix.endswith(f".{domain}"))


@requirement("TNT-18")
def test_a_device_fails_and_recovers(drivers: Drivers, workloads: Workloads, evidence: Observations) -> None:
    """The taint comes and goes with the failure; in between the deleted pod's claim is unprepared."""
    bench = Bench(drivers, workloads, 1)
    bench.template("device")
    workloads.create(pod_with_claim("pod", template="device"))
    pod = workloads.wait_running("pod")
    (uid,) = bench.driver.client.status().node(bench.node).prepared_claims

    bench.set_taints(0, taint("NoExecute", key=f"{bench.driver.name}/failed", value="ecc"))
    failed = _tainted(drivers.slices(bench.driver))
    evicted = wait_evicted(workloads, pod)
    workloads.wait_gone("pod")
    unprepared = bench.driver.client.calls(method="NodeUnprepareResources", claim_uid=uid)
    prepared = bench.driver.client.status().node(bench.node).prepared_claims
    bench.set_taints(0)
    recovered = _tainted(drivers.slices(bench.driver))

    evidence("taints while the device has failed", failed)
    evidence("calls to unprepare the claim", [(call.node, call.error) for call in unprepared])
    evidence("taints once it has recovered", recovered)
    expect_equal("tainted devices while it has failed", list(failed), ["gpu-0"])
    expect_evicted(evicted)
    expect_equal("claims that stay prepared", prepared, [])
    expect("the driver unprepares the claim", any(not call.error for call in unprepared), unprepared)
    expect_equal("tainted devices once it has recovered", list(recovered), [])
    bench.run("next")
    expect_equal("device of the next pod", given(workloads.report("next")), ["gpu-0"])


@requirement("TNT-19")
def test_many_devices_of_which_one_is_tainted(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """100 devices, one tainted: a slice with taints has 64 at most, none is lost, the others are served."""
    bench = Bench(drivers, workloads, 100)

    try:
        bench.set_taints(30, taint("NoSchedule"))
    except DriverError as error:
        raise RequirementFailed(
            "the driver publishes the taint of one of its 100 devices", str(error)
        ) from error
    slices = drivers.slices(bench.driver)

    evidence("slices", [(len(each["spec"]["devices"]), list(_tainted([each]))) for each in slices])
    sizes = [len(each["spec"]["devices"]) for each in slices if _tainted([each])]
    expect("slices with taints keep the limit", max(sizes) <= _MAX_TAINTED_DEVICES, sizes)
    expect_equal(
        "devices, each once",
        sorted(device["name"] for device in _devices(slices)),
        sorted(f"gpu-{slot}" for slot in range(100)),
    )
    pools = [each["spec"]["pool"] for each in slices]
    counts = [pool["resourceSliceCount"] for pool in pools]
    expect_equal("resourceSliceCount of the slices", counts, [len(slices)] * len(slices))
    expect_equal("generations", len({pool["generation"] for pool in pools}), 1)
    evidence("why a pod for the tainted device waits", _refused_at_last(bench, 30))
    bench.run("other", slot=99)
    expect_equal("device of the other pod", given(workloads.report("other")), ["gpu-99"])


def _refused_at_last(bench: Bench, slot: int) -> str:
    """The scheduler's reason to refuse a device, once it has seen its taint."""
    attempts = iter(range(10))

    def refused() -> str:
        name = f"tainted-{next(attempts)}"
        try:
            return bench.refuse(name, slot=slot)
        except RequirementFailed as placed:
            bench.remove(name)
            raise NotYet(placed) from placed

    return wait_until(refused, 60, "the scheduler to see the taint")


def _what_it_says(bench: Bench, wrong: Object) -> str:
    """The driver's answer when it is told to set a taint that the API server refuses."""
    try:
        bench.set_taints(1, wrong)
    except DriverError as error:
        return str(error)
    raise RequirementFailed(
        "the driver says that the API server refuses its slices", "it says nothing", wrong
    )


@requirement("TNT-19")
def test_errors_of_the_api_server_are_shown(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """A taint that the API server refuses: the driver says so, logs it, and keeps its slices as they were."""
    bench = Bench(drivers, workloads, 2)
    bench.set_taints(0, taint("NoSchedule"))
    before = _tainted(drivers.slices(bench.driver))

    said = _what_it_says(bench, taint("NoSchedule", key="no label name/"))
    log = bench.driver.log.read_text()

    evidence("what the driver says", said)
    evidence("lines of its log", [line for line in log.splitlines() if "Invalid value" in line])
    reason = "spec.devices[1].taints[0].key: Invalid value"
    expect("the driver passes the reason on", reason in said, said)
    expect("the driver logs the reason", reason in log, log[-1000:])
    expect_equal("taints in its slices", _tainted(drivers.slices(bench.driver)), before)
