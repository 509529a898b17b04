"""Churn, and then the same churn by device plugin capacity, to compare with: APF-07.

It also looks for latencies around one and two seconds: the scheduler's PreBind looks again after a second
where its view of a claim lags behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import pydantic

from harness.errors import UsageError
from harness.results import Result
from load.histogram import LatencyHistogram
from load.model import Stage, WorkerReport
from load.profiles.schema import Via
from load.profiles.trial import MAIN
from load.scenarios import capacity
from load.scenarios.interface import Done, Findings, Ground, Scenario, ScenarioSpec, requirement
from load.scenarios.quiet import BaseScenario
from load.scenarios.readings import MEASURED, count, figure, quantile

if TYPE_CHECKING:
    from load.profiles.plan import Plan

_MODES = (1, 2)
_MODE_WIDTH = 0.15
"""Seconds on both sides of a full second."""


class Reference(ScenarioSpec):
    """One of the further trials asks for device plugin capacity."""

    kind: Literal["reference"]
    trial: str
    """Name of that trial."""
    factor: float = pydantic.Field(default=3.0, ge=1)
    slack: float = pydantic.Field(default=0.25, ge=0)
    """The p99 with DRA is close to the other's if it is at most `factor` times that, plus so many seconds."""

    def check(self, plan: Plan) -> None:
        """The trial is there, and asks for what it should."""
        found = [trial for trial in plan.further if trial.name == self.trial]
        if not found:
            raise UsageError(f"{plan.source}: scenario.trial: expected a name of sizes.{plan.size}.trials")
        if any(shape.via is not Via.PLUGIN for shape in found[0].pods):
            raise UsageError(f"{plan.source}: scenario.trial: expected one of pods with `via: plugin`")

    def make(self) -> Scenario:
        """One run's."""
        return _Comparing(self)


class _Comparing(BaseScenario):
    def __init__(self, spec: Reference) -> None:
        self._spec = spec
        self._advertised = False

    def prepare(self, ground: Ground) -> None:
        super().prepare(ground)
        self._advertised = True
        count = ground.plan.devices_per_node
        capacity.on_all(ground.setup, ground.simulated, capacity.plugin_resource(ground.names), count)

    def judge(self, done: Done) -> Findings:
        findings = Findings()
        if done.trial.name == MAIN:
            findings.figures["prebind-modes"] = figure(100 * near_full_seconds(done.report), "%")
            bound = ever(done.report, Stage.BOUND)
            findings.figures["without-status"] = figure(bound - ever(done.report, Stage.CLAIM_IN_STATUS))
            if done.server and "kube-scheduler" in done.server.claim_creates:
                created = done.server.claim_creates["kube-scheduler"].get("success", 0)
                findings.figures["special-claims-off"] = figure(abs(created - bound))
        return findings

    def conclude(self, done: Sequence[Done]) -> Findings:
        findings = Findings()
        by_name = {each.trial.name: each for each in done}
        main, other = by_name.get(MAIN), by_name.get(self._spec.trial)
        if main is None or other is None or main.server is None:
            return findings
        dra, plugin = (quantile(each.report, Stage.BOUND, 0.99) for each in (main, other))
        if dra is None or plugin is None:
            return findings
        findings.figures["dra-to-plugin"] = figure(dra.seconds / plugin.seconds, at_least=dra.at_least)
        rejected = main.server.rejected()
        if rejected is None:
            message = "what the API server rejected isn't known"
            findings.requirements.append(requirement("APF-07", Result.BLOCKED, message))
            return findings
        limit = self._spec.factor * plugin.seconds + self._spec.slack
        fine = not rejected and dra.seconds <= limit and not dra.at_least
        message = (
            f"expected: no request rejected, and p99 near the device plugin's, at most {limit:.3f} s\n"
            f"observed: {rejected} requests rejected, p99 {dra} with DRA and {plugin} with the device plugin"
        )
        findings.requirements.append(
            requirement(
                "APF-07",
                Result.PASS if fine else Result.FAIL,
                "" if fine else message,
                rejected=figure(rejected),
                dra=figure(dra.seconds, "s", at_least=dra.at_least),
                plugin=figure(plugin.seconds, "s", at_least=plugin.at_least),
            )
        )
        return findings

    def clean(self) -> None:
        if self._advertised:
            capacity.on_all(
                self.ground.setup, self.ground.simulated, capacity.plugin_resource(self.ground.names), None
            )


def ever(report: WorkerReport, stage: Stage) -> int:
    """How many pods came to a stage, in the warm-up or later."""
    return count(report, stage) + count(report, stage, window="warm-up")


def near_full_seconds(report: WorkerReport) -> float:
    """The share of pods that were bound about one or two full seconds after they were due, 0 to 1."""
    samples = [each for each in report.samples if each.stage is Stage.BOUND and each.window == MEASURED]
    histogram = LatencyHistogram.of(samples)
    return sum(
        histogram.share_within(mode + _MODE_WIDTH) - histogram.share_within(mode - _MODE_WIDTH)
        for mode in _MODES
    )
