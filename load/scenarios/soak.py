"""Hours of churn with restarts in between: does anything grow, and does the cluster come back?"""

from __future__ import annotations

import functools
import itertools
import statistics
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import psutil
import pydantic

from clusters import processes
from harness.errors import EnvironmentBlocked, UsageError
from load.model import Stage
from load.profiles.trial import Trial
from load.scenarios.follow import Backlog
from load.scenarios.interface import Clock, Done, Findings, Ground, Scenario, ScenarioSpec
from load.scenarios.node_trials import NodeTrials
from load.scenarios.quiet import BaseScenario
from load.scenarios.readings import figure, quantile

if TYPE_CHECKING:
    from load.profiles.plan import Plan

COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
RESTARTABLE = ("kube-controller-manager", "kube-scheduler")
_SAMPLE_SECONDS = 5.0
_OLDEST_SECONDS = 5.0
"""After a restart the cluster is back once no pod has waited longer than this."""
_QUARTERS = 4
_HOUR = 3600.0
_SHORTEST = 600.0
"""Seconds: over less, what a fresh process takes at first looks like growth."""
_FEWEST = 20
"""Samples of a process that has settled."""


class Memory(NamedTuple):
    """What a component's process held at a moment; after a restart it is another process."""

    at: float
    rss: float
    pid: int


class Soak(ScenarioSpec):
    """Restarts of components at intervals, and what grows meanwhile."""

    one_rate: ClassVar[bool] = True

    kind: Literal["soak"]
    restart_every: float = pydantic.Field(gt=0)
    """Seconds between two restarts; they take turns."""
    restart: tuple[str, ...] = RESTARTABLE
    recovery: float = pydantic.Field(default=60.0, gt=0)
    """Seconds that a recovery is awaited for."""
    metadata_pods: int = pydantic.Field(default=0, ge=0)
    """Pods on a real node with the driver's metadata, and as many without, after the soak."""
    full_node: bool = False
    """Whether a real node gets as many pods as it takes, after the soak."""

    def needs_nodes(self, plan: Plan) -> bool:
        """For the trials after the soak."""
        return bool(self.metadata_pods or self.full_node)

    def check(self, plan: Plan) -> None:
        """Only what can be restarted is."""
        if wrong := [name for name in self.restart if name not in RESTARTABLE]:
            raise UsageError(
                f"{plan.source}: scenario.restart: expected of {', '.join(RESTARTABLE)}, not {wrong[0]!r}"
            )

    def make(self) -> Scenario:
        """One run's."""
        return _Soaking(self)


