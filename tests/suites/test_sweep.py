"""What an API server can do to a sweep is said as one error, and keeps no process from being ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusters import driver_pods, processes
from clusters.interface import Cluster
from clusters.pod_process import namespace_of
from harness.errors import HarnessError
from harness.waiting import wait_until
from suites.sweep import sweep
from tests.harness.api_server import write_config
from tests.support.api_server import serve
from tests.support.paper import paper_cluster

NOTHING: dict[str, Any] = {"items": []}


@pytest.fixture
def answers() -> dict[str, Any]:
    return {}


@pytest.fixture
def cluster(tmp_path: Path, answers: dict[str, Any]) -> Iterator[Cluster]:
    with serve(answers, otherwise=NOTHING) as url:
        config = write_config(tmp_path / "config", url, {"token": "t"})
        yield paper_cluster(id=f"t{id(answers):x}", kubeconfig=config, directory=tmp_path)


def test_credentials_that_have_expired_end_the_drivers_all_the_same(
    cluster: Cluster, answers: dict[str, Any], tmp_path: Path
) -> None:
    answers["GET /api/v1/namespaces"] = 401
    driver = "serve/run/d"
    processes.spawn(["sleep", "600"], cluster_id=cluster.id, component=driver, log=tmp_path / "log")
    wait_until(lambda: processes.find(cluster.id), 20, "the driver", interval=0.01)

    with pytest.raises(HarnessError, match=r"what run run left on cluster c could not be removed: .* 401"):
        sweep(cluster, "run")

    assert processes.find(cluster.id) == []


def test_drivers_in_pods_that_stay_are_said(
    cluster: Cluster, answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_pods, "GONE_SECONDS", 0.0)
    namespace = namespace_of("run")
    answers[f"GET /api/v1/namespaces/{namespace}/pods"] = {"items": [{}]}
    in_pods = paper_cluster(
        kubeconfig=cluster.kubeconfig, directory=cluster.directory, driver_image="image:v1"
    )

    with pytest.raises(HarnessError, match="could not be removed: waited 0 s for the drivers of run run"):
        sweep(in_pods, "run")
