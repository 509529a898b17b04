"""The harness's own Go programs, compiled and run."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from clusters.components import PROGRAMS, BuildSource
from harness.waiting import NotYet, wait_until

UNSHARE = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "--"]
TIMEOUT = 20


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    own = [PROGRAMS["pod"], PROGRAMS["node-init"]]
    return BuildSource(tmp_path_factory.mktemp("cache")).ensure(own, "")


def start_process(*command: str | Path, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


@pytest.fixture
def pod(programs: Mapping[str, Path]) -> Iterator[Any]:
    """Starts pods, and kills what a test leaves."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
        started.append(start_process(programs["pod"], *arguments, **options))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=TIMEOUT)


def first_line(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    report: dict[str, Any] = json.loads(process.stdout.readline())
    return report


def test_pod_exits_with_the_code_it_is_told_after_one_line_of_json(pod: Any) -> None:
    process = pod("--exit", "3", env={"A": "1", "EMPTY": "", "EQUALS": "x=y"})
    out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 3
    assert err == ""
    assert out.count("\n") == 1
    report = json.loads(out)
    assert report["env"] == {"A": "1", "EMPTY": "", "EQUALS": "x=y"}
    assert report["args"][1:] == ["--exit", "3"]
    assert report["uid"] == os.getuid()
    assert report["hostname"] == os.uname().nodename


def test_report_holds_files_that_globs_match_and_folders_below_them(pod: Any, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "metadata.json").write_text('{"a": 1}')
    (tmp_path / "one.txt").write_text("1\n")
    (tmp_path / "two.txt").write_text("2\n")
    (tmp_path / "other").write_text("no")
    out, _ = pod("report", "--file", f"{tmp_path}/*.txt", "--file", tmp_path / "deep").communicate(
        timeout=TIMEOUT
    )
    expected = {
        str(tmp_path / "one.txt"): "1\n",
        str(tmp_path / "two.txt"): "2\n",
        str(tmp_path / "deep" / "metadata.json"): '{"a": 1}',
    }
    assert expected.items() <= json.loads(out)["files"].items()
    assert str(tmp_path / "other") not in json.loads(out)["files"]


def test_report_lists_device_nodes_but_not_those_of_every_container(pod: Any) -> None:
    out, _ = pod("report").communicate(timeout=TIMEOUT)
    devices = json.loads(out)["devices"]
    assert not {"/dev/null", "/dev/zero", "/dev/tty", "/dev/random"} & set(devices)
    for path in devices:
        mode = Path(path).stat().st_mode
        assert stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
    assert ("/dev/fuse" in devices) == Path("/dev/fuse").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_pod_waits_until_it_is_stopped(pod: Any, number: signal.Signals) -> None:
    process = pod()
    first_line(process)
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait(timeout=TIMEOUT) == 0


def test_pause_says_nothing_and_stops_on_sigterm(pod: Any) -> None:
    def attempt() -> bool:
        process = pod("pause")
        status = psutil.Process(process.pid).status
        wait_until(lambda: status() == psutil.STATUS_SLEEPING, TIMEOUT, "pause to wait", interval=0.01)
        process.terminate()
        ended = (*process.communicate(timeout=TIMEOUT), process.returncode)
        if ended != ("", "", 0):
            raise NotYet(ended)
        return True

    # It may sleep for a moment before it listens to signals, and then the signal kills: try again.
    wait_until(attempt, TIMEOUT, "pause to end with 0")


def test_exit_after_ends_by_itself(pod: Any) -> None:
    process = pod("--exit-after", "30ms", "--exit", "4")
    assert process.wait(timeout=TIMEOUT) == 4


def test_wait_file_ends_once_the_file_is_there(pod: Any, tmp_path: Path) -> None:
    process = pod("--wait-file", tmp_path / "go")
    first_line(process)
    assert process.poll() is None
    (tmp_path / "go").touch()
    assert process.wait(timeout=TIMEOUT) == 0


@pytest.mark.parametrize("arguments", [["serve"], ["--nonsense"], ["--exit", "many"]])
def test_pod_refuses_what_it_does_not_know(pod: Any, arguments: list[str]) -> None:
    process = pod(*arguments)
    out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 2
    assert out == ""
    assert arguments[-1].lstrip("-") in err


def test_programs_are_static(programs: Mapping[str, Path]) -> None:
    for path in programs.values():
        assert b"ld-linux" not in path.read_bytes()


def test_node_init_refuses_to_be_an_ordinary_process(programs: Mapping[str, Path], tmp_path: Path) -> None:
    process = start_process(programs["node-init"], "--ready", tmp_path / "ready")
    _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1
    assert "must be 1 of a PID namespace of its own" in err
    assert not (tmp_path / "ready").exists()


@pytest.fixture
def node(programs: Mapping[str, Path], tmp_path: Path) -> Iterator[Any]:
    """Starts node-init in namespaces of its own, with `here` bound over `there` unless told otherwise."""
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    (tmp_path / "here" / "file").write_text("node")
    started: list[subprocess.Popen[str]] = []

    def start(*flags: str) -> subprocess.Popen[str]:
        flags = flags or ("--bind", f"{tmp_path}/here={tmp_path}/there")
        arguments = ("--proc", *flags, "--ready", str(tmp_path / "ready"))
        started.append(start_process(*UNSHARE, programs["node-init"], *arguments))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=TIMEOUT)