class _Soaking(BaseScenario):
    def __init__(self, spec: Soak) -> None:
        self._spec = spec
        self._backlog: Backlog | None = None
        self._rss: dict[str, list[Memory]] = {name: [] for name in COMPONENTS}
        self._recoveries: list[tuple[str, float, bool]] = []
        self._left = threading.Event()
        self._node: NodeTrials | None = None

    def prepare(self, ground: Ground) -> None:
        super().prepare(ground)
        self._node = NodeTrials(ground)

    def trials(self) -> Sequence[Trial]:
        """The main trial in quarters, and what comes after it."""
        main = self.ground.plan.main
        quarter = main.seconds / _QUARTERS
        phases = tuple((f"quarter-{number + 1}", quarter) for number in range(_QUARTERS))
        soak = main.again(main.name, phases=phases)
        return (soak, *self.ground.plan.further, *self._on_node)

    @functools.cached_property
    def _on_node(self) -> Sequence[Trial]:
        assert self._node is not None, "prepare() made it"
        # They are not shortened with the soak: with fewer calls there would be no p99.
        return self._node.trials(pods=self._spec.metadata_pods, full_node=self._spec.full_node)

    def before(self, trial: Trial) -> None:
        if self._node:
            self._node.before(trial)
        self._backlog = Backlog(self.ground.observer, list(self.ground.namespaces.values()))
        self._backlog.start()
        self._left.clear()
        threading.Thread(target=self._sample, name="soak-memory", daemon=True).start()

    def act(self, trial: Trial, clock: Clock) -> None:
        """Restart one component after the other; on a real node, what belongs to its trial."""
        if self._node:
            self._node.act(trial, clock)
        interval = self._spec.restart_every * min(1.0, self._spec.length)
        number = 0
        while self._spec.restart and trial.name == self.ground.plan.main.name:
            moment = trial.warm_up + (number + 1) * interval
            if moment + interval / 2 > trial.length or not clock.until(moment):
                return
            self._restart(self._spec.restart[number % len(self._spec.restart)], clock)
            number += 1

    def judge(self, done: Done) -> Findings:
        self._left.set()
        findings = Findings()
        if self._backlog:
            self._backlog.stop()
        if done.trial.name != self.ground.plan.main.name:
            return self._node.judge(done.trial) if self._node else findings
        self._note_growth(findings)
        self._note_drift(done, findings)
        if self._recoveries:
            name, worst, open_ = max(self._recoveries, key=lambda each: each[1])
            findings.figures["recovery"] = figure(worst, "s", at_least=open_)
            findings.notes.append(f"the longest recovery, {worst:.1f} s, was after {name} was restarted")
        findings.figures["planned-restarts"] = figure(len(self._recoveries))
        if done.server:
            lasting = {name: more for name, more in done.server.objects.items() if name != "events"}
            findings.figures["objects-left"] = figure(sum(max(0, more) for more in lasting.values()))
        return findings

    def clean(self) -> None:
        self._left.set()
        if self._backlog:
            self._backlog.stop()
        if self._node:
            self._node.clean()

    def _restart(self, component: str, clock: Clock) -> None:
        assert self._backlog is not None, "before() made it"
        began = time.time()
        self.ground.say(f"{component} is restarted")
        try:
            self.ground.restart(component)
        except EnvironmentBlocked as error:
            self.ground.say(f"{component} can't be restarted: {error}")
            return
        while clock.pause(0.25):
            now = time.time()
            if not self._backlog.waiting(since=now - _OLDEST_SECONDS):
                self._recoveries.append((component, now - began, False))
                return
            if now - began > self._spec.recovery:
                break
        self._recoveries.append((component, time.time() - began, True))

    def _sample(self) -> None:
        """Resident memory of the control plane's processes; of a local cluster only."""
        while not self._left.wait(_SAMPLE_SECONDS):
            for name in COMPONENTS:
                pid = processes.main_pid(self.ground.cluster.id, name, name)
                try:
                    if pid is not None:
                        rss = float(psutil.Process(pid).memory_info().rss)
                        self._rss[name].append(Memory(time.time(), rss, pid))
                except psutil.Error:
                    continue

    def _note_growth(self, findings: Findings) -> None:
        for name, samples in self._rss.items():
            slope = growth(samples)
            if slope is None:
                findings.notes.append(f"growth of {name} is not known: no process of it was seen for long")
            else:
                findings.figures[f"rss-growth.{name}"] = figure(slope, "%/h")
        grown = [value.value for name, value in findings.figures.items() if name.startswith("rss-growth.")]
        if grown:
            findings.figures["rss-growth"] = figure(max(grown), "%/h")

    def _note_drift(self, done: Done, findings: Findings) -> None:
        second, last = (
            quantile(done.report, Stage.BOUND, 0.99, window=f"quarter-{number}") for number in (2, _QUARTERS)
        )
        if second and last:
            findings.figures["p99-drift"] = figure(last.seconds / second.seconds, at_least=last.at_least)


def growth(samples: Sequence[Memory]) -> float | None:
    """Growth in percent of the mean per hour, as all processes of a component have it in common.

    Each counts from the first quarter of its time on, an hour at most, and by what it grew itself: that the
    one after a restart is smaller is no shrinking. None if none ran for ten minutes.
    """
    processes_of = (list(group) for _, group in itertools.groupby(samples, key=lambda each: each.pid))
    settled = [late for late in map(_settled, processes_of) if late]
    if not settled:
        return None
    steps = [(at, rss) for late in settled for at, rss in _from_the_mean(late)]
    slope = statistics.linear_regression(*zip(*steps, strict=True), proportional=True).slope
    return 100 * slope * _HOUR / statistics.fmean(each.rss for late in settled for each in late)


def _settled(samples: Sequence[Memory]) -> list[Memory]:
    """A process's samples without those of its beginning; none if they are too few to say anything."""
    begin, end = samples[0].at, samples[-1].at
    late = [each for each in samples if each.at >= begin + min(_HOUR, (end - begin) / 4)]
    return late if end - begin >= _SHORTEST and len(late) >= _FEWEST else []


def _from_the_mean(samples: Sequence[Memory]) -> list[tuple[float, float]]:
    at, rss = (statistics.fmean(values) for values in ([s.at for s in samples], [s.rss for s in samples]))
    return [(each.at - at, each.rss - rss) for each in samples]
