"""Nothing beside the churn: the plan's trials, one after the other. The other scenarios start from here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from load.model import QuotaChange
from load.profiles.trial import Trial
from load.scenarios.interface import Clock, Done, Findings, Ground, Scenario, ScenarioSpec


class Quiet(ScenarioSpec):
    """Churn alone."""

    kind: Literal["quiet"] = "quiet"

    def make(self) -> Scenario:
        """Churn alone."""
        return BaseScenario()


class BaseScenario:
    """Runs the plan's trials and has nothing to add; see `Scenario` for each method."""

    ground: Ground

    def prepare(self, ground: Ground) -> None:
        """Keep the ground."""
        self.ground = ground

    def trials(self) -> Sequence[Trial]:
        """The trials that are known beforehand, in order."""
        return (self.ground.plan.main, *self.ground.plan.further)

    def next_trial(self, done: Sequence[Done]) -> Trial | None:
        """The next of `trials`."""
        trials = self.trials()
        return trials[len(done)] if len(done) < len(trials) else None

    def before(self, trial: Trial) -> None:
        """Nothing."""

    def act(self, trial: Trial, clock: Clock) -> None:
        """Nothing."""

    def quota(self, trial: Trial) -> Mapping[str, int]:
        """No quota."""
        return {}

    def quota_changes(self, trial: Trial) -> Sequence[QuotaChange]:
        """No quota, no change."""
        return ()

    def judge(self, done: Done) -> Findings:
        """Nothing to add."""
        return Findings()

    def conclude(self, done: Sequence[Done]) -> Findings:
        """Nothing to add."""
        return Findings()

    def clean(self) -> None:
        """Nothing to clean."""
