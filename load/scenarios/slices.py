"""ResourceSlices that change at a rate, with the churn behind: attributes, device counts, generations.

Every pool has two slices. Some updates stop half-way for seconds: one slice is of the new generation, the
other still of the old one, and from such a pool nothing may be allocated.
"""

from __future__ import annotations

import copy
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

import pydantic

from harness.errors import UsageError
from harness.kube import RESOURCE_CLAIMS, Object
from load.histogram import Quantile
from load.model import Stage
from load.profiles.schema import Pools as PoolsOf
from load.profiles.trial import MAIN, Trial
from load.scenarios.beside import Beside
from load.scenarios.follow import Follower
from load.scenarios.interface import Clock, Done, Findings, Ground, Scenario, ScenarioSpec
from load.scenarios.pools import Pool, Pools, device
from load.scenarios.quiet import BaseScenario
from load.scenarios.readings import figure, quantile

if TYPE_CHECKING:
    from load.profiles.plan import Plan

_QUIET = "quiet"
_SLICES = 2
_LATE = 0.8
"""Below this share of the updates that were due, the storm wasn't the one that was asked for."""


class SliceStorm(ScenarioSpec):
    """Updates of slices, of the run's own pools."""

    one_rate: ClassVar[bool] = True

    kind: Literal["slice-storm"]
    rate: float = pydantic.Field(gt=0, le=2000)
    """Updates per second."""
    half_pools: int = pydantic.Field(default=2, ge=0)
    """Pools that are half-updated at any time."""
    half_seconds: float = pydantic.Field(default=6.0, gt=0)
    """How long a pool stays half-updated."""
    settle: float = pydantic.Field(default=2.0, gt=0)
    """Seconds that the scheduler has to see an update, before an allocation counts as wrong."""
    beside: tuple[Literal["waiting", "hard", "partitions"], ...] = ()
    """Trials after the storm with something else beside the churn; see `beside.py`."""
    waiting: int = pydantic.Field(default=100, ge=1, le=2000)
    """Pods of the trial `waiting`."""

    def check(self, plan: Plan) -> None:
        """There are pools to change."""
        if plan.profile.pools is not PoolsOf.OWN:
            raise UsageError(f"{plan.source}: pools: expected `own` for this scenario, it changes them")
        if plan.sizing.simulated_nodes <= self.half_pools:
            raise UsageError(
                f"{plan.source}: scenario.half_pools: expected fewer than the "
                f"{plan.sizing.simulated_nodes} simulated nodes"
            )
        if plan.devices_per_node < _SLICES:
            raise UsageError(f"{plan.source}: devices_per_node: expected {_SLICES} at least, for two slices")

    def make(self) -> Scenario:
        """One run's."""
        return _Storm(self)


@dataclass
class Partial:
    """Which pools are half-updated, and the allocations that must not have been."""

    settle: float
    wrong: list[str] = field(default_factory=list)
    _since: dict[str, float] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, pool: str, at: float) -> None:
        """From now on the pool is incomplete."""
        with self._lock:
            self._since[pool] = at

    def end(self, pool: str) -> None:
        """It is about to be completed."""
        with self._lock:
            self._since.pop(pool, None)

    def claim(self, kind: str, obj: Object, at: float) -> None:
        """A watch event of a claim."""
        uid = obj["metadata"]["uid"]
        allocation = obj.get("status", {}).get("allocation")
        with self._lock:
            if kind == "DELETED":
                self._seen.discard(uid)
            elif allocation and uid not in self._seen:
                self._seen.add(uid)
                for result in allocation.get("devices", {}).get("results", ()):
                    since = self._since.get(result["pool"])
                    if since is not None and at - since > self.settle:
                        name = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
                        self.wrong.append(
                            f"claim {name} got {result['device']} of half-updated {result['pool']}"
                        )


