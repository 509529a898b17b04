from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from clusters.kind import daemon, docker


def test_everything_of_the_daemon_is_in_its_folder() -> None:
    arguments = daemon.arguments(Path("/d"), restricted=False)
    assert arguments[:3] == ["dockerd", "--host", "unix:///d/docker.sock"]
    assert arguments[arguments.index("--data-root") + 1] == "/d/data"
    assert arguments[arguments.index("--pidfile") + 1] == "/d/docker.pid"
    assert "--default-runtime" not in arguments


def test_without_the_capability_containers_get_the_runtime_that_does_not_ask_for_it() -> None:
    arguments = daemon.arguments(Path("/d"), restricted=True)
    name = arguments[arguments.index("--default-runtime") + 1]
    assert arguments[arguments.index("--add-runtime") + 1] == f"{name}={daemon.WRAPPER}"


@pytest.mark.parametrize("position", [0, 1, 2])
def test_the_runtime_takes_the_capability_out_of_a_bundle(tmp_path: Path, position: int) -> None:
    runc = tmp_path / "bin" / "runc"
    runc.parent.mkdir()
    runc.write_text('#!/bin/sh\necho "$@"\n')
    runc.chmod(0o755)
    names = ["CAP_CHOWN", "CAP_SYS_ADMIN"]
    names.insert(position, "CAP_SYS_RESOURCE")
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"capabilities": names}, separators=(",", ":")))
    environment = {**os.environ, "PATH": f"{runc.parent}:{os.environ['PATH']}"}
    command: list[str | Path] = [daemon.WRAPPER, "create", "--bundle", tmp_path, "a"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(config.read_text()) == {"capabilities": ["CAP_CHOWN", "CAP_SYS_ADMIN"]}
    assert done.stdout == f"create --bundle {tmp_path} a\n"


def test_docker_host_of_the_user_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRA_HARNESS_STATE", str(tmp_path))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    assert "DOCKER_HOST" not in docker.environment()
    (tmp_path / "docker").mkdir()
    docker.own_socket().touch()
    assert docker.environment()["DOCKER_HOST"] == f"unix://{tmp_path}/docker/docker.sock"
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere")
    assert docker.environment()["DOCKER_HOST"] == "tcp://elsewhere"


def test_a_pid_file_of_another_program_is_no_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRA_HARNESS_STATE", str(tmp_path))
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "docker.pid").write_text(str(os.getpid()))
    assert daemon.pid() is None
