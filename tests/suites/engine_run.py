"""The real engine and plugin on checks that are written here, against a cluster that is a file only."""

from __future__ import annotations

import secrets
import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from clusters.interface import Cluster, Node, Profile
from harness import events, journal
from harness.events import CheckFinished, CheckStarted, Event, PlannedRequirement
from suites import checks, engine

CONFTEST = """
    import datetime
    import pytest
    from suites import plugin
    from suites.catalogue import Catalogue, Deviation, load

    def known(issue, year):
        return Deviation.model_validate({
            "issue": issue, "url": "https://example.org", "versions": ">=1.30", "summary": "It is broken.",
            "expires": datetime.date(year, 1, 1)})

    real = load()
    core = real.areas["core"]
    deviations = {"deviations": (known("k/k#1", 9999), )}, {"deviations": (known("k/k#2", 2000), )}
    requirements = [
        each.model_copy(update=dict(zip(("COR-01", "COR-02"), deviations)).get(each.id, {}))
        for each in core.requirements
    ]
    core = core.model_copy(update={"requirements": tuple(requirements)})
    catalogue = Catalogue({**real.areas, "core": core})
    plugin.load = lambda: catalogue

    @pytest.fixture
    def broken_setup(cluster):
        raise KeyError("setup")

    @pytest.fixture
    def broken_teardown(cluster):
        yield
        raise AssertionError("left over")

    @pytest.fixture
    def blocked_setup(cluster):
        from harness.errors import EnvironmentBlocked
        raise EnvironmentBlocked("no gate DRAFoo")
"""
IMPORTS = """
    import os, signal, warnings
    import pytest
    from harness.errors import EnvironmentBlocked, RequirementFailed
    from harness.kube import ApiError
    from harness.waiting import NotYet, wait_until
    from suites.expect import expect_equal, symptom
    from suites.marks import deviation, exclusive, requirement, without_driver
"""
OUTCOMES = """
    @requirement("COR-01", "COR-02")
    def test_pass(evidence):
        evidence("seen", {"devices": ["gpu-0"], "token": "hunter2hunter2"})

    @requirement("COR-01")
    def test_assert(cluster, evidence):
        evidence("seen", 1)
        devices = ["gpu-0"]
        assert devices == ["gpu-1"]

    @requirement("COR-01")
    def test_promise(cluster):
        pod = {"kind": "Pod", "metadata": {"name": "p", "managedFields": []}, "spec": {"password": "hunter2"}}
        raise RequirementFailed("the pod runs", "it waits; --token=hunter2hunter2", pod)

    @requirement("COR-01")
    def test_timeout(cluster):
        def probe():
            raise NotYet("phase Pending")
        wait_until(probe, 0, "pod p to run")

    @requirement("COR-01")
    def test_refused(cluster):
        raise ApiError("POST", "/api/v1/pods", 403, '{"reason": "Forbidden", "message": "quota"}')

    @requirement("COR-01")
    def test_overloaded(cluster):
        raise ApiError("POST", "/api/v1/pods", 429, '{"reason": "TooManyRequests", "message": "later"}')

    @requirement("COR-01")
    def test_not_refused(cluster):
        with pytest.raises(ApiError):
            pass

    @requirement("COR-01")
    def test_error(cluster):
        {}["missing"]

    @requirement("COR-01")
    def test_warning(cluster):
        warnings.warn("something is deprecated")

    @requirement("COR-01")
    def test_broken_setup(broken_setup):
        pass

    @requirement("COR-01")
    def test_broken_teardown(broken_teardown):
        pass

    @requirement("COR-01")
    def test_broken_twice(broken_teardown):
        assert 1 == 2

    @requirement("COR-01")
    def test_blocked(cluster):
        raise EnvironmentBlocked("no such hardware")

    @requirement("COR-01")
    def test_blocked_setup(blocked_setup):
        pass

    @requirement("COR-01")
    def test_skip(cluster):
        pytest.skip("for a reason")

    @requirement("COR-01")
    @deviation("k/k#1")
    def test_expected(cluster):
        with symptom("k/k#1", "the name"):
            expect_equal("the name", "known", "promised")

    @requirement("COR-01")
    @deviation("k/k#1")
    def test_foreign(cluster):
        with symptom("k/k#1", "the name"):
            expect_equal("the count", 1, 2)

    @requirement("COR-01")
    @deviation("k/k#1")
    def test_expected_twice(broken_teardown):
        with symptom("k/k#1", "the name"):
            expect_equal("the name", "known", "promised")

    @requirement("COR-01")
    @deviation("k/k#1")
    def test_unexpected_pass(cluster):
        pass

    @requirement("COR-02")
    @deviation("k/k#2")
    def test_expired(cluster):
        with symptom("k/k#2", "the name"):
            expect_equal("the name", "known", "promised")

    @requirement("COR-01")
    def test_marked(cluster):
        found = {name: value for name, value in os.environ.items() if name.startswith("DRA_HARNESS_C")}
        assert found == {"DRA_HARNESS_CLUSTER": cluster.id, "DRA_HARNESS_COMPONENT": "checks"}

    @requirement("COR-01")
    def test_not_alone(control):
        pass

    @requirement("COR-01")
    @exclusive
    def test_alone(control):
        control.restart("kube-scheduler")
"""
EXPECTED = {
    "pass": "pass",
    "assert": "fail",
    "promise": "fail",
    "timeout": "fail",
    "refused": "fail",
    "overloaded": "error",
    "not_refused": "fail",
    "error": "error",
    "warning": "error",
    "broken_setup": "error",
    "broken_teardown": "error",
    "broken_twice": "fail",
    "blocked": "blocked",
    "blocked_setup": "blocked",
    "skip": "skipped",
    "expected": "expected-fail",
    "foreign": "fail",
    "expected_twice": "error",
    "unexpected_pass": "fail",
    "expired": "fail",
    "marked": "pass",
    "not_alone": "error",
    "alone": "blocked",
}
MESSAGES = {
    "pass": "",
    "assert": "assert ['gpu-0'] == ['gpu-1']",
    "promise": "expected: the pod runs\nobserved: it waits; --token=[redacted]",
    "timeout": "waited 0 s for pod p to run; last seen: phase Pending",
    "refused": "POST /api/v1/pods: 403 Forbidden: quota",
    "overloaded": "in call: ApiError: POST /api/v1/pods: 429 TooManyRequests: later",
    "not_refused": "DID NOT RAISE ApiError",
    "error": "in call: KeyError: 'missing'",
    "warning": "in call: UserWarning: something is deprecated",
    "broken_setup": "in setup: KeyError: 'setup'",
    "broken_teardown": "in teardown: AssertionError: left over",
    "broken_twice": "assert 1 == 2\nin teardown: AssertionError: left over",
    "blocked": "no such hardware",
    "blocked_setup": "no gate DRAFoo",
    "skip": "for a reason",
    "expected": ("known deviation k/k#1: It is broken.\nexpected: the name: 'promised'\nobserved: 'known'"),
    "foreign": ("expected: the count: 2\nobserved: 1\nthis is not what the known deviation k/k#1 looks like"),
    "expected_twice": "in teardown: AssertionError: left over\nknown deviation k/k#1: It is broken.\n",
    "unexpected_pass": "expected to fail because of k/k#1, but it passed: It is broken.",
    "expired": "the known deviation k/k#2 expired on 2000-01-01",
    "marked": "",
    "not_alone": "in setup: HarnessError: test_it.py::test_not_alone: a check that restarts components",
    "alone": "components of a paper cluster can't be restarted from here",
}