class _Storm(BaseScenario):
    def __init__(self, spec: SliceStorm) -> None:
        self._spec = spec
        self._pools: Pools | None = None
        self._partial = Partial(spec.settle)
        self._follower: Follower | None = None
        self._random = random.Random()  # noqa: S311 - seeded in prepare
        self._beside: Beside | None = None
        self._quiet: Quantile | None = None
        self._epoch = 0
        self._due = 0
        self._timely = 0
        """Updates made by the last arrival: what comes in the drain is no part of the storm's rate."""

    def prepare(self, ground: Ground) -> None:
        super().prepare(ground)
        self._random.seed(f"{ground.seed}/slices")
        self._beside = Beside(ground, self._spec.waiting)
        self._pools = Pools(ground.kube, ground.driver, ground.prefix, ground.labels)
        self._pools.publish(ground.simulated, ground.plan.devices_per_node, slices=_SLICES)

    def trials(self) -> Sequence[Trial]:
        """Under the storm; then the same churn with slices at rest, and beside other things."""
        main = self.ground.plan.main
        return (main, main.again(_QUIET), *self._others().trials(main, self._spec.beside))

    def before(self, trial: Trial) -> None:
        self._others().before(trial.name)
        self._partial = Partial(self._spec.settle)
        self._follower = Follower(
            self.ground.observer, RESOURCE_CLAIMS, list(self.ground.namespaces.values()), self._partial.claim
        )
        self._follower.start()

    def act(self, trial: Trial, clock: Clock) -> None:
        """Update at the rate; some pools are left half-way for a while."""
        if trial.name != MAIN:
            if clock.until(trial.warm_up):
                self._others().act(trial.name)
            return
        pools = self._mine().pools
        half: dict[str, float] = {}
        whole = sorted(pools)
        while clock.until(self._due / self._spec.rate):
            self._due += 1
            now = clock.elapsed()
            done = [name for name, since in half.items() if now - since > self._spec.half_seconds]
            if done:
                self._complete(pools[done[0]])
                del half[done[0]]
            elif len(half) < self._spec.half_pools:
                name = self._random.choice([each for each in whole if each not in half])
                self._half_update(pools[name])
                half[name] = clock.elapsed()
            else:
                self._change(pools[self._random.choice([each for each in whole if each not in half])])
            self._timely += clock.elapsed() <= trial.length
        for name in half:
            self._complete(pools[name])

    def judge(self, done: Done) -> Findings:
        findings = Findings()
        if self._follower:
            self._follower.stop()
            if self._follower.cuts:
                findings.faults.append(f"allocations may have been missed: {self._follower.cuts[0]}")
        if done.trial.name == _QUIET:
            self._quiet = quantile(done.report, Stage.BOUND, 0.99)
        if done.trial.name != MAIN:
            return self._others().judge(done, self._quiet)
        pools = self._mine()
        findings.figures["partial-pool-allocations"] = figure(len(self._partial.wrong))
        findings.figures["slice-updates"] = figure(pools.updates)
        findings.figures["slice-updates.rate"] = figure(self._timely / done.trial.length, "/s")
        findings.figures["slice-conflicts"] = figure(pools.conflicts)
        findings.notes += self._partial.wrong[:20]
        if self._timely < _LATE * self._spec.rate * done.trial.length:
            findings.faults.append(
                f"only {self._timely} slices were updated under the load, not {self._spec.rate:g} a second"
            )
        return findings

    def conclude(self, done: Sequence[Done]) -> Findings:
        """The churn's p99 under the storm against the quiet trial."""
        findings = Findings()
        found = {each.trial.name: quantile(each.report, Stage.BOUND, 0.99) for each in done}
        storm, quiet = found.get(MAIN), found.get(_QUIET)
        if storm and quiet:
            findings.figures["churn-ratio"] = figure(storm.seconds / quiet.seconds, at_least=storm.at_least)
        return findings

    def clean(self) -> None:
        if self._follower:
            self._follower.stop()
        if self._beside:
            self._beside.remove()
        if self._pools:
            self._pools.clean()

    def _others(self) -> Beside:
        assert self._beside is not None, "prepare() comes first"
        return self._beside

    def _mine(self) -> Pools:
        assert self._pools is not None, "prepare() comes first"
        return self._pools

    def _half_update(self, pool: Pool) -> None:
        """The first slice moves to the next generation; the second is left behind."""
        self._write(pool, 0, pool.generation + 1)
        self._partial.begin(pool.node, time.time())

    def _complete(self, pool: Pool) -> None:
        self._partial.end(pool.node)
        self._write(pool, 1, pool.generation)

    def _change(self, pool: Pool) -> None:
        """One update in place: an attribute of every device, or a device that goes or comes back."""
        index = self._random.randrange(_SLICES)
        devices: list[Object] = copy.deepcopy(pool.slices[index]["spec"]["devices"])
        if self._random.random() < 0.5:
            self._epoch += 1
            devices = [device(each["name"], epoch=self._epoch) for each in devices]
        elif missing := sorted(name for name in pool.removed if name in self._names(index)):
            devices.append(device(missing[0]))
            pool.removed.discard(missing[0])
        elif len(devices) > 1:
            pool.removed.add(devices.pop()["name"])
        pool.slices[index]["spec"]["devices"] = devices
        self._mine().update(pool, index)

    def _names(self, index: int) -> list[str]:
        from load.scenarios.pools import parts

        return parts(self.ground.plan.devices_per_node, _SLICES)[index]

    def _write(self, pool: Pool, index: int, generation: int) -> None:
        pool.slices[index]["spec"]["pool"]["generation"] = generation
        self._mine().update(pool, index)
