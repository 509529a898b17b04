"""What the engine makes of checks: events, results, evidence, clean-up."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clusters import processes
from harness import events
from harness.errors import HarnessError
from harness.events import CheckFinished, CheckStarted, Event
from harness.waiting import wait_until
from suites import checks, engine
from tests.suites.engine_run import EXPECTED, MESSAGES, OUTCOMES, EngineRun

pytestmark = pytest.mark.process


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


ELSEWHERE = """
    @requirement("COR-01")
    def test_with(made):
        raise AssertionError("it ran")

    @requirement("COR-01")
    @without_driver
    def test_without(cluster):
        assert cluster.nodes == ()

    @pytest.fixture
    def made(request):
        (request.config.getoption("--run-dir") / "made").touch()
"""


def test_where_no_driver_can_run_a_check_that_starts_one_is_blocked_first(tmp_path: Path) -> None:
    run = EngineRun(tmp_path, ELSEWHERE)
    run.cluster = dataclasses.replace(run.cluster, nodes=(), nodes_elsewhere=("far",))
    run.execute()
    assert {name: str(event.result) for name, event in run.finished.items()} == {
        "with": "blocked",
        "without": "pass",
    }
    assert run.finished["with"].message.startswith("needs a driver whose faults can be switched")
    assert not (run.run_dir / "made").exists()


ORPHANS = """
    from pathlib import Path

    @pytest.fixture
    def made(request):
        folder = request.config.getoption("--run-dir")
        (folder / f"made-{request.node.name}").touch()
        yield folder
        (folder / f"made-{request.node.name}").unlink()
        (folder / f"gone-{request.node.name}").touch()

    @requirement("COR-01")
    @pytest.mark.parametrize("number", range(3))
    def test_orphan(number, made):
        wait_until((made / "go").exists, 30, "the test to say so")
"""


def test_checks_whose_run_was_killed_clean_up_and_end(tmp_path: Path) -> None:
    run = EngineRun(tmp_path, ORPHANS)

    def start() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checks, "SUITES", run.suite)
            patch.setattr(engine, "SUITES", run.suite)
            engine.Running(["test_it.py"], engine.Execution(run.run_dir, run.cluster, 7, 1))
        wait_until(lambda: list(run.run_dir.glob("made-*")), 60, "the first check to be under way")
        os._exit(0)  # as a killed run: without a word to its checks

    starter = multiprocessing.get_context("fork").Process(target=start)
    starter.start()
    starter.join()
    (run.run_dir / "go").touch()
    wait_until(lambda: not processes.find(run.cluster_id), 60, "the checks to end")
    assert len(run.started) == 1
    assert not list(run.run_dir.glob("made-*"))
    assert len(list(run.run_dir.glob("gone-*"))) == 1
