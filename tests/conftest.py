"""Fixtures for tests on real clusters. Each session has a state directory of its own, and leaves it empty."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters.components import BuildSource
from clusters.driver_image import build
from clusters.interface import Cluster, ClusterSpec, SilentProgress
from clusters.kind import daemon, docker
from clusters.local.provider import LocalProvider
from harness.errors import EnvironmentBlocked
from tests.support.commands import Command


@pytest.fixture(scope="session", autouse=True)
def _no_results_folder_of_the_users() -> Iterator[None]:
    """Where a test says nothing else, its results go to a folder of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DRA_HARNESS_RESULTS", raising=False)
        yield


@pytest.fixture
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of the test's own, for this process and for the commands that it runs."""
    path = tmp_path / "state"
    monkeypatch.setenv("DRA_HARNESS_STATE", str(path))
    return path


@pytest.fixture(scope="session")
def local_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A local cluster with two nodes, shared by the tests that don't change it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRA_HARNESS_STATE", str(tmp_path_factory.mktemp("clusters")))
        provider = LocalProvider(BuildSource())
        cluster = provider.up(ClusterSpec(name="shared", ephemeral=True), SilentProgress())
        yield cluster
        provider.down("shared")


@pytest.fixture(scope="session")
def docker_host() -> Iterator[str]:
    """The DOCKER_HOST of a daemon that answers: the user's, or else the harness's own, started for the tests.

    Its images stay on disk, so that the node image is built once.
    """
    started = not _answers()
    if started:
        daemon.up()
    yield docker.environment().get("DOCKER_HOST", "")
    if started:
        daemon.down()


@pytest.fixture(scope="session")
def driver_image_on_nodes(local_cluster: Cluster) -> str:
    """The name of the bundled driver's image, which every node of `local_cluster` has."""
    image = build.ensure()
    LocalProvider(BuildSource()).load_image(local_cluster.name, image.archive)
    return image.name


@pytest.fixture
def dra_harness(tmp_path: Path) -> Command:
    """Runs the command line as a user does; results go to the test's folder."""

    def command(*arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "cli.main", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            env={"DRA_HARNESS_RESULTS": str(tmp_path / "results"), **os.environ, "NO_COLOR": "1"},
        )

    return command


def _answers() -> bool:
    try:
        return bool(docker.run(["version", "--format", "{{.Server.Version}}"], timeout=20))
    except EnvironmentBlocked:
        return False
