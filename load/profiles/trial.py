"""One run of the generator, as planned."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from load.model import Burst, Segment, Stage
from load.profiles.schema import PodShape, RateStage

SETTLE_SECONDS = 0.5
"""What a pod holds its devices for besides `hold`, at the least: to be bound, and to be deleted."""
MAIN = "main"


@dataclass(frozen=True)
class Trial:
    """Pods of some shapes, at one rate or in stages."""

    name: str
    pods: tuple[PodShape, ...]
    rate: float
    """Pods/s; with stages, the highest."""
    warm_up: float
    """Seconds before the measured part."""
    seconds: float
    """The measured part."""
    hold: float
    drain: float
    stages: tuple[RateStage, ...] = ()
    """Of the measured time, together `seconds`; none where it has one rate, or phases."""
    bursts: tuple[Burst, ...] = ()
    phases: tuple[tuple[str, float], ...] = ()
    """Parts of the measured time with windows of their own, each so many seconds; together `seconds`."""
    last_stage: Stage | None = None
    """After which pods are held; None takes the profile's."""
    saturates: bool = False
    """It may take all that the machine has; see `TrialResult.saturates`."""

    def segments(self) -> list[Segment]:
        """The shape as the generator takes it; the warm-up is at the rate that the rest begins with."""
        parts = []
        if self.warm_up:
            first = self.stages[0].begins if self.stages else self.rate
            parts.append(Segment(seconds=self.warm_up, start=first, end=first, measured=False))
        if self.stages:
            return parts + [
                Segment(seconds=stage.seconds, start=stage.begins, end=stage.rate, phase=stage.name)
                for stage in self.stages
            ]
        for phase, seconds in self.phases or (("", self.seconds),):
            parts.append(Segment(seconds=seconds, start=self.rate, end=self.rate, phase=phase))
        return parts

    def says(self) -> str:
        """The arrivals in words."""
        if self.stages:
            return ", ".join(stage.says() for stage in self.stages)
        return f"{self.rate:g} pods/s for {self.length:g} s" if self.rate else "a burst"

    @property
    def settings(self) -> dict[str, str]:
        """What its report says of it besides the rates that came of it."""
        return {"stages": self.says()} if self.stages else {}

    @property
    def length(self) -> float:
        """Seconds from the start to the last arrival."""
        return self.warm_up + self.seconds

    def share(self, shape: PodShape) -> float:
        """The part of all pods that are of this shape, 0 to 1."""
        return shape.weight / sum(each.weight for each in self.pods)

    def devices_in_use(self) -> float:
        """How many devices the pods hold at a time on average, at the least, and at the highest rate."""
        per_pod = sum(self.share(shape) * shape.devices_per_pod for shape in self.pods)
        return self.rate * (self.hold + SETTLE_SECONDS) * per_pod

    def again(self, name: str, *, phases: tuple[tuple[str, float], ...] | None = None) -> Trial:
        """The same under another name, perhaps with other phases and another length."""
        changed = dataclasses.replace(self, name=name)
        if phases is not None:
            length = sum(seconds for _, seconds in phases)
            changed = dataclasses.replace(changed, phases=phases, seconds=length)
        return changed
