"""Rules taint devices from outside: TNT-02, TNT-05, TNT-06 and TNT-09 to TNT-11."""

from __future__ import annotations

import datetime
import re

import pytest

from clusters.interface import Cluster
from harness.errors import EnvironmentBlocked
from harness.kube import RESOURCE_CLAIMS, KubeClient, Object
from harness.waiting import NotYet, wait_until
from suites.devices import allocated, given
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal, field, symptom
from suites.marks import deviation, exclusive, needs_nodes, requirement, without_driver
from suites.naming import Names
from suites.taints.support import (
    Bench,
    Rules,
    deleted_at,
    disruption,
    expect_evicted,
    expect_left_alone,
    now,
    parse_time,
    taint,
    tolerates,
    wait_evicted,
)
from suites.workload import Workloads


def _versions(slices: list[Object]) -> list[tuple[str, str]]:
    return sorted((each["metadata"]["name"], each["metadata"]["resourceVersion"]) for each in slices)


@requirement("TNT-02")
@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_rule_keeps_pods_away(
    effect: str, drivers: Drivers, workloads: Workloads, rules: Rules, evidence: Observations
) -> None:
    """While the rule is there the device needs a toleration; the driver's slices are as they were."""
    bench = Bench(drivers, workloads, 2)
    before = drivers.slices(bench.driver)
    rule = rules.create("broken", taint(effect), {"driver": bench.driver.name, "device": "gpu-0"})
    bench.settle(rules)

    refusal = bench.refuse("plain", slot=0)
    bench.run("tolerating", tolerates(effect=effect), slot=0)
    tolerating = given(workloads.report("tolerating"))
    bench.remove("tolerating")
    after = drivers.slices(bench.driver)
    rules.delete(rule)
    workloads.wait_running("plain")

    evidence("why the pod waits", refusal)
    evidence("device of the pod that tolerates", tolerating)
    evidence("slices and their versions before and after", [_versions(before), _versions(after)])
    expect_equal("device of the pod that tolerates", tolerating, ["gpu-0"])
    expect_equal("device of the other one, later", given(workloads.report("plain")), ["gpu-0"])
    expect_equal("versions of the driver's slices", _versions(after), _versions(before))


@requirement("TNT-02")
def test_a_rule_deletes_whom_it_should(
    drivers: Drivers, workloads: Workloads, rules: Rules, evidence: Observations
) -> None:
    """A NoExecute rule for the driver deletes the pod that doesn't tolerate it, NoSchedule none before."""
    bench = Bench(drivers, workloads, 2)
    plain = bench.run("plain")
    bench.run("tolerating", tolerates(effect="NoExecute"), tolerates(effect="NoSchedule"))
    rule = rules.create("broken", taint("NoSchedule"), {"driver": bench.driver.name})
    unmoved = rules.wait_condition(rule, "False")
    expect_left_alone(workloads, "plain")

    rule = rules.change(rule, effect="NoExecute")
    evicted = wait_evicted(workloads, plain)
    workloads.wait_gone("plain")
    rules.wait_condition(rule, "False")

    evidence("condition of the rule with NoSchedule", unmoved)
    evidence("rule that deletes", rule["spec"])
    evidence("condition of the deleted pod", disruption(evicted))
    times = (parse_time(_time_added(rule)), deleted_at(evicted))
    expect("the pod is deleted after the taint was added", times[0] <= times[1], times)
    expect_evicted(evicted)
    expect_left_alone(workloads, "tolerating")


@requirement("TNT-05")
def test_effect_none_is_a_dry_run(
    drivers: Drivers, workloads: Workloads, rules: Rules, evidence: Observations
) -> None:
    """Effect None touches nothing; once for each version of the rule it counts what NoExecute would do."""
    bench = Bench(drivers, workloads, 5)
    for name in ("one", "two"):
        bench.run(name)
    bench.run("tolerating", tolerates(effect="NoExecute"))

    rule = rules.create("dry", taint("None"), {"driver": bench.driver.name})
    first = rules.wait_condition(rule, "False")
    bench.settle(rules)
    bench.run("three")
    again = rules.wait_condition(rule, "False")
    changed = rules.change(rule, value="again")
    second = rules.wait_condition(changed, "False")

    evidence("condition with two pods that don't tolerate", first)
    evidence("condition once there are three", again)
    evidence("condition after a change of the rule", second)
    for condition, count in ((first, 2), (again, 2), (second, 3)):
        message = condition["message"]
        expect(f"the message says {count} pods", re.search(rf"\b{count} pods\b", message), message)
    expect_left_alone(workloads, "one", "two", "three", "tolerating")


