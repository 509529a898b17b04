"""Marked processes, with real children that do nothing."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters import processes
from harness.waiting import wait_until

SLEEP: list[str | Path] = ["sleep", "600"]
TERM_PROOF: list[str | Path] = ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 600 & wait; done"]


@pytest.fixture
def ids() -> Iterator[tuple[str, str]]:
    made = (secrets.token_hex(8), secrets.token_hex(8))
    yield made
    for each in made:
        processes.kill(each)


def spawn(
    cluster: str, component: str, log: Path, argv: list[str | Path] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process and wait until it is past `exec`, which is when its mark shows."""
    popen = processes.spawn(argv or SLEEP, cluster_id=cluster, component=component, log=log)
    wait_until(lambda: popen.pid in pids(cluster), 20, "the process to be found", interval=0.01)
    return popen


def pids(cluster: str, component: str | None = None) -> set[int]:
    return {process.pid for process in processes.find(cluster, component)}


def test_a_process_is_found_by_its_mark(ids: tuple[str, str], tmp_path: Path) -> None:
    popen = spawn(ids[0], "kubelet/node-1", tmp_path / "logs" / "k.log")
    assert processes.find(ids[0]) == [processes.Process(popen.pid, "kubelet/node-1", program_of(SLEEP))]
    assert processes.find(ids[0], "kubelet/node-1") == processes.find(ids[0])
    assert processes.find(ids[0], "kubelet/node-10") == []
    assert processes.find(ids[1]) == []
    assert processes.find(ids[0][:-1]) == []
    assert os.getsid(popen.pid) == popen.pid


def test_the_mark_is_what_processes_are_found_by(ids: tuple[str, str]) -> None:
    mark = processes.mark(ids[0], "checks")
    assert mark == {"DRA_HARNESS_CLUSTER": ids[0], "DRA_HARNESS_COMPONENT": "checks"}
    with subprocess.Popen(SLEEP, env={**os.environ, **mark}) as popen:
        wait_until(lambda: popen.pid in pids(ids[0], "checks"), 20, "the process to be found", interval=0.01)
        processes.kill(ids[0])
    assert popen.returncode == -9


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of other users")
def test_a_process_of_another_user_is_none_of_ours(ids: tuple[str, str]) -> None:
    mark = {"DRA_HARNESS_CLUSTER": ids[0], "DRA_HARNESS_COMPONENT": "c"}
    with subprocess.Popen(SLEEP, env={**os.environ, **mark}, user=65534, group=65534, cwd="/") as popen:
        try:
            environ = Path(f"/proc/{popen.pid}/environ")
            wait_until(lambda: ids[0].encode() in environ.read_bytes(), 20, "the mark", interval=0.01)
            assert processes.find(ids[0]) == []
            processes.kill(ids[0])
            assert popen.poll() is None
        finally:
            popen.kill()


