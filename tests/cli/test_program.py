"""The installed program: help, listings, and how a defect of its own is reported."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from cli import main
from cli.console import BringUpProgress, fail, show
from cli.options import Output
from cli.runner import new_run_id
from cli.runs import _RUN_ID
from clusters import processes
from clusters.interface import Profile
from clusters.kind.state import KindState
from clusters.local.provider import LocalProvider
from clusters.local.state import ClusterState
from harness.errors import EnvironmentBlocked, HarnessError, UsageError
from harness.waiting import wait_until

COMMANDS = ["doctor", "up", "down", "list", "status", "logs", "kubeconfig"]
COMMANDS += ["plan", "run", "load", "compare", "report", "preflight", "clean", "rbac"]


Program = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("STATE", "CACHE", "RESULTS", "MACHINE"):
        monkeypatch.setenv(f"DRA_HARNESS_{name}", str(tmp_path / name.lower()))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    return tmp_path


@pytest.fixture
def program(places: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    """Runs the command by its entry point, in this process."""

    def execute(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["dra-harness", *arguments])
        monkeypatch.setattr("signal.signal", lambda *_: None)
        with pytest.raises(SystemExit) as ended:
            main.main()
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), out, err)

    return execute


@pytest.mark.process
def test_the_console_script_says_what_there_is(places: Path) -> None:
    script = Path(sys.executable).parent / "dra-harness"
    if not script.exists():
        pytest.skip("the project isn't installed here")
    done = subprocess.run([script, "--help"], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    listed = {line.split()[1] for line in done.stdout.splitlines() if len(line.split()) > 2}
    assert listed >= set(COMMANDS)
    assert not list(places.iterdir())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(places: Path, program: Program, command: str) -> None:
    done = program(command, "-h")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{command} [OPTIONS]" in done.stdout


def test_a_plan_as_json_is_for_programs(places: Path, program: Program) -> None:
    done = program("plan", "extended-resource", "--skip", "ER-02", "--nodes", "1", "-o", "json")
    assert done.returncode == 0, done.stderr
    rows = {row["requirement"]: row for row in json.loads(done.stdout)}
    assert len(rows) == 21
    assert rows["ER-02"]["decision"] == "skipped"
    assert rows["ER-01"]["decision"] == "run"
    assert rows["ER-01"]["checks"]
    assert not list(places.iterdir())


def test_a_plan_for_an_old_release_supports_nothing(places: Path, program: Program) -> None:
    done = program("plan", "extended-resource", "--kubernetes", "v1.35.0", "-o", "yaml")
    assert {row["decision"] for row in yaml.safe_load(done.stdout)} == {"unsupported"}


def save(name: str, *, seconds: float = 9.5) -> ClusterState:
    saved = ClusterState(
        id=secrets.token_hex(8),
        name=name,
        kubernetes="v1.37.2",
        profile=Profile.GA,
        nodes=("node-1", "node-2"),
        slot=0,
        ready=seconds > 0,
        seconds=seconds,
    )
    saved.save()
    return saved


def test_the_listing_has_every_cluster(places: Path, program: Program) -> None:
    alive = save("c")
    save("b", seconds=0.0)
    save("a")
    etcd = Path(shutil.copy(shutil.which("sleep") or "", places / "etcd"))
    processes.spawn([etcd, "600"], cluster_id=alive.id, component="etcd", log=places / "log")
    wait_until(lambda: processes.find(alive.id), 20, "the process to be found", interval=0.01)
    try:
        rows = json.loads(program("list", "-o", "json").stdout)
    finally:
        processes.kill(alive.id)
    assert [(row["name"], row["state"], row["nodes"]) for row in rows] == [
        ("a", "gone", 2),
        ("b", "incomplete", 2),
        ("c", "up", 2),
    ]


@pytest.mark.parametrize(("daemon", "state"), [("exit 1", "gone"), ("printf 'PID\\n7 kubelet\\n'", "up")])
def test_a_kind_cluster_is_up_as_long_as_its_containers_are(
    places: Path, program: Program, monkeypatch: pytest.MonkeyPatch, daemon: str, state: str
) -> None:
    """Whatever becomes of the driver that is a process beside them."""
    docker = places / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(f"#!/bin/sh\n{daemon}\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(docker.parent), prepend=":")
    made = KindState(
        id=secrets.token_hex(8),
        name="k",
        kubernetes="v1.37.2",
        profile=Profile.GA,
        nodes=1,
        node_image="node:v1",
        kind=places / "kind",
        ready=True,
        seconds=9.5,
    )
    made.save()
    processes.spawn(["sleep", "600"], cluster_id=made.id, component="serve/bundled/d", log=places / "log")
    wait_until(lambda: processes.find(made.id), 20, "the driver to be found", interval=0.01)
    try:
        (row,) = json.loads(program("list", "-o", "json").stdout)
    finally:
        processes.kill(made.id)
    assert row["state"] == state


def test_a_cluster_without_processes_is_shown_as_it_is(places: Path, program: Program) -> None:
    save("b", seconds=0.0)
    save("a")
    status = program("status", "a", "-o", "json")
    assert status.returncode == 3
    gone = {row["component"] for row in json.loads(status.stdout) if row["pid"] == "gone"}
    assert {"etcd", "kube-apiserver", "kubelet/node-1", "containerd/node-2"} <= gone
    assert program("kubeconfig", "a").stdout.strip() == str(places / "state/clusters/a/admin.kubeconfig")
    half = program("kubeconfig", "b")
    assert (half.returncode, half.stderr) == (
        2,
        "error: cluster 'b' did not come up; `dra-harness down b` cleans it\n",
    )


HOLDER = """
import sys
from clusters.local.state import ClusterState
with ClusterState.load(sys.argv[1]).maker_lock():
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def in_use(program: Program) -> Iterator[str]:
    """The name of a cluster that another process makes."""
    save("a")
    command = [sys.executable, "-c", HOLDER, "a"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout
        assert maker.stdout.readline() == "held\n"
        yield "a"
        maker.kill()


IN_USE = "cluster 'a' is in use by the process that makes it; end that, or use --force"


def test_a_cluster_that_is_in_use_goes_only_by_force(program: Program, in_use: str) -> None:
    refused = program("down", in_use)
    assert (refused.returncode, refused.stdout, refused.stderr) == (2, "", f"error: {IN_USE}\n")
    assert [each.name for each in ClusterState.every()] == [in_use]
    forced = program("down", in_use, "--force")
    assert (forced.returncode, forced.stderr) == (0, "")
    assert re.fullmatch(r"cluster a is gone \(\d+\.\d s\)\n", forced.stdout)
    assert ClusterState.every() == []


def test_one_that_is_in_use_does_not_keep_all_others(places: Path, program: Program, in_use: str) -> None:
    for name in ("b", "c"):
        save(name).model_copy(update={"kept": True}).save()
    done = program("down", "--all")
    assert (done.returncode, done.stderr) == (2, f"error: {IN_USE}\n")
    assert re.findall(r"cluster (\w) is gone", done.stdout) == ["b", "c"]
    assert [each.name for each in ClusterState.every()] == [in_use]
    forced = program("down", "--all", "--force")
    assert (forced.returncode, forced.stderr) == (0, "")
    assert ClusterState.every() == []
    assert not (places / "machine").exists()


def test_one_that_another_command_removes_meanwhile_is_gone(
    places: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        save(name).model_copy(update={"kept": True}).save()
    down = LocalProvider.down

    def and_another_goes(provider: LocalProvider, name: str, *, force: bool = False) -> None:
        ClusterState.load("b").remove()
        down(provider, name, force=force)

    monkeypatch.setattr(LocalProvider, "down", and_another_goes)
    done = program("down", "--all")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"cluster a is gone \(\d+\.\d s\)\n", done.stdout)
    assert ClusterState.every() == []


def test_one_that_can_not_be_swept_does_not_keep_all_others(
    places: Path, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("docker", ""), ("kind", "exit 0"), ("failing-kind", "echo 'no daemon' >&2; exit 1")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    common: dict[str, Any] = {"kubernetes": "v1.37.2", "profile": Profile.GA, "nodes": 1, "node_image": "i"}
    KindState(name="a", id="aaaaaa", kind=tmp_path / "failing-kind", **common).save()
    KindState(name="b", id="bbbbbb", kind=tmp_path / "kind", kept=True, **common).save()

    done = program("down", "--all")

    assert done.returncode == 3
    assert "cluster 'a' of a run that ended can't be removed: kind delete cluster: no daemon" in done.stderr
    assert [each.name for each in KindState.every()] == ["a"]


def test_credentials_that_a_killed_run_left_go_with_everything_else(places: Path, program: Program) -> None:
    folder = places / "state" / "existing" / "run-1"
    folder.mkdir(parents=True)
    for name in ("lock", "kubeconfig"):
        (folder / name).touch()
    (folder / "mark").write_text("a-mark-that-nobody-has")
    done = program("down", "--all")
    assert (done.returncode, done.stderr) == (0, "")
    assert not (places / "state").exists()


def test_logs_are_printed_from_the_end(places: Path, program: Program) -> None:
    saved = ClusterState(
        id="0a1b2c", name="c", kubernetes="v1.37.2", profile=Profile.GA, nodes=("node-1",), slot=0
    )
    saved.save()
    logs = saved.directory / "logs"
    logs.mkdir()
    (logs / "kubelet-node-1.log").write_bytes(b"one [bold]\ntwo\n\xffthree\n")
    assert program("logs", "kubelet/node-1", "--cluster", "c").stdout == "one [bold]\ntwo\n\ufffdthree\n"
    assert program("logs", "kubelet/node-1", "--cluster", "c", "--tail", "1").stdout == "\ufffdthree\n"
    never = program("logs", "etcd", "--cluster", "c")
    assert (never.returncode, never.stderr) == (2, "error: etcd: no log yet; it was never started\n")
    unknown = program("logs", "kubelet", "--cluster", "c")
    assert unknown.returncode == 2
    assert unknown.stderr.startswith("error: 'kubelet': no component of c; there are: etcd, kube-apiserver")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UsageError("bad"), 2, "error: bad\n"),
        (EnvironmentBlocked("no gate"), 3, "error: no gate\n"),
        (HarnessError("disk full"), 4, "error: disk full\n"),
        (HarnessError("kubectl --token=hunter2 failed"), 4, "error: kubectl --token=[redacted] failed\n"),
    ],
)
def test_an_error_becomes_one_line_and_its_exit_code(
    error: Exception,
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (exit_code_of(error, monkeypatch), capsys.readouterr().err) == (code, message)


def exit_code_of(error: Exception, monkeypatch: pytest.MonkeyPatch) -> object:
    def app() -> NoReturn:
        raise error

    monkeypatch.setattr(main, "app", app)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(SystemExit) as raised:
        main.main()
    return raised.value.code


def test_a_defect_is_reported_as_one_and_without_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(KeyError("--password=hunter2"), monkeypatch) == 4
    said = capsys.readouterr().err
    assert "Traceback (most recent call last)" in said
    assert "this is a defect of dra-harness itself; nothing is said about the cluster" in said
    assert "hunter2" not in said


def test_messages_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    fail("[bold]x[/nonsense]")
    assert capsys.readouterr().err == "error: [bold]x[/nonsense]\n"


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (Output.JSON, '[\n  {\n    "a": "[red]",\n    "b": 1\n  }\n]\n'),
        (Output.YAML, "- a: '[red]'\n  b: 1\n\n"),
    ],
)
def test_rows_are_shown_as_asked(output: Output, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    show([{"a": "[red]", "b": 1}], ["a", "b"], output)
    assert capsys.readouterr().out == text


@pytest.mark.parametrize("output", [Output.JSON, Output.YAML])
def test_what_is_for_programs_is_not_wrapped(output: Output, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"checks": ["x" * 300, "y " * 50]}]
    show(rows, ["checks"], output)
    assert yaml.safe_load(capsys.readouterr().out) == rows


