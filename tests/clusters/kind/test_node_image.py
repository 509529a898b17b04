"""The node image: what a build needs and leaves, and which images are ours."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from clusters.interface import ClusterSpec, SilentProgress
from clusters.kind import node_image, preflight
from clusters.kind.provider import KindProvider
from harness.errors import EnvironmentBlocked, UsageError
from harness.waiting import wait_until
from tests.clusters.kind.conftest import NoPrograms

MakeDocker = Callable[[str], None]


@pytest.fixture
def make_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeDocker:
    """Makes a `docker` all of PATH, that notes in `asked` what it is asked and then does as told."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setenv("DRA_HARNESS_CACHE", str(tmp_path / "cache"))

    def make(does: str) -> None:
        program.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/asked\n{does}\n')
        program.chmod(0o755)

    return make


def test_without_debootstrap_the_first_build_is_refused_before_anything_is_built(
    make_docker: MakeDocker, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_docker("[ $1 != version ] || echo 20.10; [ $1 != info ] || echo runc")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    refusal = "node-image: debootstrap is not on PATH: apt-get install debootstrap"
    with pytest.raises(UsageError, match=f"^{refusal}$"):
        node_image.ensure(NoPrograms(), "v1.37.2")
    with pytest.raises(UsageError, match=f"^node image: {refusal}, or give --node-image$"):
        KindProvider(NoPrograms()).up(ClusterSpec("a"), SilentProgress())
    assert {each.subject: each.ok for each in preflight.check_machine()}["node image"] is False
    assert all(each.ok for each in preflight.check_machine(builds=False))


def test_without_debootstrap_an_image_that_is_there_does(
    make_docker: MakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_docker("[ $4 != dra-harness.dev/node ] || echo 0123456789ab")
    node_image.require_buildable()


@pytest.mark.parametrize(
    ("image", "label", "ours"),
    [("mine:v1", "true", True), ("kindest/node:v1", "", False), ("dra-harness.dev/node:old", "", True)],
)
def test_an_image_is_ours_by_its_label_or_by_the_name_that_older_ones_have(
    make_docker: MakeDocker, image: str, label: str, ours: bool
) -> None:
    make_docker(f"echo '{label}'")
    assert node_image.is_ours(image) is ours


def test_an_image_that_docker_lacks_is_pulled_to_see_whose_it_is(
    make_docker: MakeDocker, tmp_path: Path
) -> None:
    pulled = tmp_path / "pulled"
    make_docker(f"if [ $1 = pull ]; then : >{pulled}; elif [ -e {pulled} ]; then echo true; else exit 1; fi")
    assert node_image.is_ours("registry.example.com/node:v1")
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line.split()[0] for line in asked] == ["image", "pull", "image"]


def test_what_killed_builds_left_is_removed(
    make_docker: MakeDocker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_docker("[ $1 != ps ] || echo c1 c2")
    monkeypatch.setenv("PATH", os.defpath, prepend=os.pathsep)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    left = tmp_path / "cache" / "node-image" / "tmpabc" / "root"
    left.mkdir(parents=True)
    lock = tmp_path / "cache" / "node-image" / "build.lock"
    lock.touch()

    node_image.remove_leftovers()

    listed, removed = (tmp_path / "asked").read_text().splitlines()
    assert listed.startswith("ps --all --quiet --filter name=dra-harness-build-")
    assert removed == "rm --force --volumes c1 c2"
    assert list(lock.parent.iterdir()) == [lock]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_what_a_killed_debootstrap_has_mounted_goes_with_it(tmp_path: Path) -> None:
    """Its target's /proc is the machine's, and removing the target would go into it."""
    mounted = tmp_path / "proc"
    mounted.mkdir()
    script = f"mount -t tmpfs none {mounted}; echo >{mounted}/inside; echo mounted; exec sleep 600"
    command = [*node_image.ISOLATED, "sh", "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout
            assert running.stdout.readline() == "mounted\n"
            assert list(mounted.iterdir()) == [], "the mount is seen outside"
            inner = _children(running.pid)
            assert inner
        finally:
            running.kill()
        wait_until(lambda: not any(map(_runs, inner)), 20, "it to be gone", interval=0.01)
    shutil.rmtree(mounted)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_program_that_is_missing_is_named(make_docker: MakeDocker) -> None:
    with pytest.raises(EnvironmentBlocked, match="setpriv"):
        node_image._run([*node_image.ISOLATED, "debootstrap"])
