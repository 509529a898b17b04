"""The real engine and plugin on checks that are written here, against a cluster that is a file only."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from clusters.interface import Cluster, Node, Profile
from harness import events, journal
from harness.errors import HarnessError
from harness.events import CheckFinished, CheckStarted, Event, PlannedRequirement
from harness.waiting import wait_until
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
    from suites.marks import deviation, exclusive, requirement
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


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> EngineRun:
    requirements = {
        "COR-01": ["test_it.py::test_pass", "test_it.py::test_assert"],
        "COR-02": ["test_it.py::test_pass"],
    }
    run = EngineRun(tmp_path_factory.mktemp("outcomes"), OUTCOMES, requirements)
    run.execute()
    return run


@pytest.fixture(scope="module")
def in_parallel(tmp_path_factory: pytest.TempPathFactory) -> EngineRun:
    run = EngineRun(tmp_path_factory.mktemp("parallel"), OUTCOMES)
    run.execute(parallel=2)
    return run


@pytest.mark.parametrize("name", EXPECTED)
def test_every_way_to_end_has_its_result(outcomes: EngineRun, name: str) -> None:
    assert outcomes.finished[name].result == EXPECTED[name]
    assert MESSAGES[name] in outcomes.finished[name].message


def test_parallel_runs_come_to_the_same(outcomes: EngineRun, in_parallel: EngineRun) -> None:
    def told(run: EngineRun) -> dict[str, tuple[str, str]]:
        return {name: (event.result, event.message) for name, event in run.finished.items()}

    assert told(in_parallel) == told(outcomes)
    assert {event.worker for event in in_parallel.finished.values()} == {"gw0", "gw1"}
    assert {event.worker for event in outcomes.finished.values()} == {""}


def test_every_check_starts_before_it_ends_and_once(outcomes: EngineRun, in_parallel: EngineRun) -> None:
    for run in (outcomes, in_parallel):
        assert sorted(run.started) == sorted(EXPECTED)
        running: set[str] = set()
        for event in run.journalled:
            if isinstance(event, CheckStarted):
                running.add(event.check)
            elif isinstance(event, CheckFinished):
                running.remove(event.check)
        assert running == set()
        times = [event.at for event in run.journalled]
        assert times == sorted(times)


def test_events_are_handed_on_as_journalled(outcomes: EngineRun, in_parallel: EngineRun) -> None:
    for run in (outcomes, in_parallel):
        assert run.handed_on == run.journalled


def test_the_seed_decides_the_order(tmp_path: Path) -> None:
    text = "".join(f'\n@requirement("COR-01")\ndef test_{name}(): pass\n' for name in "abcdefgh")
    orders = []
    for folder in ("one", "again"):
        (tmp_path / folder).mkdir()
        run = EngineRun(tmp_path / folder, text)
        run.execute(seed=1)
        assert "Using --randomly-seed=1\n" in (run.run_dir / "pytest-c.log").read_text()
        orders.append(run.started)
    assert orders[0] == orders[1] != list("abcdefgh")
    assert sorted(orders[0]) == list("abcdefgh")


def test_evidence_is_kept_of_passes_and_failures_and_without_secrets(outcomes: EngineRun) -> None:
    (seen,) = outcomes.finished["pass"].evidence
    assert (seen.title, seen.value) == ("seen", {"devices": ["gpu-0"], "token": "[redacted]"})
    assert [item.value for item in outcomes.finished["assert"].evidence] == [1]
    assert "hunter2" not in (outcomes.run_dir / "events.ndjson").read_text()


def test_requirements_come_from_the_plan(outcomes: EngineRun) -> None:
    assert outcomes.finished["pass"].requirements == ["COR-01", "COR-02"]
    assert outcomes.finished["assert"].requirements == ["COR-01"]
    assert outcomes.finished["skip"].requirements == []


BAD = {name for name, result in EXPECTED.items() if result in ("fail", "error")}
WITH_DETAILS = BAD | {"expected"}


def test_failures_and_errors_have_their_traceback(outcomes: EngineRun) -> None:
    assert {name for name, event in outcomes.finished.items() if event.details} == WITH_DETAILS
    assert 'assert devices == ["gpu-1"]' in outcomes.finished["assert"].details
    assert "test_it.py" in outcomes.finished["error"].details
    both = outcomes.finished["broken_twice"].details
    assert "assert 1 == 2" in both
    assert "left over" in both
    for name in ("expected", "expected_twice"):
        assert 'expect_equal("the name", "known", "promised")' in outcomes.finished[name].details


def test_failures_and_errors_have_their_diagnostics(outcomes: EngineRun) -> None:
    with_artifacts = {name for name, event in outcomes.finished.items() if event.artifacts}
    assert with_artifacts == WITH_DETAILS
    assert outcomes.finished["assert"].artifacts == ["diagnostics/test-it.py-test-assert/kube-apiserver.log"]
    log = outcomes.run_dir / outcomes.finished["assert"].artifacts[0]
    assert log.read_text() == "I0301 started with --token=[redacted]\n"


def test_diagnostics_around_a_check_do_not_take_the_place_of_its_own(outcomes: EngineRun) -> None:
    folder = "diagnostics/test-it.py-test"
    assert {name: outcomes.finished[name].artifacts for name in ("broken_setup", "broken_twice")} == {
        "broken_setup": [f"{folder}-broken-setup/setup/kube-apiserver.log"],
        "broken_twice": [
            f"{folder}-broken-twice/kube-apiserver.log",
            f"{folder}-broken-twice/teardown/kube-apiserver.log",
        ],
    }
    for path in outcomes.finished["broken_twice"].artifacts:
        assert (outcomes.run_dir / path).exists()


def test_the_object_of_a_broken_promise_is_kept(outcomes: EngineRun) -> None:
    folder = "diagnostics/test-it.py-test-promise"
    assert outcomes.finished["promise"].artifacts == [f"{folder}/kube-apiserver.log", f"{folder}/object.yaml"]
    text = (outcomes.run_dir / folder / "object.yaml").read_text()
    assert text == "kind: Pod\nmetadata:\n  name: p\nspec:\n  password: [redacted]\n"


def test_allure_is_told_the_same(outcomes: EngineRun) -> None:
    found = {}
    for path in (outcomes.run_dir / "allure-results").glob("*-result.json"):
        result = json.loads(path.read_text())
        found[result["name"].removeprefix("test_")] = result["status"]
    good = {name for name, status in found.items() if status in ("passed", "skipped")}
    assert set(found) == set(EXPECTED)
    # Of a check that did not run to its end, Allure never takes notice of how its teardown went.
    assert good == set(EXPECTED) - BAD | {"expected_twice"}


def test_workers_take_no_module_from_where_the_user_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = EngineRun(tmp_path, CRASH)
    monkeypatch.chdir(run.elsewhere)
    run.execute("one", "two", parallel=2)
    assert {name: event.result for name, event in run.finished.items()} == {"one": "pass", "two": "pass"}


CRASH = """
    @requirement("COR-01")
    def test_crash(cluster):
        os._exit(9)

    @requirement("COR-01")
    def test_one(cluster):
        pass

    @requirement("COR-01")
    def test_two(cluster):
        pass

    @requirement("COR-01")
    def test_three(cluster):
        pass