def init_of(node: subprocess.Popen[str], ready: Path) -> psutil.Process:
    """Process 1 of the node, once it is ready."""
    wait_until(ready.exists, TIMEOUT, "node-init to be ready")
    (init,) = psutil.Process(node.pid).children()
    return init


def is_gone(process: psutil.Process) -> bool:
    """Ended, whether or not whoever inherited it has noticed."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def join(init: psutil.Process, *command: str) -> list[str]:
    return ["nsenter", "--target", str(init.pid), "--mount", "--pid", "--", *command]


@pytest.mark.integration
def test_node_has_its_own_mounts_and_processes(node: Any, tmp_path: Path) -> None:
    init = init_of(node(), tmp_path / "ready")
    seen = subprocess.run(
        join(init, "cat", f"{tmp_path}/there/file", "/proc/1/comm"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert seen.stdout == "nodenode-init\n"
    assert not (tmp_path / "there" / "file").exists()
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


@pytest.mark.integration
def test_sigterm_ends_every_process_of_the_node(node: Any, tmp_path: Path) -> None:
    process = node()
    init = init_of(process, tmp_path / "ready")
    joined = start_process(*join(init, "sleep", "1000"))
    sleeper = wait_until(lambda: psutil.Process(joined.pid).children(), TIMEOUT, "nsenter's child")[0]
    init.terminate()
    assert process.wait(timeout=TIMEOUT) == 0
    wait_until(lambda: is_gone(sleeper), TIMEOUT, "the node's process to be gone")
    joined.communicate(timeout=TIMEOUT)
    assert joined.returncode != 0


@pytest.mark.integration
def test_a_process_that_ignores_sigterm_is_killed(node: Any, tmp_path: Path) -> None:
    process = node()
    init = init_of(process, tmp_path / "ready")
    joined = start_process(*join(init, "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1000; done"))
    assert joined.stdout is not None
    assert joined.stdout.readline() == "ready\n"
    init.terminate()
    assert process.wait(timeout=TIMEOUT) == 0
    joined.communicate(timeout=TIMEOUT)
    assert joined.returncode == -signal.SIGKILL


@pytest.mark.integration
def test_orphans_are_reaped_and_sighup_is_ignored(node: Any, tmp_path: Path) -> None:
    init = init_of(node(), tmp_path / "ready")
    init.send_signal(signal.SIGHUP)
    script = "sh -c 'sleep 0.01 & echo $!' "
    orphan = subprocess.run(join(init, "sh", "-c", script), capture_output=True, text=True, check=True)
    number = orphan.stdout.strip()
    probe = join(init, "test", "-e", f"/proc/{number}")
    wait_until(lambda: subprocess.run(probe).returncode == 1, TIMEOUT, "the orphan to be reaped")
    assert init.is_running()


@pytest.mark.integration
def test_killing_unshare_ends_the_node(node: Any, tmp_path: Path) -> None:
    process = node()
    init = init_of(process, tmp_path / "ready")
    process.kill()
    wait_until(lambda: is_gone(init), TIMEOUT, "node-init to be gone")


@pytest.mark.integration
@pytest.mark.parametrize("missing", ["source", "target"])
def test_a_missing_end_of_a_bind_is_named(node: Any, tmp_path: Path, missing: str) -> None:
    ends = {"source": tmp_path / "here", "target": tmp_path / "there", missing: tmp_path / "absent"}
    process = node("--bind", f"{ends['source']}={ends['target']}")
    _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1
    assert f"{tmp_path}/absent: no such file or directory" in err
    assert not (tmp_path / "ready").exists()
    assert not (tmp_path / "absent").exists()


@pytest.mark.integration
def test_a_bind_of_another_form_is_refused(node: Any) -> None:
    process = node("--bind", "nothing")
    _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode != 0
    assert "expected SOURCE=TARGET" in err
