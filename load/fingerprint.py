"""What a run was made under: which runs may be compared, and what one was, when that is asked later."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import psutil
import pydantic

from clusters import metrics
from clusters.interface import Cluster
from clusters.metrics import APISERVER, CONTROLLER_MANAGER, SCHEDULER
from harness.errors import EnvironmentBlocked
from harness.kube import FLOW_SCHEMAS, NODES, PRIORITY_LEVELS, RESOURCE_SLICES, KubeClient, Object
from harness.labels import RUN
from harness.revision import revision
from load import commandline

Fact = str | int | float | bool

_COMPONENTS = (APISERVER, CONTROLLER_MANAGER, SCHEDULER)
_GATES = re.compile(
    r"DRA|Dynamic|Scheduler|Workload|NodeDeclared|ResourceHealth|WatchList|WatchCache|Concurrent"
)
_PLACES = re.compile(
    r"ports?|address(?:es)?|servers?|urls?|.*file|kubeconfig|cert|key|ca|dir|hosts|issuer|cidr|range|version"
    r"|feature-gates|v"
)
"""Flags that say where something is, not how it works; the last one's gates are facts of their own."""


class Difference(NamedTuple):
    """One fact that two runs don't share."""

    key: str
    ours: Fact | None
    """None where there is no such fact."""
    theirs: Fact | None


class Fingerprint(pydantic.BaseModel):
    """The facts that runs must share to be compared, and notes that they need not."""

    model_config = pydantic.ConfigDict(frozen=True, extra="ignore")

    facts: dict[str, Fact]
    """By a dotted key, such as `kubernetes.kube-scheduler`, `gates.DRADeviceTaints` or `machine.cpus`."""
    notes: dict[str, str] = {}
    """The seed, the commit of the harness and the like."""

    def differences(self, other: Fingerprint, *, allowed: Iterable[str] = ()) -> list[Difference]:
        """The facts in which another run differs, sorted by key.

        Args:
            other: the other run's.
            allowed: keys that may differ; one stands for all that begin with it and a dot, too.
        """
        roots = tuple(allowed)
        keys = sorted({*self.facts, *other.facts})
        return [
            Difference(key, self.facts.get(key), other.facts.get(key))
            for key in keys
            if self.facts.get(key) != other.facts.get(key)
            and not any(key == root or key.startswith(f"{root}.") for root in roots)
        ]


def take(
    cluster: Cluster,
    kube: KubeClient,
    *,
    shape: Mapping[str, Fact],
    run_id: str,
    seed: int,
) -> Fingerprint:
    """The fingerprint of a run on a cluster. Take it once the run's limits are in force.

    Args:
        cluster: where.
        kube: the admin's.
        shape: what the load is: profile, size, limit set, rates; becomes `load.<key>`.
        run_id: whose objects are left out of account.
        seed: of the run.
    """
    facts: dict[str, Fact] = {f"load.{key}": value for key, value in shape.items()}
    facts |= {"cluster.provider": cluster.provider, "cluster.profile": str(cluster.profile)}
    facts |= _versions_and_gates(cluster, kube)
    for component in _COMPONENTS:
        facts |= {
            f"flags.{component}.{flag}": value
            for flag, value in (commandline.flags(cluster, kube, component) or {}).items()
            if not is_place(flag, value)
        }
    facts |= _fairness(kube, run_id)
    facts |= _size(cluster, kube)
    facts |= machine()
    return Fingerprint(facts=facts, notes=_notes(seed))


def is_place(flag: str, value: str) -> bool:
    """Whether a flag says where something is (a port, a file), which differs between equal clusters."""
    if value.startswith("/") or "://" in value:
        return True
    return any(_PLACES.fullmatch(word) for word in (flag, *flag.split("-")))


def machine() -> dict[str, Fact]:
    """What the machine is."""
    return {
        "machine.cpus": len(os.sched_getaffinity(0)),
        "machine.cpu": _cpu_model(),
        "machine.memory-gib": round(psutil.virtual_memory().total / 2**30),
    }


def _versions_and_gates(cluster: Cluster, kube: KubeClient) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    gates: dict[str, dict[str, bool]] = {}
    for component in _COMPONENTS:
        try:
            samples = metrics.read(
                cluster, kube, component, prefixes=("kubernetes_build_info", "kubernetes_feature_enabled")
            )
        except EnvironmentBlocked:
            continue
        facts |= {
            f"kubernetes.{component}": sample.labels["git_version"]
            for sample in samples
            if sample.name == "kubernetes_build_info"
        }
        for sample in samples:
            if sample.name == "kubernetes_feature_enabled" and _GATES.search(sample.labels["name"]):
                gates.setdefault(sample.labels["name"], {})[component] = sample.value > 0
    facts.setdefault(f"kubernetes.{APISERVER}", kube.version())
    if cluster.origin:
        facts["kubernetes.programs"] = cluster.origin
    for gate, states in gates.items():
        same = len(set(states.values())) == 1
        words = ", ".join(f"{component} {'on' if on else 'off'}" for component, on in sorted(states.items()))
        facts[f"gates.{gate}"] = next(iter(states.values())) if same else words
    return facts


def _fairness(kube: KubeClient, run_id: str) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    for level in _not_of_runs(kube.list(PRIORITY_LEVELS), run_id):
        facts[f"apf.level.{level['metadata']['name']}"] = describe_level(level["spec"])
    for schema in _not_of_runs(kube.list(FLOW_SCHEMAS), run_id):
        spec = schema["spec"]
        leads_to = spec["priorityLevelConfiguration"]["name"]
        by = spec.get("distinguisherMethod", {}).get("type", "nobody")
        facts[f"apf.schema.{schema['metadata']['name']}"] = f"{spec['matchingPrecedence']} {leads_to} by {by}"
    return facts


def describe_level(spec: Object) -> str:
    """A priority level in one line: its shares, what it lends and borrows, and what it does when full."""
    if spec["type"] == "Exempt":
        return "Exempt"
    limited = spec["limited"]
    response = limited.get("limitResponse", {})
    queuing = response.get("queuing", {})
    full = response.get("type", "Reject")
    if queuing:
        full += f" {queuing.get('queues')}x{queuing.get('queueLengthLimit')} hand {queuing.get('handSize')}"
    return (
        f"shares {limited.get('nominalConcurrencyShares')}, lends {limited.get('lendablePercent', 0)} %,"
        f" borrows {limited.get('borrowingLimitPercent', 'any')}, {full}"
    )


def _not_of_runs(objects: list[Object], run_id: str) -> list[Object]:
    return [obj for obj in objects if obj["metadata"].get("labels", {}).get(RUN) != run_id]


def _size(cluster: Cluster, kube: KubeClient) -> dict[str, Fact]:
    slices = kube.list(RESOURCE_SLICES)
    return {
        "cluster.nodes": len(kube.list(NODES)) - cluster.simulated_nodes,
        "cluster.simulated-nodes": cluster.simulated_nodes,
        "cluster.slices": len(slices),
        "cluster.devices": sum(len(slice_["spec"].get("devices", ())) for slice_ in slices),
    }


def _notes(seed: int) -> dict[str, str]:
    notes = {
        "seed": str(seed),
        "kernel": platform.release(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("dra-harness", "locust")},
    }
    running = revision()
    return notes | ({"commit": running.commit + "+" * running.dirty} if running.commit else {})


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    found = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    return found[1] if found else platform.machine()
