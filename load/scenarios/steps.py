"""Step search: ever higher rates, until the latency of the pods says that it is too much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import pydantic

from harness.errors import UsageError
from load.model import Stage
from load.profiles.trial import Trial
from load.scenarios.interface import Done, Findings, Scenario, ScenarioSpec
from load.scenarios.quiet import BaseScenario
from load.scenarios.readings import bound_rate, figure, quantile, unfinished

if TYPE_CHECKING:
    from load.books import LimiterWait
    from load.profiles.plan import Plan

_PREFIX = "step-"
_FLOOR = 4.0
"""Where even the first rate is too much, the search goes down to this part of it."""
_SHORT_OF = 0.9
"""A trial is saturated if its bound rate is below this share of the offered one."""


class StepSearch(ScenarioSpec):
    """The highest rate at which the p99 from due to bound stays within a limit."""

    one_rate: ClassVar[bool] = True

    kind: Literal["step-search"]
    first: float = pydantic.Field(default=5.0, gt=0)
    """Pods/s of the first step, unless the main trial has shown a higher one to be fine."""
    factor: float = pydantic.Field(default=2.0, gt=1)
    most: float = pydantic.Field(gt=0)
    """No step beyond this rate."""
    refine: int = pydantic.Field(default=1, ge=0, le=6)
    """Steps between the last good and the first bad rate, each in the middle."""
    p99: float = pydantic.Field(default=5.0, gt=0)
    """Seconds from due to bound; a step with more, or with unfinished pods, is too much."""
    warm_up: float = pydantic.Field(default=3.0, ge=0)
    seconds: float = pydantic.Field(default=8.0, gt=0)

    def check(self, plan: Plan) -> None:
        """The first step is a step."""
        if self.most < self.first:
            raise UsageError(
                f"{plan.source}: scenario.most: expected at least scenario.first ({self.first:g})"
            )

    def make(self) -> Scenario:
        """The search."""
        return _StepSearching(self)


class Search:
    """The arithmetic of the search: the next rate, from what the rates so far came to."""

    def __init__(self, *, first: float, factor: float, most: float, refine: int) -> None:
        self._first, self._factor, self._most, self._refine = first, factor, most, refine

    def next(self, tried: Sequence[tuple[float, bool]]) -> float | None:
        """The rate of the next step, None at the end.

        Up by the factor while all is fine, down by it while nothing is; then halves of what is between.

        Args:
            tried: rates and whether they were fine, in the order of the tries.
        """
        good = max((rate for rate, fine in tried if fine), default=0.0)
        bad = min((rate for rate, fine in tried if not fine and rate > good), default=None)
        if bad is None:
            rate = max(self._first, good * self._factor)
            return rate if rate <= self._most else None
        if not good:
            rate = bad / self._factor
            return rate if rate >= self._first / _FLOOR else None
        return (good + bad) / 2 if self._refinements(tried) < self._refine else None

    def _refinements(self, tried: Sequence[tuple[float, bool]]) -> int:
        """How many of the tries came after there was both a good and a bad one."""
        outcomes = [fine for _, fine in tried]
        both = max(outcomes.index(True), outcomes.index(False))
        return len(outcomes) - both - 1


class _StepSearching(BaseScenario):
    """One search."""

    def __init__(self, spec: StepSearch) -> None:
        self._spec = spec
        self._search = Search(first=spec.first, factor=spec.factor, most=spec.most, refine=spec.refine)

    def next_trial(self, done: Sequence[Done]) -> Trial | None:
        """The plan's trials, then the steps."""
        planned = self.trials()
        if len(done) < len(planned):
            return planned[len(done)]
        rate = self._search.next(self._tried(done))
        if rate is None:
            return None
        step = Trial(
            name=f"{_PREFIX}{rate:g}".replace(".", "-"),
            pods=self.ground.plan.main.pods,
            rate=rate,
            warm_up=self._spec.warm_up,
            seconds=max(3.0, self._spec.seconds * min(1.0, self._spec.length)),
            hold=self.ground.plan.main.hold,
            drain=self.ground.plan.main.drain,
            saturates=True,
        )
        if step.devices_in_use() > self.ground.plan.free_devices:
            self.ground.say(f"the search ends below {rate:g} pods/s: the free devices wouldn't do")
            return None
        return step

    def judge(self, done: Done) -> Findings:
        """Whether the rate is too much, and what it came to."""
        findings = Findings()
        if done.trial.name.startswith(_PREFIX):
            findings.settings["rate"] = f"{done.trial.rate:g}/s"
            findings.settings["fine"] = "yes" if self._fine(done) else "no"
        if saturated := _saturated(done):
            findings.notes.append(saturated)
        return findings

    def conclude(self, done: Sequence[Done]) -> Findings:
        """The capacity: the highest rate that was fine, and what the cluster does when offered more."""
        findings = Findings()
        good = [rate for rate, fine in self._tried(done) if fine]
        bad = [rate for rate, fine in self._tried(done) if not fine]
        findings.figures["capacity"] = figure(max(good, default=0.0), "/s", at_least=not bad)
        over = [bound_rate(each.report) for each in done if each.trial.rate in bad and self._compares(each)]
        if over:
            findings.figures["saturated"] = figure(max(over), "/s")
        text = f"p99 within {self._spec.p99:g} s up to {max(good, default=0.0):g} pods/s"
        findings.notes.append(
            text + (f", no longer at {min(bad):g}" if bad else "; no higher rate was tried")
        )
        return findings

    def _tried(self, done: Sequence[Done]) -> list[tuple[float, bool]]:
        return [(each.trial.rate, self._fine(each)) for each in done if self._compares(each)]

    def _compares(self, done: Done) -> bool:
        """The main trial counts as a step; the variants have other pods."""
        return done.trial.name.startswith(_PREFIX) or done.trial.name == self.ground.plan.main.name

    def _fine(self, done: Done) -> bool:
        p99 = quantile(done.report, Stage.BOUND, 0.99)
        if p99 is None or unfinished(done.report):
            return False
        return p99.seconds <= self._spec.p99 and not p99.at_least


def _saturated(done: Done) -> str:
    """What holds a trial back that offers more than is bound, as far as client-side limiters tell."""
    bound = bound_rate(done.report)
    if done.server is None or bound >= _SHORT_OF * done.trial.rate or not done.server.limiter:
        return ""
    worst: LimiterWait = max(done.server.limiter, key=lambda each: each.seconds)
    text = f"{bound:.1f} of {done.trial.rate:g} pods/s were bound; "
    if worst.mean < 0.05:
        return text + "no client-side limiter stood in the way"
    return text + (
        f"{worst.component} waited {worst.mean:.2f} s per API call in its own client-side rate limiter "
        f"({worst.calls} calls)"
    )
