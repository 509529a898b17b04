"""A cluster that refuses what comes before and after the checks takes no report with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.runner import Runner, RunRequest, Step
from clusters.interface import ClusterSpec, Profile
from harness import events
from harness.errors import ExitCode
from harness.journal import read
from suites.plan import Group
from tests.harness.api_server import write_config
from tests.support.api_server import serve
from tests.support.paper import paper_cluster

STEP = Step(Group(Profile.GA, (), together=(), alone=()), ())
NOTHING: dict[str, Any] = {"items": []}
VERSION = {"gitVersion": "v1.37.2"}


@pytest.mark.parametrize(
    ("answers", "otherwise", "said"),
    [
        ({"GET /version": 401}, NOTHING, "the credentials are expired or refused (401)"),
        ({"GET /version": VERSION}, 401, "what run r left on cluster c could not be removed: GET"),
    ],
)
def test_a_token_that_expires_ends_a_run_with_its_reports(
    tmp_path: Path, answers: dict[str, Any], otherwise: Any, said: str
) -> None:
    request = RunRequest((), (), ClusterSpec("c"), "c", None, False, 1, 2, (), ())
    folder = tmp_path / "r"
    folder.mkdir()
    made = Runner(request, object(), folder)  # type: ignore[arg-type]  # the cluster is there
    with serve(answers, otherwise=otherwise) as address:
        config = write_config(tmp_path / "config", address, {"token": "t"})
        made._emit(made._run_started([]))
        code = made._carry_out(paper_cluster(kubeconfig=config, directory=tmp_path), [[STEP]])

    log = read(folder)
    (fault,) = [event for event in log if isinstance(event, events.HarnessFault)]
    assert said in fault.message
    assert isinstance(log[-1], events.RunFinished)
    assert (code, log[-1].exit_code) == (ExitCode.HARNESS_ERROR, ExitCode.HARNESS_ERROR)
    assert json.loads((folder / "run.json").read_text())
