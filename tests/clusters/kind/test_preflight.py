"""What is said of a machine on which kind can't work."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusters.interface import ClusterSpec, Finding, SilentProgress
from clusters.kind import daemon, docker, preflight
from clusters.kind.provider import KindProvider
from harness.errors import EnvironmentBlocked, UsageError
from tests.clusters.kind.conftest import NoPrograms


def docker_that(says: str, code: int, folder: Path) -> None:
    """Put a program `docker` into a folder that says something on stderr and ends with a code."""
    program = folder / "docker"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
    program.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH, for root, without a DOCKER_HOST."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    return folder


def missing() -> dict[str, str]:
    """What is missing, by subject."""
    return {each.subject: each.message for each in preflight.check_machine() if not each.ok}


def test_without_docker(path: Path) -> None:
    assert missing() == {"docker": "not on PATH: apt-get install docker.io"}


def test_without_root(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker_that("", 0, path)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert missing() == {"root": "provider kind shares the kubelets' folders; use sudo"}


def test_without_a_daemon(path: Path) -> None:
    docker_that("Cannot connect to the Docker daemon", 1, path)
    message = missing()["docker daemon"]
    assert message.startswith("docker version: Cannot connect to the Docker daemon; start yours, or ")
    assert "`dra-harness docker up`" in message
    assert "dockerd (docker.io), runc (runc), iptables (iptables), ip (iproute2)" in message


def test_without_permission(path: Path) -> None:
    docker_that("permission denied while trying to connect to the Docker daemon socket", 1, path)
    message = missing()["docker daemon"]
    assert message.endswith("; add yourself to the group docker, or use sudo")


def test_a_daemon_elsewhere_shares_no_folders(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker_that("", 0, path)
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2376")
    assert missing()["docker daemon"].startswith("DOCKER_HOST is tcp://192.0.2.1:2376: ")


def test_a_context_that_leads_elsewhere_shares_no_folders(path: Path) -> None:
    program = path / "docker"
    says = 'case "$1" in context) echo ssh://build.example.com ;; *) echo 20.10 ;; esac'
    program.write_text(f"#!/bin/sh\n{says}\n")
    program.chmod(0o755)
    assert missing()["docker daemon"].startswith("Docker's context leads to ssh://build.example.com: ")


@pytest.mark.parametrize(
    ("has", "runtime", "named"),
    [(False, "runc", True), (False, daemon.RUNTIME, False), (True, "runc", False)],
)
def test_a_runtime_that_may_not_start_nodes_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch, *, has: bool, runtime: str, named: bool
) -> None:
    program = path / "docker"
    says = f'case "$1" in info) echo {runtime} ;; version) echo 20.10 ;; esac'
    program.write_text(f"#!/bin/sh\n{says}\n")
    program.chmod(0o755)
    monkeypatch.setattr(preflight, "has_cap_sys_resource", lambda: has)
    (found,) = (each for each in preflight.check_machine(builds=False) if each.subject == "docker daemon")
    assert found.message.startswith("20.10")
    assert ("lacks CAP_SYS_RESOURCE here, and the default runtime runc may" in found.message) is named


def test_a_port_that_can_not_be_had_is_refused_first(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "check_machine", lambda **_: [])
    with pytest.raises(UsageError, match="--port 65536: expected 1 to 65535"):
        KindProvider(NoPrograms()).up(ClusterSpec("a", port=65536), SilentProgress())


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        (ClusterSpec(name="A"), "cluster name 'A': expected"),
        (ClusterSpec(name="a", nodes=6), "--nodes 6: provider kind expects 1 to 5 workers"),
        (ClusterSpec(name="a", nodes=0), "--nodes 0: "),
        (ClusterSpec(name="a", simulated_nodes=-1), "--simulated-nodes -1: "),
    ],
)
def test_a_spec_that_can_not_be(monkeypatch: pytest.MonkeyPatch, spec: ClusterSpec, refusal: str) -> None:
    monkeypatch.setattr(preflight, "check_machine", lambda **_: [])
    with pytest.raises(UsageError, match=refusal):
        preflight.require(spec)


def test_the_first_thing_that_is_missing_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = [Finding("root", ok=True, message="yes"), Finding("docker", ok=False, message="gone")]
    monkeypatch.setattr(preflight, "check_machine", lambda **_: findings)
    with pytest.raises(UsageError, match="docker: gone"):
        preflight.require(ClusterSpec(name="a"))


def test_dockers_advice_is_none_of_an_errors(path: Path) -> None:
    says = "Cannot connect to the Docker daemon\n\nRun docker run --help for more information"
    docker_that(says.replace("docker run", "'\\''docker run").replace("--help", "--help'\\''"), 1, path)
    with pytest.raises(EnvironmentBlocked) as blocked:
        docker.run(["run", "image"])
    assert str(blocked.value) == "docker run: Cannot connect to the Docker daemon"
