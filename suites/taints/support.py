"""Devices told apart by their slot, pods that ask for them, and rules that taint them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from clusters.interface import Node
from harness.errors import RequirementFailed
from harness.kube import (
    DEVICE_TAINT_RULES,
    PODS,
    RESOURCE_CLAIMS,
    KubeClient,
    Object,
)
from harness.waiting import NotYet, wait_until
from suites import claims
from suites.drivers import Drivers
from suites.expect import expect
from suites.naming import LABEL, Names
from suites.workload import Workloads

KEY = "check.dra-harness.dev/broken"
_SETTLE_ATTEMPTS = 10


def taint(effect: str, *, key: str = KEY, value: str = "", added: datetime.datetime | None = None) -> Object:
    """A taint as the API takes it, for slices and rules."""
    made: Object = {"key": key, "effect": effect}
    if value:
        made["value"] = value
    if added:
        made["timeAdded"] = rfc3339(added)
    return made


def tolerates(
    *, key: str = KEY, effect: str = "", value: str | None = None, seconds: int | None = None
) -> Object:
    """A toleration: Exists, or Equal if a value is given; an empty key or effect is left out."""
    made: Object = {"operator": "Exists"} if value is None else {"operator": "Equal", "value": value}
    optional = {"key": key, "effect": effect}
    made |= {field: text for field, text in optional.items() if text}
    if seconds is not None:
        made["tolerationSeconds"] = seconds
    return made


def now() -> datetime.datetime:
    """The time, in the whole seconds that taints are kept in."""
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


def rfc3339(moment: datetime.datetime) -> str:
    """A time as the API writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime.datetime:
    """A time that the API wrote."""
    return datetime.datetime.fromisoformat(text)


def inventory(count: int, taints: Mapping[int, Sequence[Object]] | None = None) -> Object:
    """Devices `gpu-0` and on, each with its number as the attribute `slot`, and the taints of some."""
    tainted = taints or {}
    devices = [
        {"name": f"gpu-{slot}", "attributes": {"slot": {"int": slot}}, "taints": list(tainted.get(slot, ()))}
        for slot in range(count)
    ]
    return {"devices": devices}


class Bench:
    """A driver of numbered devices and a class of them, with pods that ask for any or for a certain one."""

    def __init__(
        self,
        drivers: Drivers,
        workloads: Workloads,
        count: int,
        *,
        nodes: Sequence[Node] | None = None,
        taints: Mapping[int, Sequence[Object]] | None = None,
        suffix: str = "gpu",
    ) -> None:
        """Start the driver on the first node unless told otherwise, with `count` devices for each node."""
        where = drivers.cluster.nodes[:1] if nodes is None else nodes
        self.workloads = workloads
        self.node = where[0].name
        self.driver = drivers.start(inventory=inventory(count, taints), nodes=where, suffix=suffix)
        self.device_class = drivers.device_class(self.driver, suffix=suffix)
        self._count = count
        self._markers = 0

    def request(self, *tolerations: Object, slot: int | None = None, **fields: Any) -> Object:
        """A request for devices; `fields` are more of it, as `claims.request` takes them."""
        if tolerations:
            fields["tolerations"] = list(tolerations)
        cel = "" if slot is None else f"device.attributes[{self.driver.name!r}].slot == {slot}"
        return claims.request("device", self.device_class, cel=cel, **fields)

    def claim(self, name: str, *tolerations: Object, slot: int | None = None, **fields: Any) -> Object:
        """Create a claim."""
        request = self.request(*tolerations, slot=slot, **fields)
        return claims.create_claim(self.workloads, name, [request])

    def template(self, name: str, *tolerations: Object) -> Object:
        """Create a template of claims."""
        return claims.create_template(self.workloads, name, [self.request(*tolerations)])

    def ask(
        self, name: str, *tolerations: Object, slot: int | None = None, node: str = "", **fields: Any
    ) -> None:
        """Create a pod and a claim for it, both of that name."""
        self.claim(name, *tolerations, slot=slot, **fields)
        self.workloads.create(claims.pod_with_claim(name, node=node))

    def run(
        self, name: str, *tolerations: Object, slot: int | None = None, node: str = "", **fields: Any
    ) -> Object:
        """Create a pod with a claim and wait until it runs."""
        self.ask(name, *tolerations, slot=slot, node=node, **fields)
        return self.workloads.wait_running(name)

    def refuse(
        self, name: str, *tolerations: Object, slot: int | None = None, node: str = "", **fields: Any
    ) -> str:
        """Create a pod with a claim that must not be served; returns the scheduler's reason."""
        self.ask(name, *tolerations, slot=slot, node=node, **fields)
        return self.workloads.wait_unschedulable(name, claims.NO_FIT)

    def devices_of(self, name: str) -> list[str]:
        """The devices allocated to a claim."""
        return claims.allocated_to(self.workloads, name)

    def remove(self, name: str) -> None:
        """Delete a pod and its claim."""
        self.workloads.delete(name)
        self.workloads.kube.delete(RESOURCE_CLAIMS, name, self.workloads.namespace)

    def set_taints(self, slot: int, *taints: Object) -> None:
        """Have the driver publish these taints of a device, instead of those that it had set."""
        self.driver.client.set_taints(f"gpu-{slot}", taints)

    def settle(self, rules: Rules) -> None:
        """Return once the scheduler has seen every rule so far; the last device is for this alone.

        Rules reach it in order, so what comes after one that it is seen to follow has been seen as well.
        """
        self._markers += 1
        device = self._count - 1
        selector = {"driver": self.driver.name, "device": f"gpu-{device}"}
        rules.create(f"marker{self._markers}", taint("NoSchedule", key="marker"), selector)
        for attempt in range(_SETTLE_ATTEMPTS):
            name = f"marker-{self._markers}-{attempt}"
            try:
                self.refuse(name, slot=device, node=self.node)
            except RequirementFailed:
                self.remove(name)
            else:
                self.remove(name)
                return
        raise RequirementFailed(
            "a rule keeps new pods from the device that it selects", f"{_SETTLE_ATTEMPTS} pods got it"
        )


