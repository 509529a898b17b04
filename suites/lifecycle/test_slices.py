"""What a driver publishes, and for how long: LIF-06, LIF-07 and LIF-15."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest

from harness.kube import RESOURCE_SLICES, Object
from harness.waiting import NotYet, wait_until
from suites import calls
from suites.claims import create_claim, pod_with_claim, request
from suites.devices import given
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal
from suites.lifecycle.rig import Bench, slice_uids
from suites.marks import requirement
from suites.workload import Workloads

_TWO_SLICES = 200
"""So many devices take two slices, of 128 at most."""
_WHOLE_SECONDS = 30.0
_WIPED_SECONDS = 75.0
"""The kubelet waits 30 s (`defaultWipingDelay` in pkg/kubelet/cm/dra/manager.go)."""


def _inventory(devices: int) -> Object:
    """Devices `gpu-0` and on, each with its number as the attribute `slot`."""
    group = {"name": "gpu-{index}", "count": devices, "attributes": {"slot": {"string": "{index}"}}}
    return {"devices": [group]}


def _wait_whole(drivers: Drivers, bench: Bench, devices: int) -> list[Object]:
    """Wait until all slices of a driver are of one generation, as many as they say, with so many devices."""

    def whole() -> list[Object]:
        slices = drivers.slices(bench.driver)
        pools = [each["spec"]["pool"] for each in slices]
        names = [device["name"] for each in slices for device in each["spec"].get("devices", ())]
        generations = {pool["generation"] for pool in pools}
        counts = {pool["resourceSliceCount"] for pool in pools}
        if len(generations) != 1 or counts != {len(slices)}:
            raise NotYet(pools)
        if len(names) != devices or len(set(names)) != devices:
            raise NotYet(f"{len(names)} devices, {len(set(names))} of them different")
        return slices

    return wait_until(whole, _WHOLE_SECONDS, f"a consistent pool of {devices} devices")


def _generation(slices: list[Object]) -> int:
    return int(slices[0]["spec"]["pool"]["generation"])


def _delete_all(drivers: Drivers, bench: Bench) -> None:
    for each in drivers.slices(bench.driver):
        metadata = each["metadata"]
        drivers.kube.delete(RESOURCE_SLICES, metadata["name"], uid=metadata["uid"])


@requirement("LIF-15")
def test_a_pool_is_consistent_after_every_change(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """More devices, fewer, and many again: one generation each time, a higher one, and no slice too many."""
    bench = Bench(drivers, workloads, devices=_TWO_SLICES)
    generations = [_generation(_wait_whole(drivers, bench, _TWO_SLICES))]
    for devices in (300, 10, 150):
        bench.driver.client.set_inventory(_inventory(devices))
        slices = _wait_whole(drivers, bench, devices)
        evidence(f"slices of {devices} devices", [each["spec"]["pool"] for each in slices])
        generations.append(_generation(slices))

    expect_equal("generations, which rise", sorted(set(generations)), generations)
    last = f"device.attributes[{bench.driver.name!r}].slot == '149'"
    create_claim(workloads, "last", [request("device", bench.device_class, cel=last)])
    workloads.run(pod_with_claim("last"))
    expect_equal("device of the last slice", given(workloads.report("last")), ["gpu-149"])


@requirement("LIF-15")
def test_what_a_crash_left_is_put_right(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """A driver that died halfway through publishing comes back: its pool is consistent again."""
    bench = Bench(drivers, workloads, devices=_TWO_SLICES)
    first, second = _wait_whole(drivers, bench, _TWO_SLICES)

    bench.driver.kill()
    drivers.kube.delete(RESOURCE_SLICES, second["metadata"]["name"], uid=second["metadata"]["uid"])
    half = {"spec": {"pool": {"generation": _generation([first]) + 1}}}
    drivers.kube.patch(RESOURCE_SLICES, first["metadata"]["name"], half)
    bench.driver.wait_ready(bench.driver.start())
    slices = _wait_whole(drivers, bench, _TWO_SLICES)

    evidence("slices", [each["spec"]["pool"] for each in slices])
    expect("the generation is none of before", _generation(slices) > _generation([first]), slices)


@contextmanager
def _preparing(bench: Bench, drivers: Drivers) -> Iterator[None]:
    """The driver is busy with a call to prepare a claim while the body runs."""
    with calls.fault(bench.driver, calls.PREPARE, "hang"):
        calls.wait_begun(bench.driver, calls.PREPARE, bench.create("pod"))
        yield


@contextmanager
def _publishing(bench: Bench, drivers: Drivers) -> Iterator[None]:
    """The driver publishes another number of devices, and then the same as before, as the body begins."""
    with ThreadPoolExecutor(1) as thread:
        for devices in (300, _TWO_SLICES):
            changed = thread.submit(bench.driver.client.set_inventory, _inventory(devices))
            _delete_all(drivers, bench)
            changed.result()
    yield


_DOING: Mapping[str, Callable[[Bench, Drivers], AbstractContextManager[Any]]] = {
    "nothing": lambda bench, drivers: nullcontext(),
    "preparing": _preparing,
    "publishing": _publishing,
}


@requirement("LIF-07")
@pytest.mark.parametrize("doing", _DOING)
def test_deleted_slices_come_back(
    doing: str, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Somebody deletes a driver's slices while it is idle, prepares a claim, or has just changed them."""
    bench = Bench(drivers, workloads, devices=_TWO_SLICES)

    with _DOING[doing](bench, drivers):
        gone = {each["metadata"]["uid"] for each in drivers.slices(bench.driver)}
        _delete_all(drivers, bench)
        slices = _wait_whole(drivers, bench, _TWO_SLICES)

    evidence("slices that were deleted", len(gone))
    evidence("slices that are there again", [each["spec"]["pool"] for each in slices])
    expect_equal("deleted slices", gone & {each["metadata"]["uid"] for each in slices}, set())


@requirement("LIF-06")
def test_slices_of_a_driver_that_stays_away_go(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Two drivers die, one comes back: the other's slices are deleted after half a minute, its own stay."""
    back, away = (Bench(drivers, workloads, suffix=suffix) for suffix in ("back", "away"))
    before = slice_uids(drivers, back)
    away.driver.kill()
    back.driver.kill()

    back.driver.wait_ready(back.driver.start())
    drivers.wait_registered(back.driver)
    expect("slices of both at first", slice_uids(drivers, away), "of one driver they are gone at once")
    wait_until(
        lambda: not drivers.slices(away.driver), _WIPED_SECONDS, "the slices of a driver that is away to go"
    )

    expect_equal("slices of the driver that is back", slice_uids(drivers, back), before)
    away.driver.wait_ready(away.driver.start())
    evidence("slices of the other, once it is back as well", slice_uids(drivers, away))
    expect("a driver publishes its slices again", slice_uids(drivers, away), "none")