"""


def test_a_worker_that_dies_is_an_error_of_its_check_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--no-such-option")  # the user's own must not reach the checks
    run = EngineRun(tmp_path, CRASH, {"COR-01": ["test_it.py::test_crash"]})
    run.execute(parallel=2)
    crashed = run.finished["crash"]
    assert (crashed.result, crashed.requirements) == ("error", ["COR-01"])
    assert crashed.message.startswith("the worker that ran it died: ")
    assert {name: event.result for name, event in run.finished.items()} == {
        "crash": "error",
        "one": "pass",
        "two": "pass",
        "three": "pass",
    }
    assert run.handed_on == run.journalled


def test_pytest_itself_dying_is_a_harness_error(tmp_path: Path) -> None:
    run = EngineRun(tmp_path, CRASH)
    with pytest.raises(HarnessError, match=r"^pytest ended with 9; see pytest-c\.log"):
        run.execute("crash")
    assert (run.started, run.finished) == (["crash"], {})


def test_a_check_that_is_not_there_is_a_harness_error(tmp_path: Path) -> None:
    run = EngineRun(tmp_path, CRASH)
    with pytest.raises(HarnessError, match="nothing_of_that_name"):
        run.execute("nothing_of_that_name")
    assert run.handed_on == []


ENDLESS = """
    import pathlib, threading

    @pytest.fixture
    def made(cluster):
        (cluster.directory / "made").touch()
        yield
        (cluster.directory / "cleaned").touch()

    @requirement("COR-01")
    def test_endless(made):
        threading.Event().wait(200)
"""


def test_an_interrupt_lets_the_checks_clean_up(tmp_path: Path) -> None:
    run = EngineRun(tmp_path, ENDLESS)
    made = tmp_path / "cluster" / "made"

    def interrupt(event: Event) -> None:
        if isinstance(event, CheckStarted):
            wait_until(made.exists, 60, "the check to be under way", interval=0.02)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.execute(on_event=interrupt)
    assert (tmp_path / "cluster" / "cleaned").exists()
    assert run.finished == {}


def test_a_half_written_event_waits_for_its_end(tmp_path: Path) -> None:
    handed_on: list[Event] = []
    path = tmp_path / "events.ndjson"
    path.write_bytes(b"old\n")
    follower = engine.Follower(path, handed_on.append)
    event = events.HarnessFault(at=events.now(), message="é")
    line = events.dump(event).encode() + b"\n"
    for end in range(len(line)):
        path.write_bytes(b"old\n" + line[:end])
        follower.drain()
        assert handed_on == []
    path.write_bytes(b"old\n" + line + line)
    follower.drain()
    follower.drain()
    assert handed_on == [event, event]


def test_plain_pytest_says_how_checks_are_run(tmp_path: Path) -> None:
    run = EngineRun(tmp_path, CRASH)
    command = [sys.executable, "-m", "pytest", *checks.base_arguments(), f"{run.file}::test_one"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "checks run through `dra-harness run`, which passes --cluster-file" in done.stdout