def wait_evicted(workloads: Workloads, pod: Object, deadline: float = 30.0) -> Object:
    """Wait until a pod is marked for deletion; returns it as it was then.

    Args:
        workloads: where it is.
        pod: the pod as it was before; the API server replays what has happened since.
        deadline: seconds from now.
    """
    metadata = pod["metadata"]
    events = workloads.kube.watch(
        PODS,
        workloads.namespace,
        resource_version=metadata["resourceVersion"],
        fields=f"metadata.name={metadata['name']}",
        seconds=deadline,
    )
    for event in events:
        seen: Object = event["object"]
        if seen["metadata"].get("deletionTimestamp"):
            return seen
    raise RequirementFailed(
        f"pod {metadata['name']} is deleted because of the taint", f"it is not after {deadline:g} s", pod
    )


def deleted_at(pod: Object) -> datetime.datetime:
    """When somebody asked for the deletion of a pod."""
    metadata = pod["metadata"]
    grace = datetime.timedelta(seconds=metadata.get("deletionGracePeriodSeconds", 0))
    return parse_time(metadata["deletionTimestamp"]) - grace


def disruption(pod: Object) -> Object:
    """The pod's condition DisruptionTarget; empty if it has none."""
    conditions = pod["status"].get("conditions", ())
    return next((each for each in conditions if each["type"] == "DisruptionTarget"), {})


def expect_evicted(*pods: Object) -> None:
    """Require that pods which are being deleted say that it is a disruption, as eviction does."""
    for pod in pods:
        name = pod["metadata"]["name"]
        found = disruption(pod)
        expect(f"pod {name} has the condition DisruptionTarget", found.get("status") == "True", found, pod)


def expect_left_alone(workloads: Workloads, *names: str) -> None:
    """Require that nobody has asked for the deletion of these pods."""
    for name in names:
        pod = workloads.kube.find(PODS, name, workloads.namespace)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            raise RequirementFailed(f"pod {name} is left alone", "it is deleted", pod)


class Rules:
    """DeviceTaintRules of one check, gone with it. Each selects what is the check's own."""

    def __init__(self, kube: KubeClient, names: Names) -> None:
        self._kube = kube
        self._names = names
        self._made: list[str] = []

    def create(self, suffix: str, taint_: Object, selector: Object | None) -> Object:
        """Create a rule; None leaves the selector out, which is not the same as an empty one."""
        name = self._names.name(suffix)
        spec: Object = {"taint": taint_}
        if selector is not None:
            spec["deviceSelector"] = selector
        manifest = {
            "apiVersion": DEVICE_TAINT_RULES.api_version,
            "kind": "DeviceTaintRule",
            "metadata": {"name": name, "labels": {LABEL: self._names.run_id}},
            "spec": spec,
        }
        self._made.append(name)
        return self._kube.create(DEVICE_TAINT_RULES, manifest)

    def change(self, rule: Object, **taint_: Any) -> Object:
        """Change fields of a rule's taint."""
        return self._kube.patch(DEVICE_TAINT_RULES, rule["metadata"]["name"], {"spec": {"taint": taint_}})

    def delete(self, rule: Object) -> None:
        """Delete a rule."""
        self._kube.delete(DEVICE_TAINT_RULES, rule["metadata"]["name"])

    def wait_condition(self, rule: Object, status: str, deadline: float = 30.0) -> Object:
        """Wait until EvictionInProgress has a status for the rule as given or a later one."""
        name = rule["metadata"]["name"]

        def reached() -> Object:
            current = self._kube.get(DEVICE_TAINT_RULES, name)
            conditions = current.get("status", {}).get("conditions", ())
            found = next((each for each in conditions if each["type"] == "EvictionInProgress"), None)
            if found is None:
                raise NotYet("no condition EvictionInProgress")
            fresh = found.get("observedGeneration", 0) >= rule["metadata"]["generation"]
            if found["status"] != status or not fresh:
                raise NotYet(found)
            condition: Object = found
            return condition

        return wait_until(reached, deadline, f"EvictionInProgress={status} on rule {name}")

    def clear(self) -> None:
        """Delete every rule of the check."""
        for name in self._made:
            self._kube.delete(DEVICE_TAINT_RULES, name)
