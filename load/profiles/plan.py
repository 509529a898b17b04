"""A profile made concrete: one size, one limit set, the user's own amounts, and the check that it can be."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pydantic

from harness.errors import EnvironmentBlocked, UsageError
from load.profiles.loader import first_error
from load.profiles.schema import Criterion, Fill, Place, Pools, Profile, Sizing
from load.profiles.trial import MAIN, SETTLE_SECONDS, Trial
from load.request import LimitSet, LoadRequest, Size
from load.scenarios.interface import ScenarioSpec
from load.scenarios.registry import scenario_spec

BUNDLED_DEVICES_PER_NODE = 8
"""The bundled driver's default inventory, which simulated nodes have too."""
_SHORTEST_WARM_UP = 2.0
_SHORTEST_TRIAL = 3.0


@dataclass(frozen=True)
class Plan:
    """All that is to be done, decided before anything is made."""

    profile: Profile
    source: str
    """The profile's file or name, for messages."""
    size: Size
    limits: LimitSet
    sizing: Sizing
    """With the user's own amounts."""
    scenario: ScenarioSpec
    main: Trial
    further: tuple[Trial, ...]
    arms: tuple[str, ...] = ()
    """Only these arms of a sweep; all where empty."""
    left_out: tuple[str, ...] = ()
    """Names of further trials that the cluster can't have."""

    @property
    def criteria(self) -> tuple[Criterion, ...]:
        """Those that are asked in this size and limit set, and of no trial that is left out."""
        return tuple(
            each
            for each in self.profile.criteria
            if self.limits in each.limits
            and self.size in each.sizes
            and each.measure.partition(".")[0] not in self.left_out
        )

    @property
    def promises_api_latency(self) -> bool:
        """Whether the API server has to answer as its SLO says: nobody holds it up on purpose."""
        starved = self.scenario.starves or self.main.saturates
        return self.limits is LimitSet.OPEN and not starved

    @property
    def devices_per_node(self) -> int:
        """Devices of each simulated node."""
        own = self.profile.pools is Pools.OWN
        return self.profile.devices_per_node if own else BUNDLED_DEVICES_PER_NODE

    @property
    def devices(self) -> int:
        """Devices on the simulated nodes."""
        return self.sizing.simulated_nodes * self.devices_per_node

    @property
    def prefilled_devices(self) -> int:
        """Devices that pods hold from before the load to its end."""
        return sum(self.filled(self.devices_per_node, self.sizing.simulated_nodes))

    def filled(self, per_node: int, nodes: int) -> list[int]:
        """How many devices are in use beforehand on each of so many nodes that have so many each."""
        if self.profile.fill is Fill.NODES:
            full = math.ceil(round(nodes * self.sizing.prefill, 9))
            return [per_node] * full + [0] * (nodes - full)
        return [
            math.ceil(round((node + 1) * per_node * self.sizing.prefill, 9))
            - math.ceil(round(node * per_node * self.sizing.prefill, 9))
            for node in range(nodes)
        ]

    def room(self, devices: int) -> int:
        """How many pods that take so many devices each the simulated nodes have room for at a time."""
        per_node, nodes = self.devices_per_node, self.sizing.simulated_nodes
        return (
            sum((per_node - used) // devices for used in self.filled(per_node, nodes)) if devices else 10**9
        )

    @property
    def free_devices(self) -> int:
        """Devices that are left for the churn."""
        return self.devices - self.prefilled_devices

    def without_nodes(self) -> Plan:
        """What is left on a cluster none of whose nodes is on this machine: further trials on real nodes go.

        Raises:
            EnvironmentBlocked: the main trial or the scenario needs such nodes.
        """
        if any(shape.place is Place.REAL for shape in self.main.pods) or self.scenario.needs_nodes(self):
            raise EnvironmentBlocked(
                f"{self.source}: it has pods on real nodes, whose folders have to be on this machine; "
                "`--provider local` or `kind` makes such clusters"
            )
        real = [each for each in self.further if any(shape.place is Place.REAL for shape in each.pods)]
        return dataclasses.replace(
            self,
            further=tuple(each for each in self.further if each not in real),
            left_out=tuple(each.name for each in real),
        )

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Names of the run's namespaces, without the run's own part, in order of mention."""
        found = [name for shape in self.profile.pods for name in shape.namespaces]
        return tuple(dict.fromkeys(found))


def make_plan(profile: Profile, request: LoadRequest) -> Plan:
    """Decide everything, or refuse.

    Raises:
        UsageError: a key of the scenario is wrong, or the rate can't be had with these nodes.
    """
    written = profile.sizes[request.size]
    sizing = _with_own_amounts(written, request)
    plan = Plan(
        profile=profile,
        source=request.profile,
        size=request.size,
        limits=request.limits or profile.limits,
        sizing=sizing,
        scenario=_scenario(profile, written, request),
        main=_main(profile, sizing),
        further=_further(profile, sizing),
        arms=tuple(request.arms),
    )
    _require_arms(plan)
    for trial in (plan.main, *plan.further):
        _require_one_rate(plan, trial)
        require_devices(plan, trial)
    plan.scenario.check(plan)
    return plan


def _main(profile: Profile, sizing: Sizing) -> Trial:
    return Trial(
        name=MAIN,
        pods=profile.shapes(()),
        rate=sizing.rate,
        warm_up=sizing.warm_up,
        seconds=sizing.seconds,
        stages=tuple(sizing.stages),
        hold=sizing.hold,
        drain=sizing.drain,
        bursts=tuple(sizing.bursts),
        saturates=profile.saturates,
    )


def _further(profile: Profile, sizing: Sizing) -> tuple[Trial, ...]:
    return tuple(
        Trial(
            name=each.name,
            pods=profile.shapes(each.pods),
            rate=each.rate,
            warm_up=each.warm_up,
            seconds=each.seconds,
            stages=tuple(each.stages),
            hold=each.hold,
            drain=each.drain,
        )
        for each in sizing.trials
    )


def require_devices(plan: Plan, trial: Trial) -> None:
    """Refuse a trial whose pods would wait for devices, and so measure nothing but that.

    Raises:
        UsageError: naming the key, and what would do.
    """
    if not any(shape.place is Place.SIMULATED for shape in trial.pods):
        return
    if not plan.sizing.simulated_nodes:
        raise UsageError(f"{plan.source}: simulated_nodes: expected at least 1, its pods run on them")
    key = _key(trial, "rate")
    most = max(trial.pods, key=lambda shape: shape.devices_per_pod)
    pods = math.ceil(trial.rate * (trial.hold + SETTLE_SECONDS) * trial.share(most))
    if most.devices_per_pod > 1 and pods > plan.room(most.devices_per_pod):
        raise UsageError(
            f"{plan.source}: sizes.{plan.size}.{key}: {trial.rate:g} pods/s, held {trial.hold:g} s, are "
            f"about {pods} {most.name} pods at a time; {plan.sizing.simulated_nodes} simulated nodes have "
            f"room for {plan.room(most.devices_per_pod)}, with {most.devices_per_pod} devices each on one "
            "node. Lower the rate, the hold or the prefill, or take more nodes"
        )
    needed = math.ceil(trial.devices_in_use())
    if needed > plan.free_devices:
        raise UsageError(
            f"{plan.source}: sizes.{plan.size}.{key}: {trial.rate:g} pods/s, held {trial.hold:g} s, "
            f"need about {needed} devices at a time; {plan.free_devices} of {plan.devices} on "
            f"{plan.sizing.simulated_nodes} simulated nodes are free. Lower the rate, the hold or the "
            "prefill, or take more nodes"
        )


def _require_one_rate(plan: Plan, trial: Trial) -> None:
    if trial.stages and plan.scenario.one_rate:
        raise UsageError(
            f"{plan.source}: sizes.{plan.size}.{_key(trial, 'stages')}: the scenario {plan.scenario.kind} "
            "takes a trial to have one rate all the time"
        )


def _key(trial: Trial, key: str) -> str:
    """A key of a trial, from its size's on."""
    return key if trial.name == MAIN else f"trials.{trial.name}.{key}"


def _with_own_amounts(sizing: Sizing, request: LoadRequest) -> Sizing:
    amounts = sizing.model_dump()
    for key in ("nodes", "simulated_nodes"):
        if getattr(request, key) is not None:
            amounts[key] = getattr(request, key)
    if request.rate is not None:
        if not sizing.rate:
            raise UsageError("--rate: the profile has bursts only, and no rate to change")
        if not 0 < request.rate < math.inf:
            raise UsageError(f"--rate {request.rate:g}: expected more than 0")
        factor = request.rate / sizing.rate
        for each in (amounts, *amounts["trials"]):
            _scale(each, ("rate", "start"), factor)
        amounts["rate"] = request.rate
        for burst in amounts["bursts"]:
            burst["pods"] = max(1, round(burst["pods"] * factor))
    if request.seconds is not None:
        factor = request.seconds / sizing.seconds
        _scale(amounts, ("seconds",), factor)
        amounts["seconds"] = request.seconds
        amounts["warm_up"] = _shortened(sizing.warm_up, factor, _SHORTEST_WARM_UP)
        for trial in amounts["trials"]:
            shortened = _shortened(trial["seconds"], factor, _SHORTEST_TRIAL)
            _scale(trial, ("seconds",), shortened / trial["seconds"])
    try:
        return Sizing.model_validate(amounts)
    except pydantic.ValidationError as error:
        key, _, expected = first_error(error).partition(": ")
        raise UsageError(f"--{key.replace('_', '-')}: {expected}") from error


def _scale(load: dict[str, Any], keys: Iterable[str], factor: float) -> None:
    """Multiply amounts of a trial, and of each of its stages."""
    for part in (load, *load["stages"]):
        for key in keys:
            if part.get(key) is not None:
                part[key] *= factor


def _shortened(seconds: float, factor: float, least: float) -> float:
    """Shorter by a factor, but not below the least; never longer."""
    return min(seconds, max(least, seconds * factor))


def _scenario(profile: Profile, sizing: Sizing, request: LoadRequest) -> ScenarioSpec:
    merged = {**profile.scenario, **sizing.scenario}
    if request.seconds is not None:
        merged["length"] = request.seconds / sizing.seconds
    try:
        return scenario_spec(merged)
    except pydantic.ValidationError as error:
        raise UsageError(f"{request.profile}: {first_error(error, 'scenario')}") from error


def _require_arms(plan: Plan) -> None:
    known = plan.scenario.arm_names()
    for arm in plan.arms:
        if not known:
            raise UsageError(f"--arm {arm}: the profile {plan.profile.name} has no arms")
        if arm not in known:
            raise UsageError(f"--arm {arm}: expected one of {', '.join(known)}")
    if plan.arms and set(plan.arms) <= set(known[:1]):
        raise UsageError(
            f"--arm {known[0]}: it runs in any case, and shows nothing without another; expected one of "
            f"{', '.join(known[1:])}"
        )
