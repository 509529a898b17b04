"""Taking clusters away that have no processes, and who may: the state files and locks are real."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clusters import processes
from clusters.components import BuildSource
from clusters.interface import Profile
from clusters.local import cgroups, machine, sysctls, teardown
from clusters.local.provider import LocalProvider
from clusters.local.state import ClusterState
from harness.errors import EnvironmentBlocked, UsageError
from harness.waiting import wait_until


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the state directory and the machine's folder, on a machine without links and settings."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ip").write_text("#!/bin/sh\necho '[]'\n")
    (tmp_path / "bin" / "ip").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setattr(sysctls, "PROC_SYS", tmp_path / "proc-sys")
    monkeypatch.setattr(cgroups, "_hierarchies", list)
    monkeypatch.setenv("DRA_HARNESS_STATE", str(tmp_path / "places" / "state"))
    monkeypatch.setenv("DRA_HARNESS_MACHINE", str(tmp_path / "places" / "machine"))
    return tmp_path / "places"


def make(name: str, *, kept: bool = False) -> ClusterState:
    """A cluster that is written down and entered, as `up` does it, and has a file."""
    made = ClusterState(
        id=secrets.token_hex(3),
        name=name,
        kubernetes="v1.37.2",
        profile=Profile.GA,
        nodes=("node-1",),
        slot=3,
        kept=kept,
    )
    with machine.lock():
        made.save()
        machine.register(made.id, made.slot, made.path)
    (made.directory / "admin.kubeconfig").write_text("x")
    return made


HOLDER = """
import sys
from clusters.local.state import ClusterState
with ClusterState.load(sys.argv[1]).maker_lock():
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def made_elsewhere(name: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a cluster as its maker."""
    command = [sys.executable, "-c", HOLDER, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as maker:
        try:
            assert maker.stdout
            assert maker.stdout.readline() == "held\n"
            yield maker
        finally:
            maker.kill()


def names() -> list[str]:
    return [each.name for each in ClusterState.every()]


def test_a_cluster_that_nobody_uses_goes_without_a_trace(places: Path) -> None:
    teardown.take_down(make("c"))
    assert [path for path in places.rglob("*") if not path.is_dir()] == []
    assert not (places / "machine").exists()
    assert not (places / "state").exists()


def test_a_cluster_that_another_process_makes_is_refused_unless_forced(places: Path) -> None:
    cluster = make("c")
    with made_elsewhere("c"):
        with pytest.raises(UsageError) as raised:
            teardown.take_down(cluster)
        assert str(raised.value) == (
            "cluster 'c' is in use by the process that makes it; end that, or use --force"
        )
        assert names() == ["c"]
        assert (cluster.directory / "admin.kubeconfig").exists()
        with machine.lock():
            assert machine.taken_slots() == {3}
        teardown.take_down(cluster, force=True)
        assert names() == []
    assert not (places / "machine").exists()


def test_a_cluster_whose_maker_died_needs_no_force(places: Path) -> None:
    cluster = make("c")
    with made_elsewhere("c") as maker:
        maker.kill()
        maker.wait(60)
        teardown.take_down(cluster)
    assert names() == []


@pytest.mark.parametrize("force", [False, True])
def test_the_provider_passes_force_on(places: Path, force: bool) -> None:
    provider = LocalProvider(BuildSource())
    make("c")
    with made_elsewhere("c"):
        if force:
            provider.down("c", force=True)
        else:
            with pytest.raises(UsageError, match="--force"):
                provider.down("c")
    assert names() == ([] if force else ["c"])


def test_a_sweep_takes_what_has_lost_its_maker(places: Path) -> None:
    make("orphan")
    make("kept", kept=True)
    make("held")
    with made_elsewhere("held"):
        teardown.sweep()
    assert names() == ["held", "kept"]
    assert len(list((places / "machine" / "clusters").iterdir())) == 2


def test_what_a_sweep_is_removing_no_other_takes(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orphans = {make("a").id, make("b").id}
    make("kept", kept=True)
    removed: list[str] = []

    def and_another_sweeps(cluster_id: str) -> None:
        removed.append(cluster_id)
        teardown.sweep()

    monkeypatch.setattr(cgroups, "remove", and_another_sweeps)
    teardown.sweep()
    assert sorted(removed) == sorted(orphans)
    assert names() == ["kept"]
    assert [path.name for path in (places / "state" / "clusters").iterdir()] == ["kept"]


def test_a_cgroup_that_another_command_removes_meanwhile_is_fine(
    cgroup_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cgroups.create("0a1b2c", "node-1")
    is_dir = Path.is_dir

    def and_it_goes(path: Path) -> bool:
        there = is_dir(path)
        shutil.rmtree(path, ignore_errors=True)
        return there

    with monkeypatch.context() as patch:
        patch.setattr(Path, "is_dir", and_it_goes)
        cgroups.remove("0a1b2c")
    assert list(cgroup_root.iterdir()) == []


def test_a_sweep_leaves_a_users_own_files(places: Path) -> None:
    make("orphan")
    file = places / "state" / "clusters" / "photos" / "a.jpg"
    file.parent.mkdir()
    file.write_text("mine")
    teardown.sweep()
    assert names() == []
    assert file.read_text() == "mine"


def test_a_sweep_without_a_state_directory_makes_nothing(places: Path) -> None:
    teardown.sweep()
    assert not places.exists()


def test_a_namesake_made_meanwhile_is_left_alone(places: Path) -> None:
    old = make("c")
    new = make("c")
    teardown.remove(old)
    assert ClusterState.load("c") == new
    assert (new.directory / "admin.kubeconfig").exists()
    assert [path.name for path in (places / "machine" / "clusters").iterdir()] == [new.id]


def test_what_is_stuck_stays_written_down(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = make("c")

    def stuck(cluster_id: str) -> None:
        raise EnvironmentBlocked(f"cgroups of {cluster_id} are busy")

    with monkeypatch.context() as patch:
        patch.setattr(cgroups, "remove", stuck)
        with pytest.raises(EnvironmentBlocked, match="are busy"):
            teardown.take_down(cluster)
    assert ClusterState.load("c") == cluster
    with machine.lock():
        assert machine.taken_slots() == {3}
    teardown.take_down(cluster)
    assert names() == []


@pytest.fixture
def cgroup_root(places: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands in for the machine's only cgroup hierarchy."""
    folder = tmp_path / "cgroup"
    folder.mkdir()
    monkeypatch.setattr(cgroups, "_hierarchies", lambda: [(folder, 1)])
    return folder


def with_rest(cluster: ClusterState, places: Path, cgroup_root: Path, command: list[str]) -> ClusterState:
    """Gives a cluster a cgroup and a process."""
    cgroups.create(cluster.id, "node-1")
    processes.spawn(command, cluster_id=cluster.id, component="etcd", log=places.parent / "log")
    wait_until(lambda: processes.find(cluster.id), 20, "the process to be found", interval=0.01)
    return cluster


@pytest.mark.parametrize("namesake", [False, True])
def test_a_cluster_whose_files_were_removed_is_cleared_by_the_register(
    places: Path, cgroup_root: Path, namesake: bool
) -> None:
    """Also if another has its name, and so its folder, by now."""
    lost = with_rest(make("c"), places, cgroup_root, ["sleep", "600"])
    shutil.rmtree(places / "state")
    (lost.directory / "logs").mkdir(parents=True)  # as what still runs may do
    left = {make("c", kept=True).id} if namesake else set()

    LocalProvider(BuildSource()).sweep()

    assert processes.find(lost.id) == []
    assert list(cgroup_root.iterdir()) == []
    registered = places / "machine" / "clusters"
    assert {path.name for path in registered.glob("*")} == left
    assert (places / "machine").exists() == namesake
    assert names() == ["c"] * namesake
    assert (places / "state").exists() == namesake


def test_clusters_of_other_state_directories_are_not_lost(
    places: Path, cgroup_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is one whose record can't be read, or of which an older harness did not say where it is."""
    with monkeypatch.context() as patch:
        patch.setenv("DRA_HARNESS_STATE", str(places / "elsewhere"))
        other = with_rest(make("c"), places, cgroup_root, ["sleep", "600"])
        broken, older = make("broken"), make("older")
        broken.path.write_text("{")
        shutil.rmtree(older.directory)
    (places / "machine" / "records" / older.id).unlink()

    LocalProvider(BuildSource()).sweep()

    assert len(processes.find(other.id)) == 1
    assert [path.name for path in cgroup_root.iterdir()] == [cgroups.root_name(other.id)]
    with machine.lock():
        assert set(machine.records()) == {other.id, broken.id}
    processes.kill(other.id)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes mount namespaces")
def test_a_cluster_whose_own_processes_see_its_files_is_not_lost(places: Path, cgroup_root: Path) -> None:
    """A service may have a /tmp of its own, where nobody else sees what it keeps there."""
    cluster = make("c")
    record, kept = cluster.path, places.parent / "kept"
    shutil.copy(record, kept)
    hide = f"mount -t tmpfs own {places}/state && mkdir -p {record.parent} && cp {kept} {record}"
    with_rest(cluster, places, cgroup_root, ["unshare", "--mount", "sh", "-c", f"{hide} && exec sleep 600"])
    seen = f"/proc/{processes.find(cluster.id)[0].pid}/root{record}"
    wait_until(lambda: processes.main_pid(cluster.id, "etcd", "sleep"), 20, "the file to be hidden")
    shutil.rmtree(places / "state" / "clusters")
    assert Path(seen).exists()

    LocalProvider(BuildSource()).sweep()

    assert len(processes.find(cluster.id)) == 1
    with machine.lock():
        assert set(machine.records()) == {cluster.id}
    processes.kill(cluster.id)