def test_a_table_has_the_wanted_columns(capsys: pytest.CaptureFixture[str]) -> None:
    show([{"a": "x", "b": 1}], ["a", "c"], Output.TABLE)
    assert capsys.readouterr().out.split() == ["A", "C", "x"]


def test_no_rows(capsys: pytest.CaptureFixture[str]) -> None:
    show([], ["a"], Output.TABLE)
    assert capsys.readouterr() == ("", "none\n")
    show([], ["a"], Output.JSON)
    assert capsys.readouterr().out == "[]\n"


def test_progress_without_a_terminal_is_a_line_per_step(capsys: pytest.CaptureFixture[str]) -> None:
    progress = BringUpProgress()
    progress.components("compile", 0, 3, "[kubelet]")
    progress.components("compile", 1, 3, "kubelet")
    progress.components("compile", 3, 3, "done")
    progress.reached("API server ready", 2.5)
    progress.warn("[one] is left")
    progress.close()
    said = "compile: [kubelet]\ncompile: done\n  2.50 s  API server ready\nwarning: [one] is left\n"
    assert capsys.readouterr().err == said


def test_run_ids_differ_and_are_allowed() -> None:
    ids = {new_run_id() for _ in range(5)}
    assert len(ids) == 5
    assert all(_RUN_ID.fullmatch(each) for each in ids)


@pytest.mark.parametrize(
    ("run_id", "allowed"),
    [("a", True), ("A.b_c-9", True), ("a" * 63, True), ("a" * 64, False), ("", False), ("a/b", False)]
    + [(each, False) for each in ("..", "-a", "a-", "a b", "a\n", "é")],
)
def test_a_run_id_is_a_label_value(run_id: str, allowed: bool) -> None:
    assert bool(_RUN_ID.fullmatch(run_id)) is allowed
