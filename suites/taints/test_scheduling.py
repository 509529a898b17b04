"""Who is kept from a tainted device, and who is not: TNT-01, TNT-07, TNT-08 and TNT-13 to TNT-15."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from clusters.interface import Cluster
from harness.kube import NAMESPACES, NODES, RESOURCE_CLAIMS, KubeClient, Object
from harness.waiting import NotYet, wait_until
from suites.claims import NO_FIT, pod_with_claim
from suites.devices import allocated, given
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect_equal
from suites.marks import exclusive, requirement
from suites.taints.support import KEY, Bench, taint, tolerates
from suites.workload import Container, Workloads, pod_manifest

_ADMIN_ACCESS = "resource.kubernetes.io/admin-access"


@requirement("TNT-01")
def test_a_taint_keeps_pods_away(drivers: Drivers, workloads: Workloads, evidence: Observations) -> None:
    """The only device is tainted: a pod waits, one that tolerates it runs; without the taint both do."""
    bench = Bench(drivers, workloads, 1, taints={0: [taint("NoSchedule")]})

    refusal = bench.refuse("plain")
    bench.run("tolerating", tolerates(effect="NoSchedule"))
    tolerating = given(workloads.report("tolerating"))
    still = workloads.wait_unschedulable("plain", NO_FIT)
    bench.remove("tolerating")
    bench.driver.client.set_inventory({"devices": [{"name": "gpu-0", "attributes": {"slot": {"int": 0}}}]})
    workloads.wait_running("plain")

    evidence("why the pod without a toleration waits", [refusal, still])
    evidence("device of the pod with one", tolerating)
    evidence("device of the first pod, once the taint is gone", given(workloads.report("plain")))
    expect_equal("device of the pod that tolerates", tolerating, ["gpu-0"])
    expect_equal("device of the other one, later", given(workloads.report("plain")), ["gpu-0"])


@requirement("TNT-07")
@pytest.mark.parametrize(
    ("taints", "parts"),
    [
        pytest.param(
            [taint("NoSchedule", key="check/a"), taint("NoSchedule", key="check/b")],
            [tolerates(key="check/a"), tolerates(key="check/b")],
            id="two keys",
        ),
        pytest.param(
            [taint("NoSchedule"), taint("NoExecute")],
            [tolerates(effect="NoSchedule"), tolerates(effect="NoExecute")],
            id="one key with two effects",
        ),
        pytest.param(
            [taint("NoSchedule", value="hot"), taint("NoSchedule", value="slow")],
            [tolerates(value="hot"), tolerates(value="slow")],
            id="one key with two values",
        ),
    ],
)
def test_every_taint_has_to_be_tolerated(
    taints: list[Object],
    parts: list[Object],
    drivers: Drivers,
    workloads: Workloads,
    evidence: Observations,
) -> None:
    """A device with two taints is refused to a claim that tolerates one of them, whichever, and not both."""
    bench = Bench(drivers, workloads, 1, taints={0: taints})

    refusals = {f"part-{index}": bench.refuse(f"part-{index}", part) for index, part in enumerate(parts)}
    bench.run("both", *parts)

    evidence("taints of the device", taints)
    evidence("why the claims that tolerate one of them wait", refusals)
    evidence("devices of the claim that tolerates both", bench.devices_of("both"))
    expect_equal("devices of the claim that tolerates both", bench.devices_of("both"), ["gpu-0"])


_MATCHING: dict[str, Object] = {
    "equal": {"key": KEY, "operator": "Equal", "value": "hot", "effect": "NoSchedule"},
    "equal-by-default": {"key": KEY, "value": "hot", "effect": "NoSchedule"},
    "exists": {"key": KEY, "operator": "Exists", "effect": "NoSchedule"},
    "any-effect": {"key": KEY, "operator": "Equal", "value": "hot"},
    "any-key": {"operator": "Exists", "effect": "NoSchedule"},
    "anything": {"operator": "Exists"},
}
_OTHER: dict[str, Object] = {
    "other-value": {"key": KEY, "operator": "Equal", "value": "cold", "effect": "NoSchedule"},
    "no-value": {"key": KEY, "operator": "Equal", "effect": "NoSchedule"},
    "other-key": {"key": "check.dra-harness.dev/other", "operator": "Exists"},
    "other-effect": {"key": KEY, "operator": "Exists", "effect": "NoExecute"},
}


@requirement("TNT-08")
def test_which_tolerations_match(drivers: Drivers, workloads: Workloads, evidence: Observations) -> None:
    """Each toleration that matches gets its claim a device; none of the others does, with one left."""
    tainted = {slot: [taint("NoSchedule", value="hot")] for slot in range(len(_MATCHING) + 1)}
    bench = Bench(drivers, workloads, len(tainted), taints=tainted)

    for name, toleration in {**_MATCHING, **_OTHER}.items():
        bench.ask(name, toleration)
    served = {name: _wait_allocated(workloads, name) for name in _MATCHING}
    refusals = {name: workloads.wait_unschedulable(name, NO_FIT) for name in _OTHER}

    evidence("the taint of every device", tainted[0])
    evidence("tolerations that match", {name: [_MATCHING[name], served[name]] for name in _MATCHING})
    evidence("tolerations that don't", {name: [_OTHER[name], refusals[name]] for name in _OTHER})
    given_out = {device for devices in served.values() for device in devices}
    expect_equal("devices given out", len(given_out), len(_MATCHING))
    expect_equal("devices of the others", [bench.devices_of(name) for name in _OTHER], [[]] * len(_OTHER))


def _wait_allocated(workloads: Workloads, name: str) -> list[str]:
    def devices() -> list[str]:
        claim = workloads.kube.get(RESOURCE_CLAIMS, name, workloads.namespace)
        if not allocated(claim):
            raise NotYet(workloads.get(name)["status"])
        return allocated(claim)

    return wait_until(devices, 30, f"claim {name} to be allocated")


@requirement("TNT-13")
def test_a_device_taint_is_none_of_the_node(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """A pod that tolerates all taints of nodes is refused the device; one without devices has the node."""
    bench = Bench(drivers, workloads, 1, taints={0: [taint("NoSchedule"), taint("NoExecute")]})

    bench.claim("tolerant-pod")
    workloads.create(pod_with_claim("tolerant-pod", tolerations=[{"operator": "Exists"}]))
    refusal = workloads.wait_unschedulable("tolerant-pod", NO_FIT)
    free = workloads.run(pod_manifest("no-device", [Container()], node=bench.node))

    evidence("why the pod that tolerates every taint of a node waits", refusal)
    evidence("node of the pod without devices", free["spec"]["nodeName"])
    expect_equal("node of the pod without devices", free["spec"]["nodeName"], bench.node)


@pytest.fixture
def taint_node(cluster: Cluster, kube: KubeClient) -> Iterator[Callable[[str], str]]:
    """Taints the first node with a key, NoSchedule, until the check ends; returns the node's name."""
    node = cluster.nodes[0].name
    used: list[str] = []

    def write(key: str, present: bool) -> None:
        old = kube.get(NODES, node)["spec"].get("taints", [])
        new = [each for each in old if each["key"] != key]
        if present:
            new.append({"key": key, "effect": "NoSchedule"})
        kube.patch(NODES, node, {"spec": {"taints": new}})

    def add(key: str) -> str:
        used.append(key)
        write(key, present=True)
        return node

    yield add
    for key in used:
        write(key, present=False)


