"""Other things that slices can say, beside the churn: BND-09, COR-03 and PRT-09.

`waiting`: pods that wait for binding conditions, which nobody ever sets. `hard`: a pod whose claim can't be
satisfied, and that takes longer to find out than the scheduler's filter timeout. `partitions`: the nodes'
devices are partitions of one another, and a quarter of half of the nodes is taken, so they are tried in turn.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from harness.errors import EnvironmentBlocked
from harness.kube import (
    DEVICE_CLASSES,
    EVENTS,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    ApiError,
    Object,
)
from harness.results import Result
from harness.waiting import NotYet, WaitTimeout, wait_until
from load import objects
from load.histogram import Quantile
from load.model import Stage
from load.profiles.trial import Trial
from load.scenarios.follow import Follower
from load.scenarios.interface import Done, Findings, Ground, requirement
from load.scenarios.readings import bound_rate, figure, quantile, seconds, unfinished

if TYPE_CHECKING:
    from load.result import RequirementResult

WAITING, HARD, PARTITIONS = "waiting", "hard", "partitions"
NAMES = (WAITING, HARD, PARTITIONS)
TIMED_OUT = "timed out trying to allocate devices"
"""Of the scheduler's FailedScheduling event: pkg/scheduler/framework/plugins/dynamicresources."""
_CONDITION = "load.dra-harness.dev/attached"
_DEVICES_PER_NODE = 25
_HARD_GROUPS, _HARD_DEVICES = 3, 10
_HARD_REQUESTS = _HARD_DEVICES + 1
"""One more than a group has: every choice of devices of a group is a dead end."""
_HARD_SECONDS = 30.0
"""Two attempts of ten seconds each, and the time between them."""
_THREADS = 8
_SETTLE_SECONDS = 120.0
_AS_FAST, _SLACK = 1.5, 0.25
"""As fast as before: the p99 is at most that many times as long, and so many seconds."""
_KEEPS_UP = 0.9
"""Of the offered rate."""
_PARTITIONED_P99 = 5.0


