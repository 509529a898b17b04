"""What was measured in a trial is told, whatever comes after its load."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clusters.interface import ClusterSpec
from harness.kube import PODS, KubeClient
from load import cleanup, node, usage
from load.model import Snapshot, WorkerReport
from load.naming import Names
from load.profiles.loader import find_profile
from load.profiles.plan import make_plan
from load.request import LoadRequest
from load.scenarios.interface import Done, Findings
from load.scenarios.quiet import BaseScenario
from load.scenarios.readings import figure
from load.trials import Finished, Site, TrialRunner
from load.verdict import judge
from tests.harness.api_server import write_config
from tests.load.test_runner import Listener
from tests.support.api_server import serve
from tests.support.load_results import worker_report
from tests.support.paper import paper_cluster

Trouble = Callable[[KubeClient], object]


class Generator:
    """Has sent ten pods; something happens at its end."""

    snapshots: Sequence[Snapshot] = ()

    def __init__(self, at_end: Callable[[], None]) -> None:
        self._at_end = at_end

    @property
    def ended(self) -> bool:
        self._at_end()
        return True

    def progress(self) -> Sequence[Snapshot]:
        return ()

    def report(self) -> WorkerReport:
        return worker_report()


class Watch:
    """Of real nodes, none of which is there."""

    def __init__(self, trouble: Trouble, admin: KubeClient) -> None:
        self._trouble, self._admin = trouble, admin

    def add_to(self, findings: Findings) -> None:
        self._trouble(self._admin)


def interrupt(*_: object) -> None:
    signal.raise_signal(signal.SIGINT)


def fine(*_: object) -> None:
    """Nothing happens."""


def ask(admin: KubeClient) -> object:
    return admin.list(PODS)


@pytest.fixture
def carry_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Finished]:
    """Carries out a trial with pods on real nodes; `dies` is whether the API server goes with the load."""

    def execute(
        *, judging: Trouble = fine, nodes: Trouble = fine, clearing: Trouble = fine, dies: bool = False
    ) -> Finished:
        request = LoadRequest(
            profile="template-churn", run_dir=tmp_path / "r", seed=1, spec=ClusterSpec(name="x")
        )
        request.run_dir.mkdir()
        plan = make_plan(find_profile(request.profile), request)
        real = next(each for each in plan.further if each.name == "real")
        flow = SimpleNamespace(flow_schema_uid="own-schema", priority_level_uid="own-level")
        user = SimpleNamespace(kubeconfig=tmp_path / "user", flow=flow, flow_schema="sender")
        users: Any = SimpleNamespace(sender=user, observer=user, exempt_uids=[])
        with ExitStack() as stack:
            address = stack.enter_context(serve({}, otherwise={"items": [], "metadata": {}}))
            admin = KubeClient.from_kubeconfig(write_config(tmp_path / "config", address, {"token": "t"}))

            class Judging(BaseScenario):
                def judge(self, done: Done) -> Findings:
                    judging(admin)
                    return Findings(figures={"judged": figure(1)})

            settle = cleanup.settle

            def cleared(*arguments: Any, **more: Any) -> Any:
                clearing(admin)
                return settle(*arguments, **more)

            monkeypatch.setattr(cleanup, "settle", cleared)
            monkeypatch.setattr(node, "NodeWatch", lambda *_: Watch(nodes, admin))
            generator = Generator(stack.close if dies else fine)
            monkeypatch.setattr(TrialRunner, "_start", lambda *_: generator)
            site = Site(
                request,
                plan,
                paper_cluster(),
                admin,
                Names("r"),
                users,
                request.run_dir,
                usage.Sampler("x"),
                Listener(),
            )
            return TrialRunner(site, Judging()).run(real)

    return execute


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("clearing", "interrupted while looking at what the trial left"),
        ("judging", "interrupted while judging what the scenario measured"),
        ("nodes", "interrupted while looking at the real nodes"),
    ],
)
def test_an_interruption_after_the_load_leaves_what_was_measured(
    carry_out: Callable[..., Finished], where: str, said: str
) -> None:
    finished = carry_out(**{where: interrupt})

    assert finished.interrupted
    assert finished.result.intended == 10
    assert any(fault.endswith(f" {said}") for fault in finished.result.generator.faults)
    assert bool(finished.result.figures) == (where != "judging")


def test_without_trouble_there_is_none(carry_out: Callable[..., Finished]) -> None:
    finished = carry_out()
    assert (finished.interrupted, finished.result.generator.faults) == (False, [])


def test_an_api_server_that_died_in_the_trial_is_its_fault(carry_out: Callable[..., Finished]) -> None:
    finished = carry_out(judging=ask, nodes=ask, dies=True)

    assert not finished.interrupted
    assert (finished.result.intended, finished.done.report.claims_seen) == (10, 10)
    faults = finished.result.generator.faults
    for doing in (
        "looking at what the trial left",
        "judging what the scenario measured",
        "looking at the real nodes",
    ):
        (fault,) = [each for each in faults if f" {doing}: " in each]
        assert "refused" in fault
    reasons = judge([finished.result], {}, []).reasons
    assert set(faults) <= set(reasons)
