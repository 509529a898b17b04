"""What the local clusters of a machine share: one lock, the address blocks, and the kernel settings."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clusters.local import machine, sysctls
from harness.waiting import wait_until

RECORD = Path("/nowhere/cluster.json")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine's folder; isn't there."""
    monkeypatch.setenv("DRA_HARNESS_MACHINE", str(tmp_path / "run" / "machine"))
    return tmp_path / "run" / "machine"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands in for /proc/sys."""
    folder = tmp_path / "proc-sys"
    for name, value in {"kernel/panic": "0", "fs/inotify/max_user_instances": "128"}.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(f"{value}\n")
    monkeypatch.setattr(sysctls, "PROC_SYS", folder)
    return folder


def setting(settings: Path, name: str) -> str:
    return (settings / name).read_text().strip()


def test_address_blocks_are_taken_whoever_has_them(
    root: Path, settings: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for state_dir, cluster, slot in (("one", "0a1b2c", 0), ("two", "0a1b2d", 15)):
        monkeypatch.setenv("DRA_HARNESS_STATE", str(tmp_path / state_dir))
        with machine.lock():
            machine.register(cluster, slot, RECORD)
    with machine.lock():
        assert machine.taken_slots() == {0, 15}
        machine.unregister("0a1b2c")
        assert machine.taken_slots() == {15}


def test_the_register_says_where_each_record_is(root: Path, settings: Path) -> None:
    assert not machine.is_readable()
    with machine.lock():
        machine.register("0a1b2c", 0, RECORD)
        machine.register("0a1b2d", 1, RECORD.with_name("other.json"))
        machine.unregister("0a1b2d")
        assert machine.records() == {"0a1b2c": RECORD}
    assert machine.is_readable()


def test_nobody_has_taken_anything_at_first(root: Path) -> None:
    with machine.lock():
        assert machine.taken_slots() == set()


def test_kernel_settings_are_put_back_after_the_last_cluster(root: Path, settings: Path) -> None:
    with machine.lock():
        machine.register("0a1b2c", 0, RECORD)
    (settings / "kernel/panic").write_text("10\n")  # as the first cluster's kubelet does
    with machine.lock():
        machine.register("0a1b2d", 1, RECORD)
        machine.unregister("0a1b2c")
    assert setting(settings, "kernel/panic") == "10"
    assert setting(settings, "fs/inotify/max_user_instances") == "1024"
    with machine.lock():
        machine.unregister("0a1b2d")
    assert setting(settings, "kernel/panic") == "0"
    assert setting(settings, "fs/inotify/max_user_instances") == "128"
    assert not root.exists()


def test_the_next_first_cluster_remembers_anew(root: Path, settings: Path) -> None:
    for panic in ("0", "5"):
        (settings / "kernel/panic").write_text(panic)
        with machine.lock():
            machine.register("0a1b2c", 0, RECORD)
            (settings / "kernel/panic").write_text("10")
            machine.unregister("0a1b2c")
        assert setting(settings, "kernel/panic") == panic


def test_striking_out_twice_or_what_was_never_entered_is_fine(root: Path, settings: Path) -> None:
    for _ in range(2):
        with machine.lock():
            machine.unregister("0a1b2c")
        assert not root.exists()
    assert setting(settings, "fs/inotify/max_user_instances") == "128"


def test_what_is_not_ours_stays_in_the_machines_folder(root: Path, settings: Path) -> None:
    root.mkdir(parents=True)
    (root / "notes.txt").write_text("mine")
    with machine.lock():
        machine.register("0a1b2c", 0, RECORD)
        machine.unregister("0a1b2c")
    assert [path.name for path in root.iterdir()] == ["notes.txt"]


HOLDER = """
import sys
from clusters.local import machine
with machine.lock():
    print("held", flush=True)
    sys.stdin.readline()
"""


def hold() -> subprocess.Popen[str]:
    popen = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    return popen


def assert_held(root: Path) -> None:
    descriptor = os.open(root, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)


def test_one_process_at_a_time_holds_the_machine(root: Path) -> None:
    with hold() as other:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        assert_held(root)
        other.communicate("\n", timeout=60)
        assert other.returncode == 0
    with machine.lock():
        assert root.stat().st_mode & 0o777 == 0o700


def waits_for_lock(pid: int) -> bool:
    """Whether the kernel has the process among those that wait for a lock."""
    lines = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and f" {pid} " in line for line in lines)


def test_who_waited_for_a_folder_that_went_takes_the_new_one(root: Path) -> None:
    with machine.lock():
        waiting = hold()
        wait_until(lambda: waits_for_lock(waiting.pid), 60, "the other to wait", interval=0.02)
        root.rmdir()
    with waiting:
        assert waiting.stdout
        assert waiting.stdout.readline() == "held\n"
        assert_held(root)
        waiting.communicate("\n", timeout=60)


def test_a_folder_that_goes_before_it_is_opened_is_made_again(
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
    with machine.lock():
        assert root.is_dir()
    assert gone == [root]