@requirement("TNT-06")
def test_the_condition_follows_the_eviction(
    drivers: Drivers, workloads: Workloads, rules: Rules, evidence: Observations
) -> None:
    """True while a pod that tolerates the taint for a while is still to be deleted, False afterwards."""
    bench = Bench(drivers, workloads, 1)
    pod = bench.run("pod", tolerates(effect="NoExecute", seconds=6))

    rule = rules.create("broken", taint("NoExecute"), {"driver": bench.driver.name})
    during = rules.wait_condition(rule, "True", deadline=5)
    expect_left_alone(workloads, "pod")
    changed = rules.change(rule, value="again")
    changed_during = rules.wait_condition(changed, "True", deadline=5)
    wait_evicted(workloads, pod)
    after = rules.wait_condition(changed, "False")

    generations = [rule["metadata"]["generation"], changed["metadata"]["generation"]]
    evidence("condition while the pod is there", during)
    evidence("condition after a change of the rule", changed_during)
    evidence("condition once the pod is deleted", after)
    observed = [each["observedGeneration"] for each in (during, changed_during, after)]
    expect_equal("generations of the rule", generations, [1, 2])
    expect_equal("observedGeneration of the conditions", observed, [1, 2, 2])


def _time_added(rule: Object) -> str:
    text: str = field(rule, "spec", "taint", "timeAdded")
    return text


@requirement("TNT-09")
@without_driver
def test_time_added_of_a_rule(names: Names, rules: Rules, evidence: Observations) -> None:
    """It is filled in, kept through a change of the value, and starts anew with a change of the effect."""
    selector = {"driver": names.driver()}
    start = now()
    filled_in = _time_added(rules.create("filled", taint("NoSchedule"), selector))
    end = now()
    long_ago = start - datetime.timedelta(hours=1)

    old = rules.create("old", taint("NoSchedule", added=long_ago), selector)
    other_value = _time_added(rules.change(old, value="other"))
    before_change = now()
    other_effect = _time_added(rules.change(old, effect="NoExecute"))

    evidence("filled in", {"before": start, "timeAdded": filled_in, "after": end})
    evidence("after a change of the value", {"before": long_ago, "timeAdded": other_value})
    evidence("after a change of the effect", {"before": before_change, "timeAdded": other_effect})
    expect("timeAdded is filled in with the time", start <= parse_time(filled_in) <= end, filled_in)
    kept = [parse_time(text) for text in (_time_added(old), other_value)]
    expect_equal("timeAdded as given, and after a change of the value", kept, [long_ago, long_ago])
    anew = before_change <= parse_time(other_effect) <= now()
    expect("timeAdded starts anew with the effect", anew, other_effect)


@requirement("TNT-09")
def test_time_added_of_a_slice(drivers: Drivers, workloads: Workloads, evidence: Observations) -> None:
    """It is filled in when the slice is created, and for a taint that comes later."""
    start = now()
    bench = Bench(drivers, workloads, 2, taints={0: [taint("None")]})
    bench.set_taints(1, taint("None"))
    end = now()

    (slice_,) = drivers.slices(bench.driver)
    times = [field(device, "taints")[0].get("timeAdded") for device in slice_["spec"]["devices"]]
    evidence("timeAdded", {"before": start, "of the devices": times, "after": end})
    expect("each taint of the slice has timeAdded", all(times), times, slice_)
    in_order = start <= parse_time(times[0]) <= parse_time(times[1]) <= end
    expect("timeAdded is filled in with the time of the write", in_order, times)


_ALL = {(node, device) for node in (0, 1) for device in (0, 1)}


@requirement("TNT-10")
@needs_nodes(2)
@pytest.mark.parametrize(
    ("driver", "pool", "device", "expected"),
    [
        pytest.param(True, None, None, _ALL, id="driver"),
        pytest.param(True, 1, None, {(1, 0), (1, 1)}, id="driver and pool"),
        pytest.param(True, None, 1, {(0, 1), (1, 1)}, id="driver and device"),
        pytest.param(True, 1, 0, {(1, 0)}, id="driver, pool and device"),
        pytest.param(True, 1, 7, set(), id="no such device"),
        pytest.param(False, 1, 0, set(), id="another driver"),
    ],
)
def test_all_of_a_selector_must_match(
    driver: bool,
    pool: int | None,
    device: int | None,
    expected: set[tuple[int, int]],
    cluster: Cluster,
    drivers: Drivers,
    workloads: Workloads,
    rules: Rules,
    names: Names,
    evidence: Observations,
) -> None:
    """Of two devices on each of two nodes, those are tainted that match all that the selector has."""
    nodes = cluster.nodes[:2]
    bench = Bench(drivers, workloads, 3, nodes=nodes)
    selector = {"driver": bench.driver.name if driver else names.driver("other")}
    if pool is not None:
        selector["pool"] = nodes[pool].name
    if device is not None:
        selector["device"] = f"gpu-{device}"

    rules.create("broken", taint("NoSchedule"), selector)
    bench.settle(rules)
    for node, slot in sorted(_ALL):
        bench.ask(f"pod-{node}-{slot}", slot=slot, node=nodes[node].name)

    kept = {(node, slot) for node, slot in _ALL if not _served(workloads, f"pod-{node}-{slot}")}
    evidence("selector", selector)
    evidence("devices that it taints, by node and number", sorted(kept))
    expect_equal("tainted devices", sorted(kept), sorted(expected))


