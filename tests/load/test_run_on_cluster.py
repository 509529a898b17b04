"""Whole load runs from the command line, on a cluster with simulated nodes that stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import yaml

from clusters import leftovers, processes
from clusters.components import BuildSource
from clusters.interface import Cluster, ClusterSpec, SilentProgress
from clusters.local.provider import LocalProvider
from clusters.metrics import SCHEDULER
from harness.kube import ApiError, KubeClient
from harness.results import Result
from harness.waiting import wait_until
from load.model import Cause, Stage
from load.result import LoadResult, TrialResult, Verdict, read

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

RUN_SECONDS = 400


@dataclass(frozen=True)
class Site:
    """A cluster for load, and where runs on it leave their results."""

    cluster: Cluster
    environment: dict[str, str]
    results: Path

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "cli.main", "load", *arguments, "--cluster", self.cluster.name]

    def load(self, run_id: str, *arguments: str) -> LoadResult:
        """Run to the end; a busy machine may make it INVALID, which is for the test to look at."""
        done = subprocess.run(
            self.command(*arguments, "--run-id", run_id),
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_SECONDS,
        )
        assert done.returncode in (0, 1, 3), done.stdout + done.stderr
        assert (self.results / run_id / "load.json").exists(), done.stdout + done.stderr
        result = read(self.results / run_id)
        assert result.verdict.exit_code == done.returncode
        return result

    def left(self, run_id: str) -> list[str]:
        """What is still there of a run."""
        return leftovers.remaining(KubeClient.from_kubeconfig(self.cluster.kubeconfig), run_id)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("load")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRA_HARNESS_STATE", str(root / "state"))
        patch.setenv("DRA_HARNESS_RESULTS", str(root / "results"))
        provider = LocalProvider(BuildSource())
        spec = ClusterSpec(name="loaded", nodes=1, simulated_nodes=30, ephemeral=True)
        cluster = provider.up(spec, SilentProgress())
        yield Site(cluster, {**os.environ, "NO_COLOR": "1"}, root / "results")
        provider.down("loaded")


def closed(trial: TrialResult) -> bool:
    """Whether every pod that came due has one cause, and client and server agree on what both counted."""
    return sum(trial.causes.values()) == trial.intended and all(
        line.balanced for line in trial.books if line.binding
    )


@pytest.fixture(scope="module")
def churn(site: Site) -> LoadResult:
    return site.load("churn", "ext-churn", "--rate", "5", "--seconds", "8", "--seed", "7")


def test_every_pod_of_the_churn_is_accounted_for(churn: LoadResult) -> None:
    main, plugin = churn.trials

    assert (main.name, plugin.name) == ("main", "plugin")
    assert closed(main)
    assert closed(plugin)
    assert main.causes[Cause.COMPLETED] == main.intended > 20
    assert not main.violations


def test_the_scheduler_made_a_claim_for_each_pod(churn: LoadResult) -> None:
    main, plugin = churn.trials

    assert main.server is not None
    assert plugin.server is not None
    assert main.server.claim_creates["kube-scheduler"]["success"] == main.intended
    assert not plugin.server.claim_creates["kube-scheduler"].get("success", 0), "no claim behind a plugin"
    assert main.figures["special-claims-off"].value == 0
    assert main.figures["without-status"].value == 0


def test_the_limits_that_were_in_force_are_in_the_result(churn: LoadResult) -> None:
    assert churn.observed_limits == dict.fromkeys(("kube-controller-manager", "kube-scheduler"), "1000/2000")


def test_the_servers_queues_were_looked_at_meanwhile(churn: LoadResult) -> None:
    server = churn.trials[0].server
    assert server is not None
    levels = {each.name: each.most_inqueue for each in server.apf_levels}
    assert levels["workload-low"] is not None
    assert {each.name for each in server.workqueues if each.deepest is not None} >= {"resource_claim"}


def test_the_run_gives_results_for_its_requirement(churn: LoadResult) -> None:
    (found,) = churn.requirements

    assert found.requirement == "APF-07"
    judged = {Result.PASS, Result.FAIL} if churn.verdict is not Verdict.INVALID else {Result.BLOCKED}
    assert found.result in judged, "a busy machine makes the run INVALID, which says nothing"
    assert {"dra", "plugin", "rejected"} == set(found.figures)


def test_nothing_is_left_of_a_run(site: Site, churn: LoadResult) -> None:
    assert site.left(churn.run_id) == []
    assert not list((site.results / churn.run_id).rglob("*.kubeconfig")), "credentials end with the run"


def test_a_squeeze_is_seen_alike_from_both_sides(site: Site) -> None:
    """The generator's 429s are those that the server counts for its flow schema; so are the scheduler's.

    The aggressor shares the victim's level in a flow schema of its own, and presses on a generator, too.
    """
    arms = ("generator-reject-1-list", "scheduler-reject-1-list")
    chosen = [word for arm in arms for word in ("--arm", arm)]

    result = site.load("squeeze", "apf-starve", "--rate", "12", "--seconds", "14", *chosen)

    control, generator, scheduler = result.trials
    assert [each.name for each in (generator, scheduler)] == list(arms)
    assert all(map(closed, result.trials))
    assert control.causes == {Cause.COMPLETED: control.intended}
    assert generator.settings["victim"] == "generator"
    answers = sum(each.by_code.get("429", 0) for each in generator.requests)
    assert generator.figures["rejected"].value == answers
    assert scheduler.server is not None
    refused = scheduler.server.client_429["kube-scheduler"]
    assert scheduler.figures["rejected"].value == refused > 0
    for arm in (generator, scheduler):
        assert arm.figures["aggressor-lists"].value + arm.figures["aggressor-429"].value > 0
        assert not arm.generator.faults
        assert arm.figures["recovery"].value >= 0
        assert arm.stage(Stage.BOUND, window="squeezed")
    assert site.left("squeeze") == []


def disturbed(
    site: Site, run_id: str, *arguments: str, act: Callable[[subprocess.Popen[bytes]], None]
) -> LoadResult:
    """Run to the end, with an act once the load is going on."""
    progress = site.results / run_id / "trials" / "01-main" / "progress.ndjson"
    log = site.results.with_name(f"{run_id}.log")
    with (
        log.open("w") as output,
        subprocess.Popen(
            site.command(*arguments, "--run-id", run_id),
            env=site.environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as running,
    ):

        def going_on() -> bool:
            assert running.poll() is None, log.read_text()
            return progress.exists() and progress.read_text().count("\n") > 5

        try:
            wait_until(going_on, 120, "the load to go on")
            act(running)
            running.wait(200)
        finally:
            running.kill()
    print(log.read_text())  # noqa: T201 - pytest shows it with a failure
    result = read(site.results / run_id)
    assert running.returncode == result.verdict.exit_code
    return result


def test_ctrl_c_ends_a_run_with_what_was_measured(site: Site) -> None:
    arguments = ("ext-churn", "--rate", "5", "--seconds", "300")
    result = disturbed(site, "stopped", *arguments, act=lambda running: running.send_signal(signal.SIGINT))
    assert result.verdict is Verdict.INVALID
    assert result.interrupted
    assert any("interrupted" in reason for reason in result.reasons)
    assert result.trials[0].intended > 0
    assert closed(result.trials[0])
    assert site.left("stopped") == []


@pytest.fixture
def short(tmp_path: Path) -> str:
    """A profile whose drain gives up soon."""
    path = tmp_path / "short.yaml"
    size = {"simulated_nodes": 30, "rate": 5, "seconds": 12, "drain": 5}
    profile = {
        "name": "short",
        "title": "Short",
        "asks": "Does it end?",
        "reports": "That it did.",
        "pods": [{"name": "a", "via": "template"}],
        "criteria": [{"measure": "bound.p99", "at_most": 60}],
        "sizes": {"S": size, "M": size},
    }
    path.write_text(yaml.safe_dump(profile))
    return str(path)


def test_a_scheduler_that_dies_is_said_and_started_again(site: Site, short: str) -> None:
    def kill(_: object) -> None:
        processes.kill(site.cluster.id, SCHEDULER)

    result = disturbed(site, "unscheduled", short, act=kill)
    assert result.verdict is Verdict.INVALID
    assert any(SCHEDULER in reason for reason in result.reasons)
    assert closed(result.trials[0])
    assert result.trials[0].causes.get(Cause.COMPLETED, 0) < result.trials[0].intended
    assert site.left("unscheduled") == []
    assert processes.main_pid(site.cluster.id, SCHEDULER, SCHEDULER)


def test_an_etcd_that_stands_still_is_said_and_the_run_goes_on(site: Site, short: str) -> None:
    admin = KubeClient.from_kubeconfig(site.cluster.kubeconfig)

    def unanswered() -> bool:
        try:
            admin.request("GET", "/readyz/etcd")
        except ApiError:
            return True
        return False

    def pause(_: object) -> None:
        pid = processes.main_pid(site.cluster.id, "etcd", "etcd")
        etcd = psutil.Process(pid)
        etcd.suspend()
        try:
            wait_until(unanswered, 60, "the API server to say so")
            threading.Event().wait(4)  # the run asks each second, and waits two for the answer
        finally:
            etcd.resume()

    result = disturbed(site, "paused", short, act=pause)
    assert any("storage did not answer" in note for note in result.trials[0].notes)
    assert closed(result.trials[0])
    assert result.trials[0].causes[Cause.COMPLETED] == result.trials[0].intended
    assert site.left("paused") == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ext-churn", "--rate", "500"], "sizes.S.rate"),
        (["ext-churn", "--arm", "x"], "--arm x"),
        (["nope"], "no load profile 'nope'"),
    ],
)
def test_what_cannot_be_makes_nothing(
    site: Site, arguments: list[str], words: str, snapshot: Callable[[], set[Path]]
) -> None:
    before = snapshot()

    done = subprocess.run(
        site.command(*arguments),
        env=site.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("error:") == 1
    assert snapshot() == before


@pytest.fixture
def snapshot(site: Site) -> Callable[[], set[Path]]:
    """The runs' folders."""
    return lambda: set(site.results.iterdir()) if site.results.exists() else set()