class EngineRun:
    """One run of the engine: a run's folder, and the events that were handed on."""

    def __init__(self, folder: Path, text: str, requirements: dict[str, list[str]] | None = None) -> None:
        self.cluster_id = secrets.token_hex(8)  # other tests of the same moment look for marks, too
        self.suite = folder / "suite"
        self.suite.mkdir()
        shutil.copy(checks.SUITES / "pytest.ini", self.suite)
        (self.suite / "conftest.py").write_text(textwrap.dedent(CONFTEST))
        self.elsewhere = folder / "elsewhere"
        self.elsewhere.mkdir()
        for name in ("pytest", "suites", "harness", "yaml"):
            (self.elsewhere / f"{name}.py").write_text(
                "raise SystemExit('a file of the user was taken for ours')"
            )
        self.file = self.suite / "test_it.py"
        self.file.write_text(textwrap.dedent(IMPORTS) + textwrap.dedent(text))
        self.run_dir = folder / "run-1"
        self.run_dir.mkdir()
        logs = folder / "cluster" / "logs"
        logs.mkdir(parents=True)
        (logs / "kube-apiserver.log").write_text("I0301 started with --token=hunter2hunter2\n")
        node = Node("node-1", folder / "kubelet", "/var/lib/kubelet", folder / "cdi")
        self.cluster = Cluster(
            name="c",
            provider="paper",
            kubernetes="v1.37.2",
            profile=Profile.GA,
            kubeconfig=folder / "none.kubeconfig",
            nodes=(node,),
            directory=folder / "cluster",
            gates={},
            id=self.cluster_id,
            driver_kubeconfig=folder / "none.kubeconfig",
        )
        planned = [
            PlannedRequirement(
                requirement=name, level="MUST", owner="S", text="t.", source="s", area="core", checks=ids
            )
            for name, ids in (requirements or {}).items()
        ]
        journal.Journal(self.run_dir).append(events.PlanMade(at=events.now(), requirements=planned))
        self.handed_on: list[Event] = []

    def execute(
        self, *names: str, parallel: int = 1, seed: int = 7, on_event: Callable[[Event], None] | None = None
    ) -> None:
        wanted = [f"test_it.py::test_{name}" for name in names] or ["test_it.py"]
        execution = engine.Execution(self.run_dir, self.cluster, seed, parallel)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checks, "SUITES", self.suite)
            patch.setattr(engine, "SUITES", self.suite)
            patch.chdir(self.elsewhere)
            engine.execute(wanted, execution, on_event or self.handed_on.append)

    @property
    def journalled(self) -> list[Event]:
        return journal.read(self.run_dir)[1:]

    @property
    def finished(self) -> dict[str, CheckFinished]:
        found = [event for event in self.journalled if isinstance(event, CheckFinished)]
        assert len(found) == len({event.check for event in found})
        return {event.check.partition("::test_")[2]: event for event in found}

    @property
    def started(self) -> list[str]:
        return [
            event.check.partition("::test_")[2]
            for event in self.journalled
            if isinstance(event, CheckStarted)
        ]
