"""Synthetic runs. What they must come to is written out in the tests, not derived here."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from harness import events, journal
from harness.events import CheckFinished, Event, Evidence, PlannedRequirement
from harness.results import Result

START = datetime.datetime(2026, 3, 1, 2, 0, tzinfo=datetime.UTC)
RULES = "suites/taints/test_rules.py"
CLASSES = "suites/extended/test_classes.py"
QUOTA = "suites/quota/test_quota.py"


@pytest.fixture(autouse=True)
def _plain_console(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests decide on width and colour, not the shell that they are started from."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)


def _started() -> events.RunStarted:
    return events.RunStarted(
        at=START,
        run_id="20260301-020000-7f3a",
        suite_version="0.1.0",
        suite_commit="5d41402abc4b2a76b9719d911017c592",
        catalogue_digest="9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        command=["dra-harness", "run", "--kubernetes", "v1.37.2", "--seed", "42"],
        seed=42,
        areas=["extended", "taints", "quota"],
    )


@pytest.fixture
def started() -> events.RunStarted:
    return _started()


@pytest.fixture
def small_run() -> Callable[..., list[Event]]:
    """A run with one requirement (level and decision as given) and one check for each result."""

    def make(
        results: Sequence[Result],
        *,
        level: str = "MUST",
        decision: Result | None = None,
        planned_only: int = 0,
        faults: int = 0,
        exit_code: int | None = 0,
    ) -> list[Event]:
        names = [f"suites/one/test_one.py::test_one[{n}]" for n in range(len(results) + planned_only)]
        only = PlannedRequirement(
            requirement="ONE-01",
            level=level,
            owner="S",
            text="it holds",
            source="KEP-1",
            area="one",
            checks=names,
            decision=decision,
            reason="so it was decided" if decision else "",
        )
        log: list[Event] = [_started(), events.PlanMade(at=START, requirements=[only])]
        for name, result in zip(names, results, strict=False):
            log += [events.CheckStarted(at=START, check=name), _check(name, ["ONE-01"], result, 0.5)]
        log += [events.HarnessFault(at=START, message="disk full")] * faults
        if exit_code is not None:
            log.append(events.RunFinished(at=START, exit_code=exit_code, seconds=9.0))
        return log

    return make


def _check(
    name: str, requirements: list[str], result: Result, seconds: float, **more: object
) -> CheckFinished:
    values = {"at": START, "check": name, "requirements": requirements, "result": result, "seconds": seconds}
    return CheckFinished.model_validate({**values, "worker": "gw0", **more})


def _plan(
    name: str, owner: str, text: str, source: str, checks: list[str], **more: object
) -> PlannedRequirement:
    area = {"ER": "extended", "TNT": "taints", "QTA": "quota"}[name.partition("-")[0]]
    values = {"requirement": name, "owner": owner, "text": text, "source": source, "area": area}
    return PlannedRequirement.model_validate({**values, "level": "MUST", "checks": checks, **more})


_PLANS = [
    _plan(
        "ER-01",
        "S,L",
        "An unchanged pod with an extended resource runs on a node that has DRA only, with n devices.",
        "KEP-5004, Design",
        [f"{CLASSES}::test_pod_runs[explicit]", f"{CLASSES}::test_pod_runs[implicit]"],
    ),
    _plan(
        "ER-10",
        "S,C,A",
        "Creating the new class and then clearing the name on the old one keeps the name served.",
        "KEP-5004, DeviceClass API",
        [f"{CLASSES}::test_handover[clear-old]"],
    ),
    _plan(
        "ER-19",
        "L",
        "DRA capacity is not added to the node's status.",
        "KEP-5004, Goals",
        [f"{CLASSES}::test_node_status"],
        level="MUST NOT",
    ),
    _plan(
        "TNT-01",
        "S",
        "A NoSchedule taint in a slice keeps a pod Pending; a matching toleration admits it.",
        "KEP-5055, e2e",
        [f"{RULES}::test_noschedule[slice]", f"{RULES}::test_noschedule[rule]"],
    ),
    _plan(
        "TNT-03",
        "C,S",
        "NoExecute deletes running pods, and the replacement lands on an untainted device.",
        "KEP-5055, e2e",
        [f"{RULES}::test_eviction"],
    ),
    _plan(
        "TNT-16",
        "C",
        "Pods evicted equal the increase of the deletions metric.",
        "KEP-5055, SLI",
        [f"{RULES}::test_evicted_metric"],
        level="SHOULD",
        decision="unsupported",
        reason="the version does not claim it: v1.38 and later",
    ),
    _plan(
        "TNT-17",
        "D",
        "Driver taint keys use a vendor domain.",
        "KEP-5055, Design",
        [],
        level="SHOULD",
        decision="not-covered",
    ),
    _plan(
        "QTA-01",
        "A",
        "Class quota charges the exact count, 32 for All, and the maximum of firstAvailable.",
        "KEP-4381, Quota",
        [f"{QUOTA}::test_charge"],
    ),
    _plan(
        "QTA-02",
        "A",
        "The special claim is charged to class quota and to count/resourceclaims.",
        "KEP-5004, Quota",
        [f"{QUOTA}::test_charge", f"{QUOTA}::test_special"],
    ),
    _plan(
        "QTA-03",
        "A,C",
        "requests.<ext> counts plugin pods, DRA pods and claims of the mapped class once each.",
        "KEP-5004, Quota",
        [f"{QUOTA}::test_plugin"],
        decision="blocked",
        reason="needs a node with a device plugin; the cluster has none",
    ),
    _plan(
        "QTA-04",
        "A,C",
        "Implicit quota counts DRA devices only.",
        "KEP-5004, Quota",
        [f"{QUOTA}::test_implicit"],
        decision="blocked",
        reason="needs a node with a device plugin; the cluster has none",
    ),
    _plan(
        "QTA-05",
        "A,C",
        "The example of the KEP reaches used 5/4/4.",
        "KEP-5004, Quota",
        [f"{QUOTA}::test_example"],
        decision="blocked",
        reason="needs a node with a device plugin; the cluster has none",
    ),
    _plan(
        "QTA-09",
        "A",
        "Records whether plain claims are charged to implicit quota.",
        "source of v1.37.2",
        [f"{QUOTA}::test_record"],
        level="SHOULD",
        decision="skipped",
        reason="left out by -k",
    ),
]

_ALLOCATION = {
    "devices": {
        "results": [
            {"driver": "gpu.dra.test", "pool": "node-1", "device": f"gpu-{index}", "request": "req-0"}
            for index in range(2)
        ]
    }
}

_CHECKS = [
    _check(
        f"{CLASSES}::test_pod_runs[explicit]",
        ["ER-01"],
        Result.PASS,
        2.25,
        evidence=[
            Evidence(title="pod phase", value="Running"),
            Evidence(title="devices", value=2),
            Evidence(title="claim status", value={"allocation": _ALLOCATION}),
        ],
    ),
    _check(f"{CLASSES}::test_pod_runs[implicit]", ["ER-01"], Result.PASS, 1.75),
    _check(
        f"{CLASSES}::test_handover[clear-old]",
        ["ER-10"],
        Result.EXPECTED_FAIL,
        31.5,
        message="the name is left unmapped: https://github.com/kubernetes/kubernetes/issues/141103.",
        evidence=[Evidence(title="condition", value="PodScheduled=False: Insufficient")],
    ),
    _check(f"{CLASSES}::test_node_status", ["ER-19"], Result.PASS, 0.5),
    _check(f"{RULES}::test_noschedule[slice]", ["TNT-01"], Result.PASS, 3.0),
    _check(
        f"{RULES}::test_noschedule[rule]",
        ["TNT-01"],
        Result.FAIL,
        12.5,
        message="expected: the pod stays Pending while the rule is there\n"
        "observed: pod test-7x/pod-1 was bound to node-1, device gpu-0 (see k/k#99999)",
        details='Traceback (most recent call last):\n  File "test_rules.py", line 40\nRequirementFailed',
        evidence=[
            Evidence(title="<script>document.title='owned'</script>", value="<img src=x onerror=alert(1)>"),
            Evidence(title="rule", value={"spec": {"taint": {"key": "</script><script>document.title=1"}}}),
        ],
        artifacts=["artifacts/tnt-01/events.yaml", "../outside", "javascript:alert(1)"],
    ),
    _check(
        f"{RULES}::test_eviction",
        ["TNT-03"],
        Result.ERROR,
        0.25,
        message="the driver's control socket is gone",
        details="ConnectionRefusedError",
    ),
    _check(f"{QUOTA}::test_charge", ["QTA-01", "QTA-02"], Result.PASS, 4.5),
]


@pytest.fixture
def every_result() -> list[Event]:
    """A finished run that has every status.

    Requirements: 1 fail (TNT-01), 1 error (TNT-03), 1 unfinished (QTA-02), 1 expected-fail (ER-10), 3 blocked
    (QTA-03..05), 1 skipped (QTA-09), 1 unsupported (TNT-16), 1 not-covered (TNT-17), 3 pass (ER-01, ER-19,
    QTA-01): 13. Checks: 5 pass, 1 each of fail, error, expected-fail and unfinished (test_special).
    """
    ready = events.ClusterReady(
        at=START,
        name="ga",
        provider="local",
        kubernetes="v1.37.2",
        profile="ga",
        nodes=["node-1", "node-2"],
        seconds=21.4,
        phases={"certificates": 0.6, "etcd": 1.3, "kube-apiserver": 4.8, "nodes": 12.2, "slices": 2.5},
    )
    log: list[Event] = [_started(), events.PlanMade(at=START, requirements=_PLANS), ready]
    for check in _CHECKS:
        log += [events.CheckStarted(at=START, check=check.check), check]
    log.append(events.CheckStarted(at=START, check=f"{QUOTA}::test_special"))
    log.append(events.ClusterGone(at=START, name="ga", seconds=3.2))
    log.append(events.HarnessFault(at=START, message="worker gw1 died"))
    log.append(events.RunFinished(at=START, exit_code=1, seconds=95.0))
    return log


@pytest.fixture
def big_run() -> list[Event]:
    """1000 checks of 250 requirements, each with 30 kB of evidence that grows when escaped."""
    checks = [f"suites/big/test_big.py::test_it[{number}]" for number in range(1000)]
    value = {"text": '<"&>' * 7500}
    plans = [
        PlannedRequirement(
            requirement=f"BIG-{number:03}",
            level="MUST",
            owner="S",
            text="It holds at any size. " * 5,
            source="KEP-1",
            area=f"area-{number % 8}",
            checks=checks[4 * number : 4 * number + 4],
        )
        for number in range(250)
    ]
    log: list[Event] = [_started(), events.PlanMade(at=START, requirements=plans)]
    for plan, check in itertools.product(plans, range(4)):
        result = Result.FAIL if plan.requirement == "BIG-007" else Result.PASS
        evidence = [Evidence(title="object", value=value)]
        log.append(_check(plan.checks[check], [plan.requirement], result, 1.0, evidence=evidence))
    log.append(events.RunFinished(at=START, exit_code=1, seconds=1000.0))
    return log


@pytest.fixture
def recorded() -> Callable[[Path, Sequence[Event]], Path]:
    """Writes events into a run's folder as a run does, and returns the folder."""

    def record(run_dir: Path, log: Sequence[Event]) -> Path:
        run_dir.mkdir(parents=True, exist_ok=True)
        book = journal.Journal(run_dir)
        for event in log:
            book.append(event)
        return run_dir

    return record
