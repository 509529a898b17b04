"""A tracker with a world of objects, and the usual course of a pod's life in one line each."""

from __future__ import annotations

from load.findings import Findings
from load.histogram import LatencyHistogram
from load.model import Orders, Stage
from load.tracker import Tracker
from tests.load.world import Object, World, orders


class Scene:
    """Pods of the first kind of the orders, in namespace `ns`. The run starts at 0."""

    def __init__(self, plan: Orders | None = None) -> None:
        self.orders = plan or orders()
        self.tracker = Tracker(self.orders, started_at=0.0)
        self.world = World()

    def name(self, number: int = 0, kind: int = 0) -> str:
        """What the arrivals call it."""
        return f"r1-w0-{self.orders.kinds[kind].name}-{number}"

    def sent(self, number: int = 0, *, due: float = 0.0, kind: int = 0) -> str:
        """A pod that was due and is on its way a millisecond later."""
        name = self.name(number, kind)
        self.tracker.intended(name, "ns", self.orders.kinds[kind], due)
        self.tracker.sent(name, due + 0.001)
        return name

    def accepted(self, number: int = 0, *, due: float = 0.0, kind: int = 0) -> str:
        """A pod whose create was answered 201 ten milliseconds after it was due."""
        name = self.sent(number, due=due, kind=kind)
        self.tracker.answered(name, due + 0.01, 201)
        return name

    def bound(self, number: int = 0, *, due: float = 0.0, at: float = 1.0) -> tuple[Object, Object]:
        """A pod with one claim that was allocated device g<number>, and bound, at that moment."""
        name = self.accepted(number, due=due)
        claim = self.world.claim(name)
        self.tracker.claim_event("ADDED", claim, at - 0.2)
        claim = self.world.allocated(claim, f"g{number}")
        self.tracker.claim_event("MODIFIED", claim, at - 0.1)
        pod = self.world.bound(self.world.named(self.world.pod(name), claim["metadata"]["name"]))
        self.tracker.pod_event("MODIFIED", pod, at)
        return pod, claim

    def deleted(self, pod: Object, at: float) -> None:
        """The pod goes by the generator's delete, sent at that moment and seen 0.1 s later."""
        name = pod["metadata"]["name"]
        self.tracker.delete_sent(name, at)
        self.tracker.delete_answered(name, at + 0.05, 200)
        self.tracker.pod_event("DELETED", self.world.next(pod), at + 0.1)

    def claim_gone(self, claim: Object, at: float) -> None:
        """The claim loses its reservation at that moment and goes 0.1 s later."""
        claim = self.world.released(claim)
        self.tracker.claim_event("MODIFIED", claim, at)
        self.tracker.claim_event("DELETED", self.world.terminating(claim), at + 0.1)

    def completed(self, number: int = 0, *, due: float = 0.0, at: float = 1.0) -> None:
        """A whole life: bound at that moment, deleted 2 s later, gone 0.1 and released 0.3 s after that."""
        pod, claim = self.bound(number, due=due, at=at)
        self.deleted(pod, at + 2)
        self.claim_gone(claim, at + 2.3)


def latencies(findings: Findings, stage: Stage, window: str = "measured") -> LatencyHistogram:
    """All kinds' samples of a stage in a window."""
    parts = [s for s in findings.samples if s.stage is stage and s.window == window]
    return LatencyHistogram.of(parts)


def value(findings: Findings, stage: Stage) -> tuple[float, bool]:
    """The only sample of a stage in milliseconds, to three digits, and whether it is censored."""
    histogram = latencies(findings, stage)
    assert histogram.count == 1, f"{stage}: {histogram.count} samples"
    quantile = histogram.quantile(0.5)
    assert quantile is not None
    return float(f"{quantile.seconds * 1000:.3g}"), quantile.at_least