@requirement("TNT-13")
@exclusive
def test_a_node_taint_is_none_of_the_device(
    taint_node: Callable[[str], str], drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """A claim that tolerates every taint of devices does not get its pod past the same taint on the node."""
    bench = Bench(drivers, workloads, 1, taints={0: [taint("NoSchedule")]})
    taint_node(KEY)

    bench.ask("pod", {"operator": "Exists"})
    refusal = workloads.wait_unschedulable("pod", "untolerated taint")
    bench.claim("both", {"operator": "Exists"})
    workloads.create(pod_with_claim("both", tolerations=[{"key": KEY, "operator": "Exists"}]))
    both = workloads.wait_running("both")

    evidence("why the pod waits whose claim alone tolerates", refusal)
    evidence("node of the pod that tolerates as its claim does", both["spec"]["nodeName"])
    expect_equal("node of the pod that tolerates both", both["spec"]["nodeName"], bench.node)


@requirement("TNT-14")
def test_all_devices_needs_every_toleration(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """A request for all devices waits because of one tainted device, and is served with a toleration."""
    bench = Bench(drivers, workloads, 3, taints={1: [taint("NoSchedule")]})

    refusal = bench.refuse("plain", everything=True)
    bench.run("tolerating", tolerates(), everything=True)

    evidence("why all devices are refused", refusal)
    evidence("devices of the claim that tolerates", bench.devices_of("tolerating"))
    expect_equal("devices with a toleration", bench.devices_of("tolerating"), ["gpu-0", "gpu-1", "gpu-2"])


@requirement("TNT-14")
def test_admin_access_needs_a_toleration(
    drivers: Drivers, workloads: Workloads, kube: KubeClient, evidence: Observations
) -> None:
    """A request with admin access, which gets past other claims, does not get past a taint."""
    bench = Bench(drivers, workloads, 1, taints={0: [taint("NoSchedule")]})
    kube.patch(NAMESPACES, workloads.namespace, {"metadata": {"labels": {_ADMIN_ACCESS: "true"}}})
    bench.run("owner", tolerates())

    refusal = bench.refuse("plain", adminAccess=True)
    bench.run("tolerating", tolerates(), adminAccess=True)

    evidence("why admin access is refused", refusal)
    evidence("devices", {name: bench.devices_of(name) for name in ("owner", "tolerating")})
    expect_equal("devices with a toleration", bench.devices_of("tolerating"), bench.devices_of("owner"))


@requirement("TNT-15")
def test_one_bad_device_of_eight(drivers: Drivers, workloads: Workloads, evidence: Observations) -> None:
    """Eight devices can't be had while one is tainted; the seven others can, in one claim."""
    bench = Bench(drivers, workloads, 8, taints={3: [taint("NoSchedule")]})

    refusal = bench.refuse("eight", count=8)
    bench.run("seven", count=7)
    none_left = bench.refuse("one-more")

    evidence("why eight are refused", refusal)
    evidence("the seven", bench.devices_of("seven"))
    evidence("why there is none left", none_left)
    sound = [f"gpu-{slot}" for slot in range(8) if slot != 3]
    expect_equal("the seven", bench.devices_of("seven"), sound)
