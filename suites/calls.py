"""The kubelet's calls to a driver, as the driver recorded them, and faults for such calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fake_driver.calls import Call
from fake_driver.faults import Fault

from clusters.driver_host import HostedDriver
from harness.kube import Object
from harness.waiting import NotYet, wait_until

PREPARE = "NodePrepareResources"
UNPREPARE = "NodeUnprepareResources"
_ENDED_SECONDS = 90.0
"""More than a kubelet waits for an answer, 45 s (pkg/kubelet/cm/dra/plugin), and then to try again."""


@contextmanager
def fault(driver: HostedDriver, method: str, kind: str, **fields: Any) -> Iterator[None]:
    """A fault of a driver while the body runs; `fields` are more of it, see `fake_driver.faults.Fault`."""
    id_ = driver.client.set_fault(
        Fault.model_validate({"method": method, "kind": kind, **fields}, strict=False)
    )
    try:
        yield
    finally:
        driver.client.clear_faults(id_)


def about(driver: HostedDriver, method: str, claim: Object) -> list[Call]:
    """The calls of a method about a claim so far, oldest first."""
    return driver.client.calls(method=method, claim_uid=claim["metadata"]["uid"])


def wait_begun(driver: HostedDriver, method: str, claim: Object) -> Call:
    """Wait for the first call of a method about a claim; it may still run."""
    return wait_until(
        lambda: about(driver, method, claim), _ENDED_SECONDS, f"a call of {method} to driver {driver.name}"
    )[0]


def wait_ended(
    driver: HostedDriver, method: str, claim: Object, count: int = 1, *, deadline: float = _ENDED_SECONDS
) -> list[Call]:
    """Wait until so many calls of a method about a claim have ended; returns these, oldest first."""

    def ended() -> list[Call]:
        found = [call for call in about(driver, method, claim) if call.seconds is not None]
        if len(found) < count:
            raise NotYet(f"{len(found)} of them")
        return found

    return wait_until(ended, deadline, f"{count} calls of {method} to driver {driver.name} to end")


def error_of(call: Call, claim: Object) -> str:
    """What the driver said against a claim, or against the whole call; empty if nothing."""
    return call.error or str(_answer(call, claim).get("error", ""))


def devices_of(call: Call, claim: Object) -> list[Object]:
    """The devices of a claim in the driver's answer, with the field names of the .proto file."""
    devices: list[Object] = _answer(call, claim).get("devices", [])
    return devices


def cdi_ids_of(call: Call, claim: Object) -> list[str]:
    """The CDI IDs of a claim in the driver's answer, in order."""
    return [id_ for device in devices_of(call, claim) for id_ in device.get("cdi_device_ids", ())]


def _answer(call: Call, claim: Object) -> Object:
    answer: Object = (call.response or {}).get("claims", {}).get(claim["metadata"]["uid"], {})
    return answer
