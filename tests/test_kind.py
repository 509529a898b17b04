"""The main job and a load profile on kind: the same as on a local cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusters.kind import docker
from tests.support.commands import Command

pytestmark = [pytest.mark.kind, pytest.mark.timeout(1800)]


@pytest.fixture(autouse=True)
def _on_docker(docker_host: str, state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", docker_host)


def test_the_extended_resource_area_comes_out_as_on_a_local_cluster(
    tmp_path: Path, dra_harness: Command
) -> None:
    """Requirement by requirement and check by check."""
    before = _containers()
    results = {}
    for provider in ("local", "kind"):
        done = dra_harness(
            "run", "extended-resource", "--provider", provider, "--run-id", provider, timeout=1200
        )
        assert done.returncode == 0, done.stdout + done.stderr
        run = json.loads((tmp_path / "results" / provider / "run.json").read_text())
        results[provider] = {
            "requirements": {each["id"]: each["result"] for each in run["requirements"]},
            "checks": {each["id"]: each["result"] for each in run["checks"]},
        }

    assert results["kind"] == results["local"]
    assert len(results["kind"]["requirements"]) == 21
    assert _containers() <= before


def test_a_load_profile(tmp_path: Path, dra_harness: Command) -> None:
    """At a rate that two cores bear beside the nodes' containers."""
    done = dra_harness(
        "load",
        "ext-churn",
        "--provider",
        "kind",
        "--rate",
        "4",
        "--seconds",
        "15",
        "--run-id",
        "load",
        timeout=600,
    )

    result = json.loads((tmp_path / "results" / "load" / "load.json").read_text())
    # Other work on the machine makes a run INVALID, as it should; what was counted is true all the same.
    busy = [reason for reason in result["reasons"] if "the machine was busy" in reason]
    assert result["verdict"] != "INVALID" or busy == result["reasons"], done.stdout + done.stderr
    main = result["trials"][0]
    assert main["causes"]["completed"] == main["intended"] > 0
    assert main["violations"] == []
    assert main["figures"]["special-claims-off"]["value"] == 0


def _containers() -> set[str]:
    return set(docker.run(["ps", "--all", "--quiet"]).split())
