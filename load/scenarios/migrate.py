"""One resource name from device plugins on some nodes, from DRA on the others; nodes flip under the churn.

A node flips as an operator would do it: it is cordoned, its pods end, the one side is taken away, the other
put up, and it is uncordoned. The device plugin half is what the scheduler sees of one, the capacity in the
node's status.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

import pydantic

from harness.errors import UsageError
from harness.kube import NODES, PODS, RESOURCE_SLICES, Object
from load.profiles.schema import Pools as PoolsOf
from load.profiles.schema import Via
from load.profiles.trial import MAIN, Trial
from load.scenarios import capacity
from load.scenarios.follow import Follower
from load.scenarios.interface import Clock, Done, Findings, Ground, Scenario, ScenarioSpec
from load.scenarios.pools import Pools
from load.scenarios.quiet import BaseScenario
from load.scenarios.readings import figure

if TYPE_CHECKING:
    from load.profiles.plan import Plan

_EMPTY_SECONDS = 30.0


class Migrate(ScenarioSpec):
    """Nodes that flip from device plugin to DRA, and back."""

    mixed: ClassVar[bool] = True

    kind: Literal["migrate"]
    plugin: float = pydantic.Field(default=0.5, ge=0, le=1)
    """Share of the simulated nodes that begin with a device plugin."""
    step: float = pydantic.Field(default=0.1, gt=0, le=1)
    """Share of all simulated nodes that flips at a time."""

    def check(self, plan: Plan) -> None:
        """The pods ask for the name that both sides serve, and the nodes can be spared."""
        if plan.profile.pools is not PoolsOf.OWN:
            raise UsageError(f"{plan.source}: pools: expected `own` for this scenario, it moves them")
        if wrong := [shape.name for shape in plan.main.pods if shape.via is not Via.EXPLICIT]:
            raise UsageError(
                f"{plan.source}: pods.{wrong[0]}.via: expected `explicit`, which both sides serve"
            )
        if plan.sizing.prefill:
            raise UsageError(
                f"{plan.source}: sizes.{plan.size}.prefill: expected 0, nodes have to be emptied"
            )
        spared = math.ceil(self.step * plan.sizing.simulated_nodes) * plan.devices_per_node
        if plan.main.devices_in_use() > plan.devices - spared:
            raise UsageError(
                f"{plan.source}: scenario.step: the other nodes can't take the pods of so many at a time"
            )

    def make(self) -> Scenario:
        """One run's."""
        return _Migrating(self)


@dataclass(frozen=True)
class Flip:
    """Some nodes that change sides, not before that moment after the start."""

    at: float
    nodes: tuple[str, ...]
    to_plugin: bool


def flips(spec: Migrate, nodes: Sequence[str], trial: Trial) -> list[Flip]:
    """All flips: the plugin nodes go over to DRA step by step, then the same ones come back."""
    moving = list(nodes[: round(spec.plugin * len(nodes))])
    size = max(1, round(spec.step * len(nodes)))
    groups = [tuple(moving[start : start + size]) for start in range(0, len(moving), size)]
    order = [(group, False) for group in groups] + [(group, True) for group in reversed(groups)]
    pause = trial.seconds / (len(order) + 1)
    return [
        Flip(trial.warm_up + pause * (index + 1), group, to_plugin)
        for index, (group, to_plugin) in enumerate(order)
    ]


@dataclass
class Occupancy:
    """Pods on each node, by which side serves them, from the watch: so many never exceed a node's devices."""

    devices: int
    over: list[str] = field(default_factory=list)
    most: int = 0
    """The most pods at a time on any node."""
    bound: dict[str, list[float]] = field(default_factory=lambda: {"plugin": [], "dra": []})
    """Seconds from first seen to bound, by side."""
    _on: dict[str, tuple[str, int]] = field(default_factory=dict)
    _seen: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def pod(self, kind: str, obj: Object, at: float) -> None:
        """A watch event of a pod."""
        uid, node = obj["metadata"]["uid"], obj["spec"].get("nodeName", "")
        with self._lock:
            if kind == "DELETED":
                self._on.pop(uid, None)
                self._seen.pop(uid, None)
                return
            seen = self._seen.setdefault(uid, at)
            if not node or uid in self._on:
                return
            side = "dra" if obj.get("status", {}).get("extendedResourceClaimStatus") else "plugin"
            self._on[uid] = (node, _amount(obj))
            self.bound[side].append(at - seen)
            held = sum(amount for where, amount in self._on.values() if where == node)
            self.most = max(self.most, held)
            if held > self.devices:
                self.over.append(f"{held} devices of {node} are in use, it has {self.devices}")

    def on(self, node: str) -> int:
        """How many pods are on a node now."""
        with self._lock:
            return sum(1 for where, _ in self._on.values() if where == node)