class Beside:
    """Makes what a trial needs before it, judges it, and takes it away after it."""

    def __init__(self, ground: Ground, waiting: int) -> None:
        self._ground = ground
        self._count = waiting
        self._namespace = ground.names.name("beside")
        self._events: Follower | None = None
        self._lock = threading.Lock()
        self._timeouts = 0
        self._blocked: dict[str, str] = {}

    def trials(self, main: Trial, wanted: Sequence[str]) -> Sequence[Trial]:
        """The trials of these names, each with the churn of the main one."""
        longer = ((HARD, max(main.seconds, _HARD_SECONDS)),)
        return [main.again(name, phases=longer if name == HARD else None) for name in wanted]

    def before(self, name: str) -> None:
        """Make it, once the cluster can have it; without that, the churn is alone and the result blocked."""
        if name not in NAMES:
            return
        try:
            {WAITING: self._make_waiting, HARD: self._make_hard, PARTITIONS: self._make_partitions}[name]()
        except (ApiError, WaitTimeout, EnvironmentBlocked) as error:
            self._blocked[name] = str(error)

    def act(self, name: str) -> None:
        """The hard pod comes once the churn goes on."""
        if name == HARD and name not in self._blocked:
            self._create_pod("hard", ["hard"])

    def judge(self, done: Done, quiet: Quantile | None) -> Findings:
        """The result of the trial's requirement; then what was made goes."""
        findings = Findings()
        name = done.trial.name
        p99 = quantile(done.report, Stage.BOUND, 0.99)
        if name in self._blocked:
            found = {WAITING: "BND-09", HARD: "COR-03", PARTITIONS: "PRT-09"}[name]
            findings.requirements.append(requirement(found, Result.BLOCKED, self._blocked[name]))
        elif name == WAITING and p99 and quiet:
            findings.requirements.append(as_fast(self._count, p99, quiet))
        elif name == HARD:
            findings.figures["timeouts"] = figure(self._timeouts)
            findings.requirements.append(timed_out(self._timeouts))
        elif name == PARTITIONS and p99:
            findings.requirements.append(self._keeps_up(done, p99))
        self.remove()
        return findings

    def remove(self) -> None:
        """Take away what was made: pods first, then their claims, slices and classes."""
        if self._events:
            self._events.stop()
            self._events = None
        kube = self._ground.setup
        if kube.find(NAMESPACES, self._namespace) is None:
            return
        admin = self._ground.admin
        admin.request("DELETE", PODS.path(self._namespace), query={"gracePeriodSeconds": 0})
        admin.request("DELETE", RESOURCE_CLAIMS.path(self._namespace))
        for kind in (WAITING, HARD):
            kube.delete(DEVICE_CLASSES, self._class(kind))
            for slice_ in kube.list(RESOURCE_SLICES, fields=f"spec.driver={self._driver(kind)}"):
                kube.delete(RESOURCE_SLICES, slice_["metadata"]["name"])

    # What is made

    def _make_waiting(self) -> None:
        condition = {"bindsToNode": True, "bindingConditions": [_CONDITION]}
        condition["bindingFailureConditions"] = [f"{_CONDITION}-failed"]
        nodes = self._ground.simulated[: -(-self._count // _DEVICES_PER_NODE)]
        for node in nodes:
            devices = [{"name": f"gpu-{index}", **condition} for index in range(_DEVICES_PER_NODE)]
            self._publish(WAITING, node, [{"devices": devices}])
        self._prepare(WAITING)
        names = [f"waiting-{index}" for index in range(self._count)]

        def create(name: str) -> None:
            self._create_claim(name, [{"deviceClassName": self._class(WAITING), "count": 1}])
            self._create_pod(name, [name])

        with ThreadPoolExecutor(_THREADS, thread_name_prefix="waiting") as threads:
            list(threads.map(create, names))
        self._wait_allocated(self._count, "pods to wait for their conditions")

    def _make_hard(self) -> None:
        groups = [{"group": {"int": index // _HARD_DEVICES}} for index in range(_HARD_GROUPS * _HARD_DEVICES)]
        devices = [{"name": f"gpu-{index}", "attributes": group} for index, group in enumerate(groups)]
        self._publish(HARD, self._ground.simulated[0], [{"devices": devices}])
        self._prepare(HARD)
        exactly = {"deviceClassName": self._class(HARD), "count": 1}
        attribute = f"{self._driver(HARD)}/group"
        self._create_claim("hard", [exactly] * _HARD_REQUESTS, match=attribute)
        self._timeouts = 0
        self._events = Follower(self._ground.admin, EVENTS, [self._namespace], self._event)
        self._events.start()

    def _make_partitions(self) -> None:
        """A whole device, its halves and quarters on each node, in the place of its pool."""
        for slice_ in self._ground.setup.list(RESOURCE_SLICES, fields=f"spec.driver={self._ground.driver}"):
            self._ground.setup.delete(RESOURCE_SLICES, slice_["metadata"]["name"])
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="partitions") as threads:
            list(threads.map(self._partition, self._ground.simulated))
        self._make_namespace()
        taken = self._ground.simulated[: len(self._ground.simulated) // 2]
        expression = f'device.attributes["{self._ground.driver}"].quarters == 1'
        selectors = [{"cel": {"expression": expression}}]
        for node in taken:
            exactly = {"deviceClassName": self._ground.names.device_class, "count": 1, "selectors": selectors}
            self._create_claim(f"quarter-{node}", [exactly])
            self._create_pod(f"quarter-{node}", [f"quarter-{node}"], node=node)
        self._wait_allocated(len(taken), "quarters to be taken")

    def _partition(self, node: str) -> None:
        counters = [{"name": "gpu", "counters": {"quarters": {"value": "4"}}}]
        self._publish(
            "", node, [{"sharedCounters": counters}, {"devices": partitions()}], self._ground.driver
        )

    def _publish(self, kind: str, node: str, contents: Sequence[Object], driver: str = "") -> None:
        for index, content in enumerate(contents):
            name = f"{self._ground.prefix}-{kind or 'partitions'}-{node}-{index}"
            pool = {"name": node, "generation": 1, "resourceSliceCount": len(contents)}
            spec = {"driver": driver or self._driver(kind), "nodeName": node, "pool": pool, **content}
            manifest = {
                "apiVersion": RESOURCE_SLICES.api_version,
                "kind": "ResourceSlice",
                "metadata": {"name": name, "labels": dict(self._ground.labels)},
                "spec": spec,
            }
            self._ground.setup.create(RESOURCE_SLICES, manifest)

    def _prepare(self, kind: str) -> None:
        self._make_namespace()
        manifest = objects.device_class(self._ground.names, self._class(kind), self._driver(kind))
        self._ground.setup.create(DEVICE_CLASSES, manifest)

    def _make_namespace(self) -> None:
        if self._ground.setup.find(NAMESPACES, self._namespace) is None:
            metadata = {"name": self._namespace, "labels": dict(self._ground.labels)}
            manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
            self._ground.setup.create(NAMESPACES, manifest)

    def _create_claim(self, name: str, requests: Sequence[Object], *, match: str = "") -> None:
        devices: Object = {
            "requests": [{"name": f"device-{index}", "exactly": each} for index, each in enumerate(requests)]
        }
        if match:
            devices["constraints"] = [{"matchAttribute": match}]
        manifest = {
            "apiVersion": RESOURCE_CLAIMS.api_version,
            "kind": "ResourceClaim",
            "metadata": {"name": name, "labels": dict(self._ground.labels)},
            "spec": {"devices": devices},
        }
        self._ground.setup.create(RESOURCE_CLAIMS, manifest, self._namespace)

    def _create_pod(self, name: str, claims: Sequence[str], *, node: str = "") -> None:
        manifest = objects.filler(self._ground.names, name, node, claims)
        if not node:
            del manifest["spec"]["nodeSelector"]["kubernetes.io/hostname"]
        self._ground.setup.create(PODS, manifest, self._namespace)

    def _wait_allocated(self, count: int, what: str) -> None:
        def allocated() -> bool:
            claims = self._ground.setup.list(RESOURCE_CLAIMS, self._namespace)
            there = sum(1 for claim in claims if claim.get("status", {}).get("allocation"))
            if there < count:
                raise NotYet(f"{there} of {count} claims are allocated")
            return True

        wait_until(allocated, _SETTLE_SECONDS, what, interval=0.5)

    def _event(self, kind: str, obj: Object, at: float) -> None:
        words = obj.get("message", "") or obj.get("note", "")
        if obj.get("reason") == "FailedScheduling" and TIMED_OUT in words:
            with self._lock:
                # A repeated event counts up in its series, or is one more of its kind.
                again = obj.get("series", {}).get("count") or obj.get("count") or 1
                self._timeouts = max(self._timeouts + (kind == "ADDED"), int(again))

    def _keeps_up(self, done: Done, p99: Quantile) -> RequirementResult:
        rate = bound_rate(done.report)
        offered = done.report.intended / max(done.report.seconds, 1.0)
        fine = rate >= _KEEPS_UP * offered and p99.seconds <= _PARTITIONED_P99 and not unfinished(done.report)
        nodes = len(self._ground.simulated)
        message = (
            f"expected: {offered:.1f} pods/s on {nodes} nodes, p99 at most {_PARTITIONED_P99:g} s\n"
            f"observed: {rate:.1f} pods/s, p99 {p99}, {unfinished(done.report)} pods without an end"
        )
        result = Result.PASS if fine else Result.FAIL
        figures = {"nodes": figure(nodes), "bound": figure(rate, "/s"), "p99": seconds(p99)}
        return requirement("PRT-09", result, "" if fine else message, **figures)

    def _driver(self, kind: str) -> str:
        return f"{kind}.{self._ground.names.token}.load.dra-harness.dev"

    def _class(self, kind: str) -> str:
        return self._ground.names.name(kind)


def partitions() -> list[Object]:
    """A whole device, two halves and four quarters, which share four counters."""
    sizes = [("whole", 4, 1), ("half", 2, 2), ("quarter", 1, 4)]
    return [
        {
            "name": f"{name}-{index}",
            "attributes": {"quarters": {"int": size}},
            "consumesCounters": [{"counterSet": "gpu", "counters": {"quarters": {"value": str(size)}}}],
        }
        for name, size, count in sizes
        for index in range(count)
    ]


def as_fast(pods: int, p99: Quantile, quiet: Quantile) -> RequirementResult:
    """BND-09, from the churn's p99 beside so many waiting pods and alone."""
    limit = max(_AS_FAST * quiet.seconds, quiet.seconds + _SLACK)
    fine = p99.seconds <= limit and not p99.at_least
    message = (
        f"expected: p99 at most {limit:.3f} s, as without {pods} waiting pods ({quiet})\nobserved: p99 {p99}"
    )
    figures = {"waiting": figure(pods), "p99": seconds(p99), "quiet": seconds(quiet)}
    return requirement("BND-09", Result.PASS if fine else Result.FAIL, "" if fine else message, **figures)


def timed_out(attempts: int) -> RequirementResult:
    """COR-03, from how many attempts ended by the filter timeout."""
    figures = {"attempts": figure(attempts)}
    message = f"expected: attempts end with {TIMED_OUT!r}, and the pod is tried again\nobserved: {attempts}"
    fine = attempts >= 2
    return requirement("COR-03", Result.PASS if fine else Result.FAIL, "" if fine else message, **figures)
