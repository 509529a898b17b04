"""What a user gets for input that can't be: one line, exit code 2, and nothing made."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli import main

ROOT = os.geteuid() == 0
AS_NOBODY = ["unshare", "--user", "--"]
"""Without a mapping the effective user is the overflow user, who may still read what root may."""


@dataclass(frozen=True)
class Ended:
    code: object
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where everything that the command makes would be; isn't there."""
    for name in ("STATE", "CACHE", "RESULTS", "MACHINE"):
        monkeypatch.setenv(f"DRA_HARNESS_{name}", str(tmp_path / "places" / name.lower()))
    monkeypatch.setenv("NO_COLOR", "1")
    return tmp_path / "places"


@pytest.fixture
def run(places: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command by its entry point, in this process: a second each is too much for so many."""

    def execute(*arguments: str | Path) -> Ended:
        monkeypatch.setattr(sys, "argv", ["dra-harness", *map(str, arguments)])
        monkeypatch.setattr("signal.signal", lambda *_: None)
        with pytest.raises(SystemExit) as ended:
            main.main()
        return Ended(ended.value.code, *capsys.readouterr())

    return execute


def run_program(*arguments: str, wrapper: list[str] | None = None) -> Ended:
    """Runs the command in a process of its own."""
    command = [*(wrapper or ()), sys.executable, "-m", "cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return Ended(done.returncode, done.stdout, done.stderr)


def assert_refused(ended: Ended, message: str, places: Path) -> None:
    assert ended == Ended(2, "", f"error: {message}\n")
    assert not places.exists()


needs_root = pytest.mark.skipif(not ROOT, reason="only root gets past the first check of a local cluster")

VERSION = (
    "expected a version such as v1.37.2 or v1.38.0-rc.0; locked in this release: v1.36.3, v1.37.0, v1.37.2"
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("status nope", "no cluster is named 'nope'; there are: none"),
        ("down nope", "no cluster is named 'nope'; there are: none"),
        ("kubeconfig nope", "no cluster is named 'nope'; there are: none"),
        ("logs kubelet/node-1 --cluster nope", "no cluster is named 'nope'; there are: none"),
        ("plan --cluster nope", "no cluster is named 'nope'; there are: none"),
        ("run --cluster nope", "no cluster is named 'nope'; there are: none"),
        ("run --cluster=", "no cluster is named ''; there are: none"),
        ("run --cluster nope --keep", "no cluster is named 'nope'; there are: none"),
        ("run --context c", "--context: needs the --kubeconfig that has it"),
        ("load ext-churn --context c", "--context: needs the --kubeconfig that has it"),
        ("run -o json", "--output: only with --dry-run; run.json and events.ndjson have what a run found"),
        ("run --dry-run", "--dry-run: needs --kubeconfig; a cluster that the run brings up is its own"),
        ("run --kubeconfig /dev/null", "/dev/null: contexts: expected a kubeconfig with a list of contexts"),
        ("run --kubeconfig /none", "/none: can't be read: No such file or directory"),
        ("preflight --kubeconfig /none", "/none: can't be read: No such file or directory"),
        ("clean --kubeconfig /none", "/none: can't be read: No such file or directory"),
        ("down", "down: expected the name of a cluster, or --all"),
        ("down a --all", "down: expected the name of a cluster, or --all"),
        ("run ER-1O", "no area or requirement 'ER-1O'; did you mean ER-21 or ER-19 or ER-18?"),
        (
            "plan extended_resource",
            "no area or requirement 'extended_resource'; did you mean extended-resource or podresources?",
        ),
        (
            "run ER-01 --skip quotas",
            "no area or requirement 'quotas'; did you mean quota or taints or QTA-10?",
        ),
        (
            "plan --kubernetes garbage",
            "'garbage' is not a Kubernetes version; expected one such as v1.37.2 or v1.38.0-rc.1",
        ),
        (
            "run ER-01 --kubernetes garbage",
            "'garbage' is not a Kubernetes version; expected one such as v1.37.2 or v1.38.0-rc.1",
        ),
        (
            "run --run-id ../x",
            "--run-id '../x': expected at most 63 of letters, digits, -, _ and ., not at the ends",
        ),
        (
            "up --components /no/such/folder",
            "/no/such/folder: expected Kubernetes' programs: kube-apiserver is missing",
        ),
        (
            "report /no/such/run",
            "/no/such/run/events.ndjson: not the folder of a run (No such file or directory)",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(run: Run, places: Path, arguments: str, message: str) -> None:
    assert_refused(run(*arguments.split()), message, places)


@pytest.mark.parametrize("where", ["--cluster c", "--kubeconfig /none"])
@pytest.mark.parametrize(
    ("command", "given", "named"),
    [
        ("plan", "--kubernetes v1.36.3", "--kubernetes"),
        ("plan", "--profile ga", "--profile"),
        ("plan", "--nodes 2", "--nodes"),
        ("run", "--kubernetes v1.37.2", "--kubernetes"),
        ("run", "--profile alpha", "--profile"),
        ("run", "--nodes 3", "--nodes"),
        ("run", "--components /x", "--components"),
        ("run", "--source build", "--source"),
        ("run", "--download-url http://127.0.0.1:1", "--download-url"),
        ("run", "--provider kind", "--provider"),
        ("run", "--node-image kindest/node:v1.37.2", "--node-image"),
        ("run", "--nodes 3 --keep --kubernetes v1.36.3 --seed 4", "--kubernetes, --nodes"),
        ("load ext-churn", "--gates alpha", "--gates"),
        ("load ext-churn", "--simulated-nodes 9", "--simulated-nodes"),
        ("load ext-churn", "--nodes 1 --source build --provider kind", "--nodes, --source, --provider"),
    ],
)
def test_what_a_named_cluster_can_not_become_is_refused(
    run: Run, places: Path, command: str, given: str, named: str, where: str
) -> None:
    message = f"{named}: only for a cluster that is brought up, not with {where.split()[0]}"
    assert_refused(run(*command.split(), *where.split(), *given.split()), message, places)


@needs_root
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("up --kubernetes v9.9.9", f"Kubernetes version 'v9.9.9': {VERSION}"),
        ("up --kubernetes garbage", f"Kubernetes version 'garbage': {VERSION}"),
        ("up Bad_Name", "cluster name 'Bad_Name': expected at most 32 of a-z, 0-9 and -, not at the ends"),
        ("up --nodes 16", "--nodes 16: expected 1 to 15"),
        ("up --simulated-nodes 9999", "--simulated-nodes 9999: expected 0 to 5000"),
        ("up --port 70000", "--port 70000: expected 1 to 65535"),
    ],
)
def test_a_cluster_that_can_not_be_is_refused(run: Run, places: Path, arguments: str, message: str) -> None:
    assert_refused(run(*arguments.split()), message, places)


@needs_root
@pytest.mark.parametrize("arguments", ["--kubernetes v9.9.9", "--nodes 16"])
def test_a_run_whose_cluster_can_not_be_leaves_no_results(run: Run, places: Path, arguments: str) -> None:
    done = run("run", "ER-01", *arguments.split())
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith("error: ")
    assert "v9.9.9" in done.err or "--nodes 16: expected 1 to 15" in done.err
    assert not list((places / "results").iterdir())
    assert not (places / "state").exists()


@needs_root
def test_a_taken_port_is_refused(run: Run, places: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        done = run("up", "--port", str(port))
    assert_refused(done, f"--port {port}: taken by another program on 127.0.0.1", places)


@needs_root
@pytest.mark.parametrize(("subject", "variable"), [("state directory", "STATE"), ("cache", "CACHE")])
@pytest.mark.parametrize("place", ["/run/x", "/var/lib/x"])
def test_a_place_that_nodes_hide_is_refused(
    run: Run, places: Path, monkeypatch: pytest.MonkeyPatch, subject: str, variable: str, place: str
) -> None:
    message = (
        f"{subject}: {place} is inside {Path(place).parent}, which a node hides by its own; "
        f"DRA_HARNESS_{variable} moves it"
    )
    monkeypatch.setenv(f"DRA_HARNESS_{variable}", place)
    assert_refused(run("up"), message, places)
    assert not Path(place).exists()


@needs_root
@pytest.mark.parametrize(("subject", "variable"), [("state directory", "STATE"), ("cache", "CACHE")])
def test_a_place_that_is_a_file_is_refused(
    run: Run, places: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, subject: str, variable: str
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv(f"DRA_HARNESS_{variable}", str(file / "below"))
    assert_refused(run("up"), f"{subject}: {file} is no folder", places)


def test_results_that_can_not_be_written_are_refused_before_anything_is_made(
    run: Run, places: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("DRA_HARNESS_RESULTS", str(file))
    message = f"{file / 'mine'}: results can't be written there: Not a directory"
    assert_refused(run("run", "ER-01", "--run-id", "mine"), message, places)


@needs_root
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("devices:\n- preset: h200\n  cuont: 2\n", "devices.0.cuont: unknown key; did you mean 'count'?"),
        ("devices:\n- preset: h200\n  count: two\n", 'devices.0.count: expected an integer, got "two"'),
        ("devices: 3\n", "devices: expected a list, got 3"),
    ],
)
def test_an_inventory_file_is_read_strictly(
    run: Run, places: Path, tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(content)
    assert_refused(run("up", "--inventory", path), f"{path}: {message}", places)


@needs_root
def test_an_inventory_that_is_no_file_or_no_yaml_is_refused(run: Run, places: Path, tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    for content in (None, "devices: ["):
        if content:
            path.write_text(content)
        done = run("up", "--inventory", path)
        assert done.code == 2
        assert done.err.count("\n") == 1
        assert done.err.startswith(f"error: {path}: ")
    assert not places.exists()


@needs_root
def test_missing_programs_are_named(run: Run, places: Path, tmp_path: Path) -> None:
    folder = tmp_path / "components"
    folder.mkdir()
    (folder / "kube-apiserver").write_text('#!/bin/sh\necho "Kubernetes v1.38.0-rc.0"\n')
    (folder / "kube-apiserver").chmod(0o755)
    done = run("up", "--components", folder)
    assert done.code == 2
    start = f"error: {folder}: expected an executable file for each program: "
    assert done.err.startswith(start)
    assert done.err.count("\n") == 1
    named = {each.split(" ")[0] for each in done.err.removeprefix(start).strip().split("; ")}
    assert named == {"kube-controller-manager", "kube-scheduler", "kubelet"}
    assert not places.exists()


def test_a_run_id_is_used_once(run: Run, places: Path) -> None:
    taken = places / "results" / "mine"
    taken.mkdir(parents=True)
    done = run("run", "--run-id", "mine")
    assert (done.code, done.err) == (2, f"error: --run-id mine: {taken} exists\n")
    assert list(taken.iterdir()) == []


@needs_root
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("up --kubernetes v9.9.9", f"Kubernetes version 'v9.9.9': {VERSION}"),
        ("run --cluster nope", "no cluster is named 'nope'; there are: none"),
    ],
)
def test_the_program_itself_refuses_in_the_same_way(places: Path, arguments: str, message: str) -> None:
    assert_refused(run_program(*arguments.split()), message, places)


def as_nobody() -> list[str] | None:
    if not ROOT:
        return None
    if not shutil.which("unshare") or subprocess.run([*AS_NOBODY, "true"], check=False).returncode:
        pytest.skip("this machine lets nobody be another user")
    return AS_NOBODY


@pytest.mark.process
def test_without_root_a_cluster_is_refused(places: Path) -> None:
    message = "root: a local cluster needs root (namespaces and mounts); use sudo"
    assert_refused(run_program("up", wrapper=as_nobody()), message, places)


@pytest.mark.process
@pytest.mark.parametrize("arguments", ["plan ER-01", "down --all"])
def test_what_needs_no_root_works_without(places: Path, arguments: str) -> None:
    ended = run_program(*arguments.split(), wrapper=as_nobody())
    assert ended.code == 0, ended.err
    assert not places.exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("up --bogus", "No such option: --bogus"),
        ("nonsense", "No such command 'nonsense'"),
        ("up --profile beta", "'beta' is not one of 'ga', 'alpha'"),
        ("run --parallel 0", "'--parallel' / '-n': Input should be greater than or equal to 1"),
        ("logs a --tail -1", "'--tail': Input should be greater than or equal to 0"),
        ("up --nodes many", "'--nodes': Input should be a valid integer"),
        ("up --nodes 0", "'--nodes': Input should be greater than or equal to 1"),
        ("run --nodes 0", "'--nodes': Input should be greater than or equal to 1"),
        ("plan --nodes -1", "'--nodes': Input should be greater than or equal to 1"),
        ("up --simulated-nodes -1", "'--simulated-nodes': Input should be greater than or equal to 0"),
        ("report", "Missing argument"),
    ],
)
def test_wrong_usage_is_exit_code_2(run: Run, places: Path, arguments: str, problem: str) -> None:
    done = run(*arguments.split())
    assert done.code == 2
    assert problem in " ".join(re.sub("[│╭╮╰╯─]", " ", done.err).split())
    assert "Traceback" not in done.err
    assert not places.exists()
