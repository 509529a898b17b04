from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clusters.interface import Profile
from clusters.local import state
from clusters.local.state import ClusterState
from harness.errors import UsageError
from harness.waiting import wait_until


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRA_HARNESS_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def of(name: str, **more: object) -> ClusterState:
    values = {"id": "0a1b2c", "kubernetes": "v1.37.2", "profile": Profile.GA, "nodes": ("node-1",), "slot": 3}
    return ClusterState.model_validate({**values, "name": name, **more})


def test_what_is_saved_is_loaded(root: Path) -> None:
    saved = of("c", ready=True, kept=True, driver="d", seconds=9.5, phases={"a": 1.5})
    state.save(saved)
    assert state.load("c") == saved
    assert (root / "clusters" / "c" / "cluster.json").stat().st_mode & 0o777 == 0o600
    assert root.joinpath("clusters", "c").stat().st_mode & 0o777 == 0o700


def test_all_clusters_come_by_name(root: Path) -> None:
    assert state.load_all() == []
    for name in ("b", "a"):
        state.save(of(name))
    (root / "clusters" / "half").mkdir()
    assert [each.name for each in state.load_all()] == ["a", "b"]


def test_an_unknown_name_lists_those_that_are_there(root: Path) -> None:
    with pytest.raises(UsageError) as raised:
        state.load("x")
    assert str(raised.value) == "no local cluster is named 'x'; there are: none"
    state.save(of("a"))
    state.save(of("b"))
    with pytest.raises(UsageError, match=r"there are: a, b$"):
        state.load("x")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"slot": "many"}, "slot: Input should be a valid integer"),
        ({"profile": "beta"}, "profile: Input should be 'ga' or 'alpha'"),
        ({"colour": "red"}, "colour: Extra inputs are not permitted"),
        ({"id": None}, "id: Input should be a valid string"),
    ],
)
def test_a_corrupt_state_file_is_named_with_its_key(
    root: Path, change: dict[str, object], complaint: str
) -> None:
    state.save(of("c"))
    path = root / "clusters" / "c" / "cluster.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    for read in (lambda: state.load("c"), state.load_all):
        with pytest.raises(UsageError) as raised:
            read()
        assert str(raised.value).startswith(f"{path}: {complaint}")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff"])
def test_a_state_file_that_is_no_json_is_named(root: Path, content: bytes) -> None:
    state.save(of("c"))
    path = root / "clusters" / "c" / "cluster.json"
    path.write_bytes(content)
    with pytest.raises(UsageError) as raised:
        state.load("c")
    assert str(raised.value).startswith(f"{path}: the file: Invalid JSON")


def test_a_cluster_that_goes_while_all_are_read_is_left_out(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.save(of("a"))
    state.save(of("b"))
    read_bytes = Path.read_bytes

    def and_b_goes(path: Path) -> bytes:
        (root / "clusters" / "b" / "cluster.json").unlink(missing_ok=True)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", and_b_goes)
    assert [each.name for each in state.load_all()] == ["a"]


def test_the_handle_of_a_cluster(root: Path) -> None:
    handle = of("c", nodes=("node-1", "node-2"), seconds=2.5).cluster()
    directory = root / "clusters" / "c"
    assert (handle.name, handle.provider, handle.id, handle.seconds) == ("c", "local", "0a1b2c", 2.5)
    assert handle.directory == directory
    assert handle.kubeconfig == directory / "admin.kubeconfig"
    assert handle.driver_kubeconfig == directory / "driver-client.kubeconfig"
    node = handle.nodes[1]
    assert node.name == "node-2"
    assert node.kubelet_dir == directory / "node-2" / "lib" / "kubelet"
    assert node.kubelet_dir_in_node == "/var/lib/kubelet"
    assert node.cdi_dir == directory / "node-2" / "cdi"


def test_marks_are_six_hex_digits_and_differ() -> None:
    made = {state.new_id() for _ in range(50)}
    assert len(made) == 50
    assert all(len(each) == 6 and int(each, 16) >= 0 for each in made)


def test_a_write_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f.json"
    state.write_json(path, {"a": 1})

    def full(self: Path, target: Path) -> Path:
        assert json.loads(self.read_text()) == {"a": 2}
        assert json.loads(path.read_text()) == {"a": 1}
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        state.write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}


def test_a_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        state.write_atomically(tmp_path / "key", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


def test_removing_takes_the_state_file_last(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = of("c")
    state.save(saved)
    (saved.directory / "node-1" / "run").mkdir(parents=True)
    (saved.directory / "admin.kubeconfig").write_text("x")
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (saved.directory / "link").symlink_to(outside)
    left: list[list[str]] = []
    rmtree = shutil.rmtree

    def watched(path: Path) -> None:
        left.append(sorted(each.name for each in saved.directory.iterdir()))
        rmtree(path)

    monkeypatch.setattr(shutil, "rmtree", watched)
    state.remove(saved)
    assert left[-1] == ["cluster.json"]
    assert not saved.directory.exists()
    assert (outside / "kept").exists()


def test_tidying_removes_what_has_no_state_file(root: Path) -> None:
    state.save(of("a"))
    (root / "clusters" / "half" / "pki").mkdir(parents=True)
    assert not state.tidy()
    assert [path.name for path in (root / "clusters").iterdir()] == ["a"]
    state.remove(of("a"))
    assert state.tidy()
    assert not (root / "clusters").exists()
    assert state.tidy()


HOLDER = """
import sys
from clusters.local import state
with state.machine_lock():
    print("held", flush=True)
    sys.stdin.readline()
"""


def hold() -> subprocess.Popen[str]:
    popen = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    return popen


def test_one_process_at_a_time_holds_the_machine(root: Path) -> None:
    with hold() as other:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        descriptor = os.open(root, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
        other.communicate("\n", timeout=60)
        assert other.returncode == 0
    with state.machine_lock():
        assert root.stat().st_mode & 0o777 == 0o700


def waits_for_lock(pid: int) -> bool:
    """Whether the kernel has the process among those that wait for a lock."""
    lines = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and f" {pid} " in line for line in lines)


def test_who_waited_for_a_directory_that_went_takes_the_new_one(root: Path) -> None:
    with state.machine_lock():
        waiting = hold()
        wait_until(lambda: waits_for_lock(waiting.pid), 60, "the other to wait", interval=0.02)
        root.rmdir()
    with waiting:
        assert waiting.stdout
        assert waiting.stdout.readline() == "held\n"
        descriptor = os.open(root, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
        waiting.communicate("\n", timeout=60)


def test_a_directory_that_goes_before_it_is_opened_is_made_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open = os.open
    gone: list[Path] = []

    def open_after_removal(path: Path, flags: int) -> int:
        if not gone:
            gone.append(path)
            root.rmdir()
        return real_open(path, flags)

    monkeypatch.setattr(os, "open", open_after_removal)
    with state.machine_lock():
        assert root.is_dir()
    assert gone == [root]