def test_a_process_holds_no_folder(
    ids: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    popen = spawn(ids[0], "c", tmp_path / "log")
    assert Path(f"/proc/{popen.pid}/cwd").readlink() == Path("/")


def program_of(argv: list[str | Path]) -> str:
    found = shutil.which(argv[0])
    assert found
    return Path(found).resolve().name


def test_children_inherit_the_mark(ids: tuple[str, str], tmp_path: Path) -> None:
    popen = spawn(ids[0], "shim", tmp_path / "log", ["sh", "-c", "sleep 600 & wait"])
    wait_until(lambda: len(pids(ids[0])) == 2, 20, "the child", interval=0.01)
    assert {process.component for process in processes.find(ids[0])} == {"shim"}
    assert processes.main_pid(ids[0], "shim", program_of(["sh"])) == popen.pid
    # A child is there before it has become the program that it is to run.
    child = wait_until(lambda: processes.main_pid(ids[0], "shim", program_of(SLEEP)), 20, "it to be sleep")
    assert child != popen.pid
    assert processes.main_pid(ids[0], "shim", "kubelet") is None
    processes.kill(ids[0])
    assert pids(ids[0]) == set()


def test_output_is_appended_to_the_log(ids: tuple[str, str], tmp_path: Path) -> None:
    log = tmp_path / "a" / "b.log"
    for word in ("one", "two"):
        argv: list[str | Path] = ["sh", "-c", f"echo {word}; echo err-{word} >&2"]
        processes.spawn(argv, cluster_id=ids[0], component="c", log=log).wait(20)
    assert log.read_text() == "one\nerr-one\ntwo\nerr-two\n"


def test_the_environment_is_no_more_than_needed(
    ids: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/somewhere")
    processes.spawn(["env"], cluster_id=ids[0], component="c", log=tmp_path / "log").wait(20)
    names = {line.partition("=")[0] for line in (tmp_path / "log").read_text().splitlines()}
    assert names == {"PATH", "HOME", "DRA_HARNESS_CLUSTER", "DRA_HARNESS_COMPONENT"}


def test_killing_one_cluster_leaves_the_other(ids: tuple[str, str], tmp_path: Path) -> None:
    first, second = (spawn(each, "c", tmp_path / "log") for each in ids)
    processes.kill(ids[0])
    assert first.poll() == -9
    assert second.poll() is None
    assert pids(ids[1]) == {second.pid}


def test_killing_one_component_leaves_the_others(ids: tuple[str, str], tmp_path: Path) -> None:
    first, second = (spawn(ids[0], name, tmp_path / "log") for name in ("a", "b"))
    processes.kill(ids[0], "a")
    assert (first.poll(), second.poll()) == (-9, None)


def test_grace_asks_first(ids: tuple[str, str], tmp_path: Path) -> None:
    popen = spawn(ids[0], "c", tmp_path / "log")
    processes.kill(ids[0], grace=20)
    assert popen.poll() == -15


def test_after_the_grace_there_is_none(ids: tuple[str, str], tmp_path: Path) -> None:
    log = tmp_path / "log"
    popen = spawn(ids[0], "c", log, TERM_PROOF)
    wait_until(lambda: log.read_text() == "ready\n", 20, "the trap", interval=0.01)
    processes.kill(ids[0], grace=0.2)
    assert popen.poll() == -9


@pytest.mark.skipif(os.geteuid() != 0, reason="nsenter takes root")
def test_a_wrapper_is_not_asked_but_its_child(ids: tuple[str, str], tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = "trap 'echo asked; exit 0' TERM; echo ready; sleep 600 & wait"
    argv: list[str | Path] = ["nsenter", "--target", str(os.getpid()), "--pid", "--", "sh", "-c", child]
    popen = spawn(ids[0], "c", log, argv)
    wait_until(lambda: log.read_text() == "ready\n", 20, "the trap", interval=0.01)
    assert processes.main_pid(ids[0], "c", "nsenter") == popen.pid
    processes.kill(ids[0], grace=20)
    assert log.read_text() == "ready\nasked\n"
    assert popen.poll() == 0  # its child's exit status, which it was there to hand on


def test_an_ended_child_is_not_found_though_nobody_reaped_it(ids: tuple[str, str], tmp_path: Path) -> None:
    popen = processes.spawn(["true"], cluster_id=ids[0], component="c", log=tmp_path / "log")
    stat = Path(f"/proc/{popen.pid}/stat")
    wait_until(lambda: ") Z " in stat.read_text(), 20, "it to be a zombie", interval=0.01)
    assert processes.find(ids[0]) == []
    processes.kill(ids[0])
    assert not stat.exists()
    assert popen.returncode == 0


@pytest.mark.parametrize("grace", [0.0, 20.0])
def test_what_is_gone_holds_no_port(grace: float, ids: tuple[str, str], tmp_path: Path) -> None:
    """A process loses its environment first, then its memory, which takes a while, and then its sockets."""
    log = tmp_path / "log"
    code = (
        "import socket, time; server = socket.create_server(('127.0.0.1', 0))\n"
        "memory = bytearray(300 << 20)\n"
        "memory[::4096] = b'x' * len(memory[::4096])\n"
        "print(server.getsockname()[1], flush=True); time.sleep(600)"
    )
    spawn(ids[0], "c", log, [sys.executable, "-c", code])
    wait_until(lambda: log.read_text().endswith("\n"), 20, "the port", interval=0.01)

    processes.kill(ids[0], grace=grace)

    with socket.socket() as again:
        again.bind(("127.0.0.1", int(log.read_text())))


def test_killing_nothing_is_fine(ids: tuple[str, str]) -> None:
    processes.kill(ids[0])
    processes.kill(ids[0], "c", grace=5)


def test_a_process_never_finds_itself(tmp_path: Path, ids: tuple[str, str]) -> None:
    code = f"import sys; from clusters import processes\nsys.exit(len(processes.find({ids[0]!r})))"
    popen = processes.spawn(
        [sys.executable, "-c", code], cluster_id=ids[0], component="c", log=tmp_path / "log"
    )
    assert popen.wait(60) == 0, (tmp_path / "log").read_text()


def test_the_end_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert processes.tail(log) == "(no log)"
    log.write_bytes(b"a\nb\n\xff\n")
    assert processes.tail(log, 2) == "b\n\ufffd"
