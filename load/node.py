"""What a trial does to real nodes: calls to prepare and unprepare, and what is left of them."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

from fake_driver.calls import Call
from fake_driver.client import DriverError

from clusters import metrics
from clusters.driver_host import BUNDLED_DRIVER, HostedDriver
from clusters.interface import Cluster
from harness.errors import EnvironmentBlocked
from harness.kube import KubeClient
from harness.results import Result
from harness.waiting import NotYet, WaitTimeout, wait_until
from load.result import RequirementResult
from load.scenarios.interface import Findings, requirement
from load.scenarios.readings import figure

PREPARE = "NodePrepareResources"
UNPREPARE = "NodeUnprepareResources"
_IN_USE = "dra_resource_claims_in_use"
_OPERATIONS = "dra_operations_duration_seconds"
_GONE_SECONDS = 60.0


class NodeWatch:
    """Looks at the real nodes before a trial, and again after it.

    Args:
        cluster: whose nodes.
        admin: the admin's client, for the kubelets' metrics.
    """

    def __init__(self, cluster: Cluster, admin: KubeClient) -> None:
        self._cluster = cluster
        self._admin = admin
        self._driver = HostedDriver(BUNDLED_DRIVER, cluster, "bundled")
        self._files = self._list_files()
        self._in_use, self._failed = self._read()
        self._sequence = max((call.seq for call in self._calls(0)), default=0)

    def add_to(self, findings: Findings) -> None:
        """Put the figures into what is said about the trial, with LIF-17 and MD-10."""
        in_use, left = self._settle()
        _, failed = self._read()
        calls = self._calls(self._sequence)
        prepared = [call.seconds or 0.0 for call in calls if call.method == PREPARE]
        errors = sum(1 for call in calls if call.method in (PREPARE, UNPREPARE) and _failed(call))
        findings.figures["prepares"] = figure(len(prepared))
        findings.figures["prepare-errors"] = figure(errors)
        # The Node authorizer may not know a pod yet whose claim the kubelet wants to read: it tries again.
        findings.figures["node-retries"] = figure(max(0, failed - self._failed - errors))
        findings.figures["claims-in-use"] = figure(in_use)
        findings.figures["files-left"] = figure(len(left))
        for share in (50, 99):
            if (value := percentile(prepared, share)) is not None:
                findings.figures[f"prepare.p{share}"] = figure(value, "s")
        if prepared:
            findings.requirements += _requirements(len(prepared), errors, in_use, left)

    def _settle(self) -> tuple[int, list[Path]]:
        """Claims in use and files beyond those of before, once there are none or it has taken too long."""
        seen: tuple[int, list[Path]] = (0, [])

        def settled() -> bool:
            nonlocal seen
            in_use, _ = self._read()
            seen = (in_use - self._in_use, sorted(self._list_files() - self._files))
            if seen != (0, []):
                raise NotYet(seen)
            return True

        try:
            wait_until(settled, _GONE_SECONDS, "claims on real nodes to be unprepared", interval=0.5)
        except WaitTimeout:
            return seen
        return seen

    def _read(self) -> tuple[int, int]:
        """Claims in use, and failed operations so far, over all real nodes."""
        in_use = failed = 0.0
        for node in self._cluster.nodes:
            samples = metrics.read(
                self._cluster, self._admin, f"kubelet/{node.name}", prefixes=(_IN_USE, _OPERATIONS)
            )
            # There is a series for each driver as well; one claim may be in several of them.
            in_use += metrics.total(samples, _IN_USE, driver_name="<any>")
            failed += metrics.total(samples, f"{_OPERATIONS}_count", is_error="true")
        return round(in_use), round(failed)

    def _list_files(self) -> set[Path]:
        found: set[Path] = set()
        for node in self._cluster.nodes:
            found |= set(node.cdi_dir.glob("*"))
            for directory in node.kubelet_dir.glob("plugins/*/dra-device-metadata"):
                # Not `rglob`: it raises where the driver removes a folder meanwhile.
                found |= {Path(parent, name) for parent, _, names in os.walk(directory) for name in names}
        return found

    def _calls(self, after: int) -> list[Call]:
        """The bundled driver's record; it keeps the latest 20,000 calls."""
        try:
            return self._driver.client.calls(after=after)
        except DriverError:
            return []


def _requirements(prepares: int, errors: int, in_use: int, left: Sequence[Path]) -> list[RequirementResult]:
    fine = not errors and not in_use
    message = (
        "expected: no failed call, no claim in use after the drain\n"
        f"observed: {errors} failed, {in_use} in use"
    )
    lasting = f"expected: no file left\nobserved: {len(left)}, such as {left[0].name}" if left else ""
    count = figure(prepares)
    return [
        requirement("LIF-17", Result.PASS if fine else Result.FAIL, "" if fine else message, prepares=count),
        requirement("MD-10", Result.FAIL if left else Result.PASS, lasting, prepares=count),
    ]


def _failed(call: Call) -> bool:
    """Whether a call failed as a whole, or for one of its claims."""
    claims = (call.response or {}).get("claims", {})
    return bool(call.error) or any(answer.get("error") for answer in claims.values())


def prepare_seconds(cluster: Cluster, after: int) -> tuple[list[float], int]:
    """Seconds of each call to prepare after a sequence number, and the newest number: of the bundled driver.

    Raises:
        EnvironmentBlocked: its record can't be read.
    """
    try:
        calls = HostedDriver(BUNDLED_DRIVER, cluster, "bundled").client.calls(after=after)
    except DriverError as error:
        raise EnvironmentBlocked(f"the record of {BUNDLED_DRIVER} can't be read: {error}") from error
    seconds = [call.seconds for call in calls if call.method == PREPARE and call.seconds is not None]
    return seconds, max((call.seq for call in calls), default=after)


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that `share` percent of all don't exceed; None without any."""
    ordered = sorted(values)
    return ordered[max(1, math.ceil(len(ordered) * share / 100)) - 1] if ordered else None
