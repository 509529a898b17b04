"""The gate DRAListTypeAttributes off in one component, and on again: LST-06 and LST-07."""

from __future__ import annotations

import pytest

from clusters.interface import Cluster, Profile
from clusters.metrics import APISERVER, SCHEDULER
from harness.errors import RequirementFailed
from harness.kube import RESOURCE_SLICES, ApiError, Object
from suites.claims import NO_FIT, allocated_to
from suites.control import Control
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal, symptom
from suites.list_attributes.values import Groups, ask, device_names, start
from suites.marks import deviation, exclusive, requirement
from suites.workload import Workloads

GATE = "DRAListTypeAttributes"
_OVERLAP = "KEP-5491 distinctAttribute under skew"
_NO_VALUE = ("must specify one of", "exactly one value must be specified")


class Switch:
    """The gate of one component, switched by restarting that; an existing state is left as it is."""

    def __init__(self, control: Control, cluster: Cluster, component: str) -> None:
        self._control = control
        self._component = component
        self._own = self._now = cluster.gates.get(GATE, cluster.profile is Profile.ALPHA)

    def set(self, on: bool) -> None:
        """Turn the gate on or off."""
        if on is not self._now:
            self._control.restart(self._component, None if on is self._own else {GATE: on})
            self._now = on


def _attributes(slices: list[Object]) -> dict[str, Object]:
    return {device["name"]: device["attributes"] for slice_ in slices for device in slice_["spec"]["devices"]}


@requirement("LST-06")
@exclusive
def test_stored_lists_are_kept(
    cluster: Cluster, control: Control, drivers: Drivers, evidence: Observations
) -> None:
    """On, off, on: lists that are stored stay, also when their slice is written; nothing new brings any."""
    groups: Groups = {"numbers": [{"ints": [1, 2]}], "texts": [{"strings": ["a"]}]}
    stored = {"numbers-0": {"numbers": {"ints": [1, 2]}}, "texts-0": {"texts": {"strings": ["a"]}}}
    gate = Switch(control, cluster, APISERVER)
    gate.set(True)
    driver, _ = start(drivers, cluster, groups)
    expect_equal("lists are stored while the gate is on", _attributes(drivers.slices(driver)), stored)

    gate.set(False)

    (slice_,) = drivers.slices(driver)
    evidence("gate off: the stored slice", _attributes([slice_]))
    expect_equal("lists are still there", _attributes([slice_]), stored, slice_)
    slice_["metadata"].setdefault("annotations", {})["dra-harness.dev/touched"] = "yes"
    written = drivers.kube.replace(RESOURCE_SLICES, slice_)
    evidence("gate off: after writing the slice again", _attributes([written]))
    expect_equal("writing the slice keeps its lists", _attributes([written]), stored, written)
    _refused(drivers, written, evidence)

    gate.set(True)

    (slice_,) = drivers.slices(driver)
    evidence("gate on again", _attributes([slice_]))
    expect_equal("lists are there once the gate is on again", _attributes([slice_]), stored, slice_)


def _refused(drivers: Drivers, stored: Object, evidence: Observations) -> None:
    """A slice like a stored one, but new, is refused for its attributes that have no value left."""
    new = {
        **{key: stored[key] for key in ("apiVersion", "kind", "spec")},
        "metadata": {"name": f"{stored['metadata']['name']}-new"},
    }
    with pytest.raises(ApiError) as refused:
        drivers.kube.create(RESOURCE_SLICES, new, dry_run=True)
    message = refused.value.message
    evidence("gate off: a new slice with lists", message)
    expect_equal("status of the refusal", refused.value.status, 422)
    expect("it is refused for its attributes", any(text in message for text in _NO_VALUE), message)


@requirement("LST-06", "LST-08")
@exclusive
def test_a_driver_with_lists_is_refused(
    cluster: Cluster, control: Control, drivers: Drivers, evidence: Observations
) -> None:
    """Gate off: a driver set to publish numaNode as a list ends and says why; set to integers, it starts."""
    Switch(control, cluster, APISERVER).set(False)

    lists = {"devices": [{"preset": "h200", "topology": {"numa": "ints"}}]}
    with pytest.raises(RequirementFailed) as ended:
        drivers.start(suffix="lists", nodes=cluster.nodes[:1], inventory=lists)
    driver = drivers.start(nodes=cluster.nodes[:1])

    message = ended.value.observed
    evidence("what the driver with lists says", message)
    expect("it says what was refused", any(text in message for text in _NO_VALUE), message)
    refused = drivers.kube.list(RESOURCE_SLICES, fields=f"spec.driver={drivers.hosted[0].name}")
    expect_equal("slices of the driver with lists", refused, [])
    expect_equal("slices of the driver without", len(drivers.slices(driver)), 1)


NEED_LISTS: Groups = {
    "lists": [{"ints": [1, 2]}, {"ints": [2, 3]}],
    "mixed": [{"int": 2}, {"ints": [2, 3]}],
    "reversed": [{"ints": [2, 3]}, {"int": 2}],
}
"""Have a value in common, which only a scheduler that knows lists can see."""

NEVER: Groups = {
    "apart": [{"ints": [1, 2]}, {"ints": [3]}],
    "outside": [{"int": 3}, {"ints": [1, 2]}],
}
"""Have none."""

DISJOINT: Groups = {"disjoint": [{"ints": [1]}, {"ints": [2]}]}
SINGLE: Groups = {"single": [{"int": 5}, {"int": 5}]}


@requirement("LST-07")
@exclusive
def test_without_the_gate_lists_wait(
    cluster: Cluster, control: Control, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Scheduler's gate off: pods that need lists stay Pending, others run; gate on: those that match run."""
    groups: Groups = {**NEED_LISTS, **NEVER, **DISJOINT, **SINGLE}
    source = start(drivers, cluster, groups)
    gate = Switch(control, cluster, SCHEDULER)
    gate.set(False)

    for group in groups:
        ask(workloads, group, 2, "distinctAttribute" if group in DISJOINT else "matchAttribute", source)
    waiting = [group for group in groups if group not in SINGLE]
    refusals = {group: workloads.wait_unschedulable(group, NO_FIT) for group in waiting}
    workloads.wait_running("single")

    evidence("gate off: what the scheduler says", refusals)
    evidence("gate off: devices with equal single values", allocated_to(workloads, "single"))
    gate.set(True)
    for group in (*NEED_LISTS, *DISJOINT):
        workloads.wait_running(group)
        evidence(f"gate on: {group}", allocated_to(workloads, group))
        expect_equal("both devices", allocated_to(workloads, group), device_names(group, 2))
    for group in NEVER:
        evidence(f"gate on: {group}", workloads.wait_unschedulable(group, NO_FIT))


@requirement("LST-07")
@exclusive
@deviation(_OVERLAP)
def test_without_the_gate_nothing_overlaps_unseen(
    cluster: Cluster, control: Control, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Scheduler's gate off: a list and a single value that is in it are never taken for distinct."""
    groups: Groups = {"overlap": [{"ints": [1, 2]}, {"int": 1}]}
    source = start(drivers, cluster, groups)
    Switch(control, cluster, SCHEDULER).set(False)

    ask(workloads, "overlap", 2, "distinctAttribute", source)

    evidence("values", groups["overlap"])
    try:
        with symptom(_OVERLAP, "it was placed on"):
            evidence("what the scheduler says", workloads.wait_unschedulable("overlap", NO_FIT))
    finally:
        evidence("devices allocated", allocated_to(workloads, "overlap"))
