"""Trials on a real node, after a soak: what metadata adds to preparing (MD-14), and a full node (PRS-05)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clusters.driver_host import BUNDLED_DRIVER, HostedDriver
from harness.kube import NODES, PODS
from harness.results import Result
from load.model import Burst, Stage
from load.node import percentile, prepare_seconds
from load.profiles.schema import Place, PodShape, Via
from load.profiles.trial import Trial
from load.scenarios.interface import Clock, Findings, Ground, requirement
from load.scenarios.podresources import Answers, Prober
from load.scenarios.readings import figure

if TYPE_CHECKING:
    from load.result import Figure, RequirementResult

WITH = "metadata-on"
WITHOUT = "metadata-off"
FULL = "full-node"
MOST_ADDED = 0.010
"""Seconds that metadata may add to the p99 of preparing: KEP-5304."""
FEWEST_CALLS = 100
"""With fewer calls the p99 is the slowest or the second: nothing to judge by."""
ANSWERED_WITHIN = 0.100
"""Seconds for 99 % of the calls of the pod resources API: KEP-3695."""
MOST_FAILED = 0.001
_RATE = 3.0
_HOLD_SECONDS = 30.0
_PROBE_SECONDS = 15.0
_RESERVED_PODS = 5
"""Places that are left: for what else is on the node, and pods that are still ending."""


class NodeTrials:
    """The trials, and what comes of them."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._driver = HostedDriver(BUNDLED_DRIVER, ground.cluster, "bundled")
        self._sequence = 0
        self._seconds: dict[str, list[float]] = {}
        self._answers: Answers | None = None
        self._places = 0

    def trials(self, *, pods: float, full_node: bool) -> Sequence[Trial]:
        """The trials.

        Args:
            pods: how many pods have their claims prepared with metadata, and as many without; 0 for none.
            full_node: whether there is one with as many pods as the node takes.
        """
        real = tuple(shape for shape in self._ground.plan.main.pods if shape.place is Place.REAL)
        made = []
        if pods and real:
            made += [
                Trial(
                    name,
                    real,
                    rate=_RATE,
                    warm_up=0,
                    seconds=pods / _RATE,
                    hold=0.2,
                    drain=60,
                    last_stage=Stage.RUNNING,
                )
                for name in (WITHOUT, WITH)
            ]
        if full_node:
            self._places = self._count_places()
            plain = PodShape(
                name="plain", via=Via.PLAIN, place=Place.REAL, namespaces=list(real[0].namespaces)
            )
            made.append(
                Trial(
                    FULL,
                    (plain,),
                    rate=0,
                    warm_up=0,
                    seconds=1,
                    hold=_HOLD_SECONDS,
                    drain=300,
                    bursts=(Burst(at=0, pods=self._places),),
                    last_stage=Stage.RUNNING,
                    saturates=True,
                )
            )
        return made

    def before(self, trial: Trial) -> None:
        """Turn metadata off or on."""
        if trial.name in (WITH, WITHOUT):
            self._driver.client.set_metadata(enabled=trial.name == WITH)
            _, self._sequence = prepare_seconds(self._ground.cluster, 0)

    def act(self, trial: Trial, clock: Clock) -> None:
        """Once the node is full, ask its kubelet."""
        if trial.name != FULL:
            return
        namespace = self._ground.namespaces[trial.pods[0].namespaces[0]]
        while self._running(namespace) < self._places:
            if not clock.pause(0.5):
                return
        self._ground.say(f"{self._places} pods run on the node: its pod resources API is asked")
        prober = Prober(self._ground.cluster.nodes[0].kubelet_dir)
        prober.start()
        clock.pause(_PROBE_SECONDS)
        self._answers = prober.stop()

    def judge(self, trial: Trial) -> Findings:
        """The figures of one trial."""
        findings = Findings()
        if trial.name in (WITH, WITHOUT):
            seconds, _ = prepare_seconds(self._ground.cluster, self._sequence)
            self._seconds[trial.name] = seconds
            if trial.name == WITH and WITHOUT in self._seconds:
                findings.requirements.append(added(self._seconds[WITHOUT], seconds))
        elif trial.name == FULL:
            findings.requirements.append(answered(self._answers, self._places))
        return findings

    def clean(self) -> None:
        """Metadata is on by default."""
        if self._seconds or self._sequence:
            self._driver.client.set_metadata(enabled=True)

    def _count_places(self) -> int:
        node = self._ground.cluster.nodes[0].name
        allocatable = int(self._ground.admin.get(NODES, node)["status"]["allocatable"]["pods"])
        there = len(self._ground.admin.list(PODS, fields=f"spec.nodeName={node}"))
        return max(1, allocatable - there - _RESERVED_PODS)

    def _running(self, namespace: str) -> int:
        pods = self._ground.observer.list(PODS, namespace, fields="status.phase=Running")
        node = self._ground.cluster.nodes[0].name
        return sum(1 for pod in pods if pod["spec"]["nodeName"] == node)


def added(without: Sequence[float], with_: Sequence[float]) -> RequirementResult:
    """MD-14, from the seconds of calls to prepare without and with metadata."""
    figures: dict[str, Figure] = {"calls": figure(min(len(without), len(with_)))}
    p99 = percentile(without, 99), percentile(with_, 99)
    for name, value in zip(("off", "on"), p99, strict=True):
        if value is not None:
            figures[f"p99-{name}"] = figure(value, "s")
    if p99[0] is None or p99[1] is None or min(len(without), len(with_)) < FEWEST_CALLS:
        message = f"{len(without)} and {len(with_)} calls are too few for a p99; it takes {FEWEST_CALLS}"
        return requirement("MD-14", Result.SKIPPED, message, **figures)
    more = p99[1] - p99[0]
    fine = more < MOST_ADDED
    message = (
        f"expected: metadata adds less than {MOST_ADDED * 1e3:g} ms (p99)\nobserved: {more * 1e3:.1f} ms"
    )
    return requirement("MD-14", Result.PASS if fine else Result.FAIL, "" if fine else message, **figures)


def answered(answers: Answers | None, pods: int) -> RequirementResult:
    """PRS-05, from the answers of a kubelet with so many pods."""
    if answers is None or not answers.seconds:
        return requirement("PRS-05", Result.SKIPPED, f"the {pods} pods did not all run: nothing was asked")
    calls = len(answers.seconds) + len(answers.failures)
    slow = percentile(answers.seconds, 99) or 0.0
    failed = len(answers.failures) / calls
    fine = slow <= ANSWERED_WITHIN and failed < MOST_FAILED
    message = (
        f"expected: 99 % within {ANSWERED_WITHIN * 1e3:g} ms, less than {MOST_FAILED:.1%} failed\n"
        f"observed: {slow * 1e3:.1f} ms, {len(answers.failures)} of {calls} failed"
    )
    return requirement(
        "PRS-05",
        Result.PASS if fine else Result.FAIL,
        "" if fine else message,
        pods=figure(pods),
        calls=figure(calls),
        failed=figure(len(answers.failures)),
        p99=figure(slow, "s"),
    )
