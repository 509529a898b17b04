"""What was measured is told, whatever becomes of the cluster afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clusters.existing.provider import PROVIDER
from clusters.interface import Cluster, ClusterSpec, SilentProgress
from harness import events, journal
from harness.errors import EnvironmentBlocked, UsageError
from harness.kube import KubeClient
from load import runner, server, usage
from load.backlog import NOTHING_SEEN
from load.fingerprint import Fingerprint
from load.request import LoadRequest
from load.result import LoadResult, Verdict, read
from load.runner import LoadRunner
from load.scenarios.interface import Done, Findings
from load.trials import Finished, Site, TrialRunner
from tests.harness.api_server import write_config
from tests.support.api_server import serve
from tests.support.load_results import trial, worker_report
from tests.support.paper import paper_cluster


class Provider:
    """Has a cluster, and does not get rid of it."""

    name = "paper"

    def __init__(self, trouble: BaseException) -> None:
        self._trouble = trouble

    def up(self, spec: ClusterSpec, progress: object) -> Cluster:
        return paper_cluster(name=spec.name)

    def down(self, name: str, *, force: bool = False) -> None:
        raise self._trouble

    def restart(self, name: str, component: str, *, flags: object) -> None:
        if component == "kube-controller-manager":
            raise self._trouble


class Listener:
    """Hears, and forgets."""

    bring_up = SilentProgress()

    def said(self, text: str) -> None:
        pass

    def progress(self, snapshot: object) -> None:
        pass


@pytest.fixture
def carry_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a load of which some trials get finished before its cluster can't be removed."""

    def execute(trouble: BaseException, finished: Sequence[Finished]) -> LoadResult:
        def measure(self: LoadRunner, cluster: Cluster) -> None:
            self._progress.finished += finished
            self._progress.fingerprint = Fingerprint(facts={})

        def ready(*_: object) -> events.ClusterGone:
            return events.ClusterGone(at=events.now(), name="x", seconds=0.0)

        monkeypatch.setattr(LoadRunner, "_measure", measure)
        monkeypatch.setattr(runner, "cluster_ready", ready)
        request = LoadRequest(
            profile="ext-churn", run_dir=tmp_path / "mine", seed=1, spec=ClusterSpec(name="x")
        )
        return runner.run(request, Provider(trouble), Listener())  # type: ignore[arg-type]

    return execute


@pytest.fixture
def finished(tmp_path: Path) -> Finished:
    plan: Any = None
    done = Done(plan, worker_report(), None, (), tmp_path)
    return Finished(done, trial(), Findings(), interrupted=False)


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (EnvironmentBlocked("a process outlives SIGKILL"), "clean-up: a process outlives SIGKILL"),
        (KeyboardInterrupt(), "clean-up: interrupted; `dra-harness down --all` takes the rest away"),
    ],
)
def test_a_cluster_that_does_not_go_takes_no_result_with_it(
    carry_out: Any, finished: Finished, tmp_path: Path, trouble: BaseException, reason: str
) -> None:
    result = carry_out(trouble, [finished])

    assert (result.verdict, result.reasons[0]) == (Verdict.INVALID, reason)
    assert read(tmp_path / "mine") == result
    assert isinstance(journal.read(tmp_path / "mine")[-1], events.RunFinished)


@pytest.mark.parametrize("trouble", [EnvironmentBlocked("stuck"), KeyboardInterrupt()])
def test_without_a_result_the_trouble_is_all_there_is(
    carry_out: Any, tmp_path: Path, trouble: BaseException
) -> None:
    with pytest.raises(type(trouble)):
        carry_out(trouble, [])
    assert not (tmp_path / "mine" / "load.json").exists()


def test_a_restart_that_the_scenario_makes_is_in_the_books_of_its_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that fails: what becomes of the component then isn't for anybody else to answer for."""
    monkeypatch.setattr(server, "read", lambda *_: server.Reading(1.0, {}, {}))
    request = LoadRequest(profile="soak", run_dir=tmp_path / "r", seed=1, spec=ClusterSpec(name="x"))
    run = LoadRunner(request, Provider(EnvironmentBlocked("stuck")), Listener(), print)  # type: ignore[arg-type]
    nothing: Any = None
    users: Any = SimpleNamespace(sender=SimpleNamespace(flow_schema="sender"))
    site = Site(
        request, run.plan, paper_cluster(), nothing, nothing, users, tmp_path, usage.Sampler("x"), Listener()
    )

    run._restart(site, "kube-scheduler")
    with pytest.raises(EnvironmentBlocked, match="stuck"):
        run._restart(site, "kube-controller-manager")

    planned = {"kube-scheduler": 1, "kube-controller-manager": 1}
    assert TrialRunner(site, nothing)._books(worker_report(), NOTHING_SEEN).planned_restarts == planned
    site.forget()
    assert (site.restarted, site.readings, site.notes) == ([], [], [])


@pytest.mark.parametrize(
    ("profile", "allowed", "ours", "refusal"),
    [
        ("ext-churn", True, 100, ""),
        ("ext-churn", False, 100, "has to have all: cluster-admin"),
        ("ext-churn", True, 0, "simulated_nodes: expected at least 1, its pods run on them"),
        ("soak", True, 100, "soak: it has pods on real nodes"),
    ],
)
def test_what_it_takes_on_somebody_elses_cluster_is_known_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str, allowed: bool, ours: int, refusal: str
) -> None:
    """It makes users and rights, and puts pods on simulated nodes of ours: others' may have no devices."""
    review = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    nodes = {"dra-harness.dev/simulated=true": ours, "": 100}
    monkeypatch.setattr(KubeClient, "list", lambda *_, labels="": [{}] * nodes[labels])
    request = LoadRequest(
        profile=profile, run_dir=tmp_path / "r", seed=1, spec=ClusterSpec(name="x"), cluster="theirs"
    )
    with serve({review: {"status": {"allowed": allowed}}}) as address:
        config = write_config(tmp_path / "config", address, {"token": "t"})
        theirs = paper_cluster(
            provider=PROVIDER, kubeconfig=config, nodes_elsewhere=("a",), simulated_nodes=100
        )
        monkeypatch.setattr(Provider, "attach", lambda *_: theirs, raising=False)
        refused = (EnvironmentBlocked, UsageError)
        with pytest.raises(refused, match=refusal) if refusal else contextlib.nullcontext():
            LoadRunner(request, Provider(KeyboardInterrupt()), Listener(), print)  # type: ignore[arg-type]


@pytest.mark.parametrize("question", ["POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", ""])
def test_credentials_that_expire_before_anything_is_made_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    """Of the two questions that are asked by then, the first or the second is refused."""
    request = LoadRequest(
        profile="ext-churn", run_dir=tmp_path / "r", seed=1, spec=ClusterSpec(name="x"), cluster="theirs"
    )
    answers = {question: 401, "GET /api/v1/nodes": 401}
    with serve(answers, otherwise={"status": {"allowed": True}}) as address:
        config = write_config(tmp_path / "config", address, {"token": "t"})
        theirs = paper_cluster(provider=PROVIDER, kubeconfig=config, nodes_elsewhere=("a",))
        monkeypatch.setattr(Provider, "attach", lambda *_: theirs, raising=False)
        with pytest.raises(EnvironmentBlocked, match=r"credentials are expired or refused \(401\)"):
            LoadRunner(request, Provider(KeyboardInterrupt()), Listener(), print)  # type: ignore[arg-type]
