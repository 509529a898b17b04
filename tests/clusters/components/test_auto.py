"""`auto`: the cache, then a download, then a build. Only the compiler is not the real one."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from clusters.components import PROGRAMS, AutoSource, BuildSource, DownloadSource, build, lock, toolchain
from clusters.components.compile import Build
from clusters.components.interface import Program, Progress
from clusters.components.toolchain import Toolchain
from harness.errors import HarnessError, UsageError
from tests.support.releases import Releases, serving

VERSION = "v1.37.2"
NAMES = ["kube-apiserver", "kubelet"]
WANTED = [*(PROGRAMS[name] for name in NAMES), PROGRAMS["pod"]]
GO = Toolchain(Path("/usr/bin/go"), "1.26.8", "linux/amd64")


@pytest.fixture
def server() -> Iterator[Releases]:
    with serving() as releases:
        for name in NAMES:
            releases.publish(VERSION, name, f"downloaded {name}".encode())
        yield releases


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that were compiled, so to speak."""
    names: list[str] = []

    def compile_programs(build: Build, programs: Sequence[Program], work: Path, progress: Progress) -> Path:
        for program in programs:
            names.append(program.name)
            (work / program.name).write_text(f"built {program.name}")
            (work / program.name).chmod(0o755)
        return work

    monkeypatch.setattr(build, "compile_programs", compile_programs)
    monkeypatch.setattr(build, "require_compiler", lambda module: None)
    monkeypatch.setattr(toolchain, "on_path", lambda: GO)
    return names


def auto(url: str, cache: Path, sleep: Callable[[float], None] = lambda seconds: None) -> AutoSource:
    built = BuildSource(cache)
    return AutoSource(built, DownloadSource(built, url, cache, sleep=sleep))


def test_it_is_downloaded_where_the_server_answers(
    server: Releases, compiled: list[str], tmp_path: Path
) -> None:
    found = auto(server.url, tmp_path).ensure(WANTED, VERSION)
    assert {name: path.read_text() for name, path in found.items()} == {
        "kube-apiserver": "downloaded kube-apiserver",
        "kubelet": "downloaded kubelet",
        "pod": "built pod",
    }
    assert compiled == ["pod"]


def test_a_download_in_the_cache_needs_no_server(
    server: Releases, compiled: list[str], tmp_path: Path
) -> None:
    source = auto(server.url, tmp_path)
    first = source.ensure(WANTED, VERSION)
    server.requests.clear()
    assert source.ensure(WANTED, VERSION, lambda *step: pytest.fail(f"all was there: {step}")) == first
    assert server.requests == []


def test_a_build_in_the_cache_needs_no_server(server: Releases, compiled: list[str], tmp_path: Path) -> None:
    built = BuildSource(tmp_path).ensure(WANTED, VERSION)
    assert auto(server.url, tmp_path).ensure(WANTED, VERSION) == built
    assert server.requests == []


def test_half_a_build_in_the_cache_is_not_mixed_with_a_download(
    server: Releases, compiled: list[str], tmp_path: Path
) -> None:
    BuildSource(tmp_path).ensure(WANTED[:1], VERSION)
    found = auto(server.url, tmp_path).ensure(WANTED, VERSION)
    assert found["kube-apiserver"].read_text() == "downloaded kube-apiserver"
    assert found["kube-apiserver"].parent == found["kubelet"].parent


def test_it_is_built_where_no_server_answers(compiled: list[str], tmp_path: Path) -> None:
    said: list[tuple[str, str]] = []
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{holder.getsockname()[1]}"
        started = time.monotonic()
        source = auto(url, tmp_path, lambda seconds: pytest.fail("one attempt tells"))
        found = source.ensure(WANTED, VERSION, lambda *step: said.append((step[0], step[3])))
    assert time.monotonic() - started < 20
    assert found["kubelet"].read_text() == "built kubelet"
    ((phase, text),) = said
    assert phase == "source"
    assert text.startswith(f"no download, so Kubernetes is built: {url}/release/{VERSION}/bin/linux/")
    assert text.endswith("Connection refused")


def test_it_is_built_where_the_server_lacks_the_version(
    server: Releases, compiled: list[str], tmp_path: Path
) -> None:
    said: list[str] = []
    found = auto(server.url, tmp_path).ensure(WANTED, "v1.37.0", lambda *step: said.append(step[3]))
    assert found["kubelet"].read_text() == "built kubelet"
    assert "not published there" in said[0]


def test_it_is_built_where_the_server_breaks_down(
    server: Releases, compiled: list[str], tmp_path: Path
) -> None:
    """What had come stays for the next attempt, and does not count as downloaded."""
    path = server.publish(VERSION, "kubelet", b"x" * 100)
    server.failures[path] = [503] * 99
    found = auto(server.url, tmp_path).ensure(WANTED, VERSION)
    assert {path.read_text() for path in found.values()} == {
        "built kube-apiserver",
        "built kubelet",
        "built pod",
    }


def test_a_wrong_checksum_is_no_reason_to_build(
    server: Releases, compiled: list[str], tmp_path: Path
) -> None:
    server.files[server.publish(VERSION, "kubelet", b"published")] = b"tampered with"
    with pytest.raises(HarnessError, match="wrong checksum"):
        auto(server.url, tmp_path).ensure(WANTED, VERSION)
    assert compiled == []


def test_what_is_no_part_of_kubernetes_is_never_asked_for(
    server: Releases, compiled: list[str], tmp_path: Path
) -> None:
    assert auto(server.url, tmp_path).ensure([PROGRAMS["pod"]], "")["pod"].read_text() == "built pod"
    assert server.requests == []


def test_an_impossible_version_is_refused_before_anything_else(
    server: Releases, compiled: list[str], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=f"locked in this release: .*{lock.locked()[-1]}"):
        auto(server.url, tmp_path / "cache").ensure(WANTED, "v9.9.9")
    assert server.requests == []
    assert not (tmp_path / "cache").exists()