def _served(workloads: Workloads, name: str) -> bool:
    """Whether the claim of a pod is allocated, once the scheduler has decided."""

    def decided() -> str:
        if allocated(workloads.kube.get(RESOURCE_CLAIMS, name, workloads.namespace)):
            return "served"
        conditions = {each["type"]: each for each in workloads.get(name)["status"].get("conditions", ())}
        if "cannot allocate all claims" in conditions.get("PodScheduled", {}).get("message", ""):
            return "refused"
        raise NotYet(conditions)

    return wait_until(decided, 30, f"the scheduler's word on pod {name}") == "served"


def _require_own_cluster(cluster: Cluster, kube: KubeClient, namespace: str) -> None:
    if cluster.provider == "existing":
        raise EnvironmentBlocked("a rule for every device would take devices from others on this cluster")
    foreign = [
        f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
        for claim in kube.list(RESOURCE_CLAIMS)
        if claim["metadata"]["namespace"] != namespace and allocated(claim)
    ]
    if foreign:
        raise EnvironmentBlocked(f"a rule for every device would take them from {', '.join(foreign)}")


@requirement("TNT-10")
@exclusive
@deviation("k/k#141620")
def test_without_a_selector_a_rule_selects_nothing(
    cluster: Cluster,
    drivers: Drivers,
    workloads: Workloads,
    kube: KubeClient,
    rules: Rules,
    evidence: Observations,
) -> None:
    """A NoExecute rule without a selector lets a running pod run, and a new one too."""
    _require_own_cluster(cluster, kube, workloads.namespace)
    bench = Bench(drivers, workloads, 3)
    bench.run("before")

    rule = rules.create("nothing", taint("NoExecute"), None)
    condition = rules.wait_condition(rule, "False")
    bench.settle(rules)
    bench.ask("after")
    served = _served(workloads, "after")

    evidence("condition of the rule", condition)
    evidence("the new pod gets a device", served)
    with symptom("k/k#141620", "is refused"):
        expect("the new pod gets a device", served, "it is refused one")
    expect_left_alone(workloads, "before")


@requirement("TNT-10")
@exclusive
def test_an_empty_selector_selects_everything(
    cluster: Cluster,
    drivers: Drivers,
    workloads: Workloads,
    kube: KubeClient,
    rules: Rules,
    evidence: Observations,
) -> None:
    """A NoExecute rule with `deviceSelector: {}` deletes pods of two drivers and keeps new ones from both."""
    _require_own_cluster(cluster, kube, workloads.namespace)
    benches = {suffix: Bench(drivers, workloads, 2, suffix=suffix) for suffix in ("one", "two")}
    pods = {suffix: bench.run(f"{suffix}-before") for suffix, bench in benches.items()}

    rule = rules.create("everything", taint("NoExecute"), {})
    evicted = {suffix: wait_evicted(workloads, pod) for suffix, pod in pods.items()}
    for pod in pods.values():
        workloads.wait_gone(pod["metadata"]["name"])
    refusals = {suffix: bench.refuse(f"{suffix}-after") for suffix, bench in benches.items()}
    rules.delete(rule)
    for suffix in benches:
        workloads.wait_running(f"{suffix}-after")

    evidence("pods deleted", {suffix: disruption(pod) for suffix, pod in evicted.items()})
    evidence("why new pods wait", refusals)
    expect_evicted(*evicted.values())


@requirement("TNT-11")
def test_a_rule_deletes_pods_of_devices_without_a_slice(
    drivers: Drivers, workloads: Workloads, rules: Rules, evidence: Observations
) -> None:
    """The driver takes its slices back, the pod goes on, and a NoExecute rule for its device deletes it."""
    bench = Bench(drivers, workloads, 2)
    pod = bench.run("pod", slot=1)
    bench.run("other", slot=0)
    bench.driver.client.set_inventory({"devices": []})
    expect_equal("slices of the driver", drivers.slices(bench.driver), [])
    expect_left_alone(workloads, "pod")

    selector = {"driver": bench.driver.name, "pool": bench.node, "device": "gpu-1"}
    rule = rules.create("broken", taint("NoExecute"), selector)
    evicted = wait_evicted(workloads, pod)
    workloads.wait_gone("pod")
    rules.wait_condition(rule, "False")

    evidence("device of the pod, in no slice", bench.devices_of("pod"))
    evidence("condition of the deleted pod", disruption(evicted))
    expect_evicted(evicted)
    expect_left_alone(workloads, "other")
