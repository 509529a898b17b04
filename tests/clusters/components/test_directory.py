"""Prebuilt programs. The programs are small shell scripts here."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusters.components import PROGRAMS, DirectorySource
from harness.errors import UsageError


def put_program(directory: Path, name: str, says: str, mode: int = 0o755) -> None:
    program = directory / name
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{says}"\n')
    program.chmod(mode)


def test_paths_of_what_was_asked_for(tmp_path: Path) -> None:
    put_program(tmp_path, "kubelet", "Kubernetes v1.38.0-rc.0")
    put_program(tmp_path, "etcd", "etcd Version: 3.7.3")
    wanted = [PROGRAMS["kubelet"], PROGRAMS["etcd"]]
    found = DirectorySource(tmp_path).ensure(wanted, "v1.38.0-rc.0")
    assert found == {"kubelet": tmp_path / "kubelet", "etcd": tmp_path / "etcd"}


def test_every_unusable_program_is_named_at_once(tmp_path: Path) -> None:
    put_program(tmp_path, "kubelet", "Kubernetes v1.37.2")
    put_program(tmp_path, "runc", "runc", mode=0o644)
    (tmp_path / "ctr").mkdir()
    names = ["etcd", "kubelet", "runc", "ctr"]
    with pytest.raises(UsageError) as raised:
        DirectorySource(tmp_path).ensure([PROGRAMS[name] for name in names], "v1.37.2")
    message = str(raised.value)
    assert message.startswith(f"{tmp_path}: ")
    assert message.endswith(": etcd is missing; runc is not executable; ctr is no file")


def test_another_kubernetes_version_is_refused_by_name(tmp_path: Path) -> None:
    put_program(tmp_path, "kube-apiserver", "Kubernetes v1.37.2")
    put_program(tmp_path, "kubelet", "Kubernetes v1.36.3")
    wanted = [PROGRAMS["kube-apiserver"], PROGRAMS["kubelet"]]
    with pytest.raises(UsageError) as raised:
        DirectorySource(tmp_path).ensure(wanted, "v1.37.2")
    assert str(raised.value) == f"{tmp_path}: expected Kubernetes v1.37.2: kubelet is v1.36.3"


def test_the_version_is_what_the_apiserver_says(tmp_path: Path) -> None:
    put_program(tmp_path, "kube-apiserver", "Kubernetes v1.38.0-rc.0")
    assert DirectorySource(tmp_path).kubernetes_version() == "v1.38.0-rc.0"


def test_no_apiserver_no_version(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="kube-apiserver is missing"):
        DirectorySource(tmp_path).kubernetes_version()


def test_something_else_called_kube_apiserver_is_refused(tmp_path: Path) -> None:
    put_program(tmp_path, "kube-apiserver", "hello")
    with pytest.raises(UsageError, match=r"expected `Kubernetes vX\.Y\.Z`, got 'hello'"):
        DirectorySource(tmp_path).kubernetes_version()


def test_a_program_for_another_machine_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "kube-apiserver"
    program.write_bytes(b"\x7fELF no program at all")
    program.chmod(0o755)
    with pytest.raises(UsageError, match="expected a program for this machine"):
        DirectorySource(tmp_path).kubernetes_version()


def test_a_relative_directory_gives_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_program(tmp_path, "etcd", "etcd")
    monkeypatch.chdir(tmp_path)
    assert DirectorySource(Path()).ensure([PROGRAMS["etcd"]], "v1.37.2") == {"etcd": tmp_path / "etcd"}


def test_a_release_candidates_own_programs_are_enough(tmp_path: Path) -> None:
    candidate, rest = tmp_path / "candidate", tmp_path / "rest"
    candidate.mkdir()
    rest.mkdir()
    put_program(candidate, "kubelet", "Kubernetes v1.38.0-rc.0")
    put_program(candidate, "ctr", "ctr")
    put_program(rest, "etcd", "etcd Version: 3.7.3")
    wanted = [PROGRAMS[name] for name in ("kubelet", "ctr", "etcd")]

    found = DirectorySource(candidate, rest=DirectorySource(rest)).ensure(wanted, "v1.38.0-rc.0")

    assert found == {"kubelet": candidate / "kubelet", "ctr": candidate / "ctr", "etcd": rest / "etcd"}


def test_kubernetes_programs_never_come_from_elsewhere(tmp_path: Path) -> None:
    candidate, rest = tmp_path / "candidate", tmp_path / "rest"
    candidate.mkdir()
    rest.mkdir()
    put_program(rest, "kubelet", "Kubernetes v1.38.0-rc.0")

    with pytest.raises(UsageError, match="kubelet is missing"):
        DirectorySource(candidate, rest=DirectorySource(rest)).ensure([PROGRAMS["kubelet"]], "v1.38.0-rc.0")
