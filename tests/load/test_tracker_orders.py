"""The same lives told in every order that two watches, the answers and a replay allow."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from load.histogram import LatencyHistogram
from load.model import Cause, Stage
from load.tracker import Tracker
from tests.load.scene import latencies
from tests.load.world import EVICTION, Object, World, kind, orders

DRAIN_END = 1000.0
Step = Callable[[float], None]


@dataclasses.dataclass
class Life:
    """What one pod goes through, and how it must end."""

    pods: list[tuple[str, Object]] = dataclasses.field(default_factory=list)
    claims: list[tuple[str, Object]] = dataclasses.field(default_factory=list)
    status: int = 201
    ours: bool = False
    """The generator's delete comes once the pod was seen bound."""
    cause: Cause = Cause.COMPLETED


def _life(world: World, name: str, fate: Cause) -> Life:
    life = Life(cause=fate)
    if fate in (Cause.APF_REJECTED, Cause.UNREACHABLE):
        life.status = 429 if fate is Cause.APF_REJECTED else 0
        return life
    pod, claim = world.pod(name), world.claim(name)
    life.pods.append(("ADDED", pod))
    if fate is Cause.NO_CLAIM:
        return life
    life.claims.append(("ADDED", claim))
    pod = world.named(pod, claim["metadata"]["name"])
    life.pods.append(("MODIFIED", pod))
    if fate is Cause.NOT_ALLOCATED:
        return life
    claim = world.allocated(claim, f"device-of-{name}")
    life.claims.append(("MODIFIED", claim))
    pod = world.bound(pod)
    life.pods.append(("MODIFIED", pod))
    if fate is Cause.EVICTED:
        pod = world.next(pod, conditions=[EVICTION])
        life.pods += [("MODIFIED", pod), ("DELETED", world.terminating(pod))]
    else:
        life.ours = True
        life.pods.append(("DELETED", world.next(pod)))
    if fate is not Cause.NOT_RELEASED:
        claim = world.released(claim)
        life.claims += [("MODIFIED", claim), ("DELETED", world.terminating(claim))]
    return life


def _streams(tracker: Tracker, lives: dict[str, Life], rng: random.Random) -> list[list[Step]]:
    """Answers, the watch on pods and the watch on claims: each is in order, among themselves they are not."""
    answers: list[Step] = []
    for name, life in lives.items():
        fields = {"status": life.status, "apf": life.status == 429}
        answers.append(partial(_answer, tracker, name, fields))
    rng.shuffle(answers)
    pods: list[Step] = []
    for name, told in _shuffled({name: life.pods for name, life in lives.items()}, rng):
        type_, obj = told[-1]
        if type_ == "DELETED" and lives[name].ours:
            pods.append(partial(tracker.delete_sent, name))
        pods.append(partial(tracker.pod_event, type_, obj))
        if rng.random() < 0.2:
            pods.append(partial(tracker.pod_event, "ADDED", rng.choice(told)[1]))
    claims: list[Step] = []
    for _, told in _shuffled({name: life.claims for name, life in lives.items()}, rng):
        claims.append(partial(tracker.claim_event, *told[-1]))
        if rng.random() < 0.2:
            claims.append(partial(tracker.claim_event, *rng.choice(told)))
    return [answers, pods, claims]


def _answer(tracker: Tracker, name: str, fields: dict[str, Any], at: float) -> None:
    tracker.answered(name, at, **fields)


def _shuffled(
    lives: dict[str, list[tuple[str, Object]]], rng: random.Random
) -> Iterator[tuple[str, list[tuple[str, Object]]]]:
    """One watch on all of them: whose event comes next is random, and resource versions grow as it goes.

    Yields:
        the name, and its events so far, the new one last.
    """
    order = [name for name, told in lives.items() for _ in told]
    rng.shuffle(order)
    told: dict[str, list[tuple[str, Object]]] = {name: [] for name in lives}
    for version, name in enumerate(order, start=1):
        type_, obj = lives[name][len(told[name])]
        stamped = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}
        told[name].append((type_, stamped))
        yield name, list(told[name])


def _interleave(streams: list[list[Step]], rng: random.Random) -> Iterator[Step]:
    order = [number for number, stream in enumerate(streams) for _ in stream]
    rng.shuffle(order)
    cursors = [iter(stream) for stream in streams]
    return (next(cursors[number]) for number in order)


FATES = [
    Cause.COMPLETED,
    Cause.COMPLETED,
    Cause.EVICTED,
    Cause.NO_CLAIM,
    Cause.NOT_ALLOCATED,
    Cause.NOT_RELEASED,
    Cause.APF_REJECTED,
    Cause.UNREACHABLE,
]


@pytest.mark.parametrize("seed", range(30))
def test_every_life_ends_as_it_should_in_whatever_order_it_is_told(seed: int) -> None:
    rng = random.Random(seed)
    gpu, world = kind(), World()
    tracker = Tracker(orders(gpu), started_at=0.0)
    fates = [rng.choice(FATES) for _ in range(rng.randint(1, 40))]
    lives = {name: _life(world, name, fate) for name, fate in zip(_names(), fates, strict=False)}
    clock = (number / 100 for number in itertools.count(1))
    for name in lives:
        tracker.intended(name, "ns", gpu, 0.0)
        tracker.sent(name, 0.0)
    for step in _interleave(_streams(tracker, lives, rng), rng):
        step(next(clock))
        snapshot = tracker.snapshot(next(clock), "", 0)
        assert snapshot.in_flight == tracker.open_pods() <= snapshot.accepted
        assert sum(snapshot.causes.values()) + tracker.open_pods() <= len(fates)

    findings = tracker.finish(DRAIN_END)

    expected = {fate: fates.count(fate) for fate in set(fates)}
    assert findings.causes == expected
    assert findings.intended == len(fates)
    assert not [v for v in findings.violations if not v.invariant.startswith("leaked")]
    assert len(findings.violations) == expected.get(Cause.NOT_RELEASED, 0)
    accepted = len(fates) - expected.get(Cause.APF_REJECTED, 0) - expected.get(Cause.UNREACHABLE, 0)
    unbound = expected.get(Cause.NO_CLAIM, 0) + expected.get(Cause.NOT_ALLOCATED, 0)
    assert _counts(latencies(findings, Stage.BOUND)) == (accepted, unbound)
    assert _counts(latencies(findings, Stage.ACCEPTED)) == (
        accepted + expected.get(Cause.UNREACHABLE, 0),
        expected.get(Cause.UNREACHABLE, 0),
    )
    ours = expected.get(Cause.COMPLETED, 0) + expected.get(Cause.NOT_RELEASED, 0)
    assert _counts(latencies(findings, Stage.GONE)) == (ours, 0)
    assert _counts(latencies(findings, Stage.RELEASED)) == (ours, expected.get(Cause.NOT_RELEASED, 0))


def _names() -> Iterator[str]:
    return (f"r1-w0-gpu-{number}" for number in itertools.count())


def _counts(histogram: LatencyHistogram) -> tuple[int, int]:
    return histogram.count, histogram.censored