class _Migrating(BaseScenario):
    def __init__(self, spec: Migrate) -> None:
        self._spec = spec
        self._pools: Pools | None = None
        self._follower: Follower | None = None
        self._occupancy = Occupancy(0)
        self._plugin: set[str] = set()
        self._cordoned: set[str] = set()
        self._flipped: Counter[str] = Counter()
        self._mismatches: list[str] = []
        self._planned = 0

    def prepare(self, ground: Ground) -> None:
        super().prepare(ground)
        nodes = ground.simulated
        self._plugin = set(nodes[: round(self._spec.plugin * len(nodes))])
        self._pools = Pools(ground.kube, ground.driver, ground.prefix, ground.labels)
        self._pools.publish(
            [node for node in nodes if node not in self._plugin], ground.plan.devices_per_node
        )
        count = ground.plan.devices_per_node
        capacity.on_all(ground.kube, sorted(self._plugin), ground.names.extended_resource, count)

    def before(self, trial: Trial) -> None:
        self._occupancy = Occupancy(self.ground.plan.devices_per_node)
        self._follower = Follower(
            self.ground.observer, PODS, list(self.ground.namespaces.values()), self._occupancy.pod
        )
        self._follower.start()

    def act(self, trial: Trial, clock: Clock) -> None:
        """Flip group after group, and look at the capacity after each."""
        if trial.name != MAIN:
            return
        plan = flips(self._spec, self.ground.simulated, trial)
        self._planned = len(plan)
        for flip in plan:
            if not clock.until(flip.at):
                return
            if not self._flip(flip, clock):
                return
            self._compare_capacity()

    def judge(self, done: Done) -> Findings:
        findings = Findings()
        if self._follower:
            self._follower.stop()
            if self._follower.cuts:
                findings.faults.append(f"pods may have been missed: {self._follower.cuts[0]}")
        occupancy = self._occupancy
        findings.figures["double-counted"] = figure(len(occupancy.over))
        findings.figures["capacity-off"] = figure(len(self._mismatches))
        findings.figures["flips"] = figure(sum(self._flipped.values()))
        findings.figures["flips-missing"] = figure(self._planned - sum(self._flipped.values()))
        for side, delays in occupancy.bound.items():
            ordered = sorted(delays)
            findings.figures[f"{side}.pods"] = figure(len(ordered))
            if ordered:
                findings.figures[f"{side}.seen-to-bound.p99"] = figure(
                    ordered[math.ceil(len(ordered) * 0.99) - 1], "s"
                )
        findings.notes += [*occupancy.over[:10], *self._mismatches[:10]]
        return findings

    def clean(self) -> None:
        if self._follower:
            self._follower.stop()
        if self._pools is None:
            return
        for node in sorted(self._cordoned):
            self._cordon(node, False)
        self._pools.clean()
        capacity.on_all(self.ground.kube, self.ground.simulated, self.ground.names.extended_resource, None)

    def _flip(self, flip: Flip, clock: Clock) -> bool:
        """Move some nodes over; False if the trial ended meanwhile."""
        for node in flip.nodes:
            self._cordon(node, True)
        deadline = time.monotonic() + _EMPTY_SECONDS
        while any(self._occupancy.on(node) for node in flip.nodes):
            if time.monotonic() > deadline or not clock.pause(0.1):
                return False
        for node in flip.nodes:
            self._move(node, flip.to_plugin)
            self._cordon(node, False)
        self._flipped["plugin" if flip.to_plugin else "dra"] += 1
        side = "device plugin" if flip.to_plugin else "DRA"
        self.ground.say(f"{len(flip.nodes)} nodes went over to {side}")
        return True

    def _move(self, node: str, to_plugin: bool) -> None:
        assert self._pools is not None, "prepare() comes first"
        kube, count = self.ground.kube, self.ground.plan.devices_per_node
        if to_plugin:
            self._pools.withdraw(node)
            capacity.advertise(kube, node, self.ground.names.extended_resource, count)
            self._plugin.add(node)
        else:
            capacity.advertise(kube, node, self.ground.names.extended_resource, 0)
            self._pools.publish([node], count)
            self._plugin.discard(node)

    def _cordon(self, node: str, on: bool) -> None:
        self.ground.kube.patch(NODES, node, {"spec": {"unschedulable": on or None}})
        (self._cordoned.add if on else self._cordoned.discard)(node)

    def _compare_capacity(self) -> None:
        """What the API says is there, of both sides, against what is."""
        kube, count = self.ground.kube, self.ground.plan.devices_per_node
        sliced: Counter[str] = Counter()
        for slice_ in kube.list(RESOURCE_SLICES, fields=f"spec.driver={self.ground.driver}"):
            sliced[slice_["spec"]["nodeName"]] += len(slice_["spec"]["devices"])
        for node in kube.list(NODES):
            name = node["metadata"]["name"]
            if name not in self.ground.simulated:
                continue
            plugin = int(node["status"].get("allocatable", {}).get(self.ground.names.extended_resource, 0))
            wanted = (count, 0) if name in self._plugin else (0, count)
            if (plugin, sliced[name]) != wanted:
                self._mismatches.append(
                    f"{name}: {plugin} by its plugin and {sliced[name]} by DRA, not {wanted}"
                )


def _amount(pod: Object) -> int:
    """Devices that a pod asks for by extended resource names (all amounts that aren't of the node's own)."""
    total = 0
    for container in pod["spec"]["containers"]:
        requests = container.get("resources", {}).get("requests", {})
        total += sum(int(amount) for name, amount in requests.items() if "/" in name)
    return total
