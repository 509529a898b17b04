"""The Docker daemon of our own: what it is started with, and what of the machine is taken for its."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from clusters.kind import daemon, docker, network
from harness.errors import UsageError
from harness.waiting import wait_until

ADDRESSES = network.Addresses(IPv4Network("172.30.0.0/16"))


def test_everything_of_the_daemon_is_in_its_folder() -> None:
    arguments = daemon.arguments(Path("/d"), ADDRESSES, restricted=False)
    assert arguments[:3] == ["dockerd", "--host", "unix:///d/docker.sock"]
    assert arguments[arguments.index("--data-root") + 1] == "/d/data"
    assert arguments[arguments.index("--pidfile") + 1] == "/d/docker.pid"
    assert arguments[arguments.index("--bip") + 1] == "172.30.128.1/24"
    assert arguments[arguments.index("--default-address-pool") + 1] == "base=172.30.0.0/17,size=24"
    assert "--default-runtime" not in arguments


def test_without_the_capability_containers_get_the_runtime_that_does_not_ask_for_it() -> None:
    arguments = daemon.arguments(Path("/d"), ADDRESSES, restricted=True)
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


@pytest.fixture
def own_daemon(state_dir: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is to be taken for our daemon; with a socket, on which nothing is served."""
    docker.directory().mkdir(parents=True)
    docker.own_socket().touch()
    program = tmp_path / "dockerd"
    shutil.copy("/bin/sh", program)
    # The shell waits for a line that never comes; what follows are its parameters, and like dockerd's.
    command: list[str | Path] = [program, "-c", "read line", "dockerd", "--pidfile", docker.pid_file()]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as running:
        docker.pid_file().write_text(str(running.pid))
        wait_until(lambda: docker.own_pid() == running.pid, 20, "it to be seen", interval=0.01)
        yield running
        running.kill()


def test_docker_host_of_the_user_comes_first(
    own_daemon: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    assert docker.environment()["DOCKER_HOST"] == docker.own_host()
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere")
    assert docker.environment()["DOCKER_HOST"] == "tcp://elsewhere"


def test_the_socket_of_a_daemon_that_was_killed_is_not_asked(
    own_daemon: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Docker's own default may well answer."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    own_daemon.kill()
    own_daemon.wait()
    assert docker.own_socket().exists()
    assert "DOCKER_HOST" not in docker.environment()


def test_a_pid_file_whose_number_is_another_dockerds_by_now_is_no_daemon(
    own_daemon: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    with subprocess.Popen([tmp_path / "dockerd", "-c", "read line"], stdin=subprocess.PIPE) as other:
        docker.pid_file().write_text(str(other.pid))
        wait_until(lambda: other.pid in daemon.other_daemons(), 20, "it to be seen", interval=0.01)
        assert docker.own_pid() is None
        other.kill()


def test_where_no_daemon_was_started_nothing_is_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRA_HARNESS_STATE", str(tmp_path))
    monkeypatch.setenv("PATH", "")  # any command would fail
    daemon.down()


def test_beside_somebody_elses_daemon_none_is_started_and_its_network_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRA_HARNESS_STATE", str(tmp_path))
    (tmp_path / "docker").mkdir()
    theirs = tmp_path / "dockerd"
    shutil.copy(str(shutil.which("sleep")), theirs)
    with subprocess.Popen([theirs, "600"]) as running:
        try:
            wait_until(lambda: running.pid in daemon.other_daemons(), 20, "it to be seen", interval=0.01)
            with pytest.raises(UsageError, match=r"a Docker daemon runs already \(process \d+\)"):
                daemon.up()
            monkeypatch.setenv("PATH", "")  # any command would fail
            daemon.down()
        finally:
            running.kill()


def client_that(says: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a `docker` at the front of PATH that notes what it is asked and goes on with a shell's commands."""
    client = folder / "bin" / "docker"
    client.parent.mkdir()
    client.write_text(f'#!/bin/sh\necho "$DOCKER_HOST $*" >>{folder}/asked\n{says}\n')
    client.chmod(0o755)
    monkeypatch.setenv("PATH", str(client.parent), prepend=os.pathsep)


def down_with(running: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Take our daemon down, but none of the machine's network."""
    monkeypatch.setattr(network, "remove", lambda directory: None)
    reaper = threading.Thread(target=running.wait)
    reaper.start()
    daemon.down()
    reaper.join()


def test_down_asks_its_own_daemon_whatever_docker_host_says(
    own_daemon: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its containers are killed: those of the daemon that the user works with must not be among them."""
    monkeypatch.setenv("DOCKER_HOST", "tcp://theirs.example.com")
    client_that('[ "$1" != ps ] || echo c1 c2', tmp_path, monkeypatch)
    down_with(own_daemon, monkeypatch)

    own = docker.own_host()
    assert (tmp_path / "asked").read_text().splitlines() == [f"{own} ps --quiet", f"{own} kill c1 c2"]


def test_down_stops_the_daemon_also_when_a_container_ends_just_then(
    own_daemon: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = "echo 'Error response from daemon: Cannot kill container: c1: is not running' >&2; exit 1"
    client_that(f'if [ "$1" = ps ]; then echo c1; else {gone}; fi', tmp_path, monkeypatch)
    down_with(own_daemon, monkeypatch)
    assert own_daemon.returncode == -signal.SIGTERM


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_what_a_killed_daemon_has_mounted_goes_with_its_images(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clusters are known to be gone by the folder that is."""
    monkeypatch.setattr(network, "remove", lambda directory: None)
    data = docker.directory() / "data"
    data.mkdir(parents=True)
    for _ in range(2):
        subprocess.run(["mount", "--bind", data, data], check=True)
    try:
        daemon.purge()
        assert not docker.directory().exists()
    finally:
        for _ in range(2):
            subprocess.run(["umount", "--quiet", data], check=False)


def test_a_daemon_that_has_ended_and_was_not_reaped_is_none(tmp_path: Path) -> None:
    ended = tmp_path / "dockerd"
    shutil.copy(str(shutil.which("true")), ended)
    with subprocess.Popen([ended]) as process:
        stat = Path(f"/proc/{process.pid}/stat")
        wait_until(lambda: ") Z " in stat.read_text(), 20, "it to be a zombie", interval=0.01)
        assert process.pid not in daemon.other_daemons()
