"""Downloading into the cache, from a server on loopback. Its programs are small scripts."""

from __future__ import annotations

import hashlib
import platform
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import filelock
import pytest

from clusters.components import NODE_IMAGE, PROGRAMS, DownloadSource, locations
from clusters.components.fetch import NotPublished, Unavailable
from clusters.components.interface import Program, Progress, silent
from harness.errors import HarnessError, UsageError
from tests.support.releases import Releases, serving

VERSION = "v1.38.0-rc.1"
MIB = 1024**2
NAMES = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"]
WANTED = [PROGRAMS[name] for name in NAMES]


class Rest:
    """Stands for the build: says what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ensure(
        self, programs: Iterable[Program], kubernetes_version: str, progress: Progress = silent
    ) -> Mapping[str, Path]:
        self.asked = [program.name for program in programs]
        return {name: Path("/built") / name for name in self.asked}


def script(name: str) -> bytes:
    return f"#!/bin/sh\necho {name}\n".encode()


@pytest.fixture
def server() -> Iterator[Releases]:
    with serving() as releases:
        for name in NAMES:
            releases.publish(VERSION, name, script(name))
        yield releases


@pytest.fixture
def rest() -> Rest:
    return Rest()


@pytest.fixture
def source(server: Releases, rest: Rest, tmp_path: Path) -> DownloadSource:
    return DownloadSource(rest, server.url, tmp_path / "cache", sleep=lambda seconds: None)


def test_programs_are_downloaded_once_and_found_again(source: DownloadSource, server: Releases) -> None:
    found = source.ensure(WANTED, VERSION)
    assert set(found) == set(NAMES)
    for name, path in found.items():
        assert subprocess.run([path], capture_output=True, check=True).stdout == f"{name}\n".encode()
    assert len(server.requests) == 8, "each with its checksum"
    again = source.ensure(WANTED, VERSION, lambda *step: pytest.fail(f"nothing was to be done: {step}"))
    assert again == found
    assert len(server.requests) == 8


@pytest.mark.parametrize(("machine", "architecture"), [("x86_64", "amd64"), ("aarch64", "arm64")])
def test_the_layout_is_that_of_the_releases(
    rest: Rest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, architecture: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    path = f"some/mirror/release/v1.37.2/bin/linux/{architecture}/kubelet"
    with serving() as releases:
        releases.files[path] = b"kubelet"
        releases.files[f"{path}.sha256"] = hashlib.sha256(b"kubelet").hexdigest().encode()
        source = DownloadSource(rest, f"{releases.url}/some/mirror/", tmp_path)
        assert source.ensure([PROGRAMS["kubelet"]], "v1.37.2")["kubelet"].read_bytes() == b"kubelet"
        assert [asked for asked, _ in releases.requests] == [f"{path}.sha256", path]


def test_every_program_of_kubernetes_is_published_the_others_come_from_elsewhere(
    source: DownloadSource, server: Releases, rest: Rest
) -> None:
    for name in ("kubeadm", "kubectl", "kube-proxy"):
        server.publish(VERSION, name, script(name))
    found = source.ensure([*WANTED, PROGRAMS["etcd"], *NODE_IMAGE, PROGRAMS["pod"]], VERSION)
    assert rest.asked == ["etcd", "crictl", "pod"]
    assert found["etcd"] == Path("/built/etcd")
    downloaded = {name for name, path in found.items() if path.is_relative_to(source.cache)}
    assert downloaded == {*NAMES, "kubeadm", "kubectl", "kube-proxy"}


def test_the_path_says_server_and_version(source: DownloadSource, rest: Rest, tmp_path: Path) -> None:
    path = source.ensure(WANTED, VERSION)["kubelet"]
    folder = path.relative_to(tmp_path / "cache" / "downloads").parent
    assert folder.parts[0].startswith("127.0.0.1-")
    assert folder.parts[1] == f"kubernetes-{VERSION}-release-linux-{locations.architecture()}"
    for url in ("https://mirror.example", f"{source.url}/another/tree"):
        assert DownloadSource(rest, url, source.cache).cached(WANTED, VERSION) == {}
    assert source.cached([*WANTED, PROGRAMS["etcd"]], VERSION).keys() == set(NAMES)


def test_only_what_is_missing_is_downloaded(source: DownloadSource, server: Releases) -> None:
    first = source.ensure(WANTED[:1], VERSION)
    asked = len(server.requests)
    assert source.cached(WANTED, VERSION) == first
    source.ensure(WANTED[:2], VERSION)
    assert len(server.requests) - asked == 2


def test_an_interrupted_download_is_continued(source: DownloadSource, server: Releases) -> None:
    """Stopped in the middle of the second program, as by Ctrl-C."""
    content = bytes(3 * MIB)
    path = server.publish(VERSION, "kube-controller-manager", content)

    def stop(phase: str, done: int, total: int, text: str) -> None:
        if text.startswith("kube-controller-manager") and done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        source.ensure(WANTED, VERSION, stop)
    assert set(source.cached(WANTED, VERSION)) == {"kube-apiserver"}
    found = source.ensure(WANTED, VERSION)
    assert found["kube-controller-manager"].read_bytes() == content
    assert server.asked(path) == ["", f"bytes={2 * MIB}-"]


def test_a_wrong_checksum_ends_it(source: DownloadSource, server: Releases) -> None:
    path = server.publish(VERSION, "kube-scheduler", b"published")
    server.files[path] = b"tampered with"
    with pytest.raises(HarnessError) as raised:
        source.ensure(WANTED, VERSION)
    assert f"{server.url}/{path}: wrong checksum" in str(raised.value)
    assert hashlib.sha256(b"published").hexdigest() in str(raised.value)
    assert hashlib.sha256(b"tampered with").hexdigest() in str(raised.value)
    assert set(source.cached(WANTED, VERSION)) == {"kube-apiserver", "kube-controller-manager"}


def test_a_program_without_a_checksum_is_not_taken(source: DownloadSource, server: Releases) -> None:
    path = server.publish(VERSION, "kubelet", script("kubelet"))
    del server.files[f"{path}.sha256"]
    with pytest.raises(NotPublished, match=r"/kubelet\.sha256: not published there"):
        source.ensure(WANTED, VERSION)
    assert server.asked(path) == []
    assert "kubelet" not in source.cached(WANTED, VERSION)


def test_a_version_that_is_not_published_is_named(source: DownloadSource, server: Releases) -> None:
    with pytest.raises(NotPublished) as raised:
        source.ensure(WANTED, "v1.99.0")
    assert isinstance(raised.value, UsageError)
    assert str(raised.value).startswith(f"{server.url}/release/v1.99.0/bin/linux/")
    assert not (source.cache / "downloads").exists()
    assert len(server.requests) == 1


@pytest.mark.parametrize("version", ["v9.9.9", "1.37", "../../etc"])
def test_an_impossible_version_is_refused_before_anything_else(
    source: DownloadSource, server: Releases, version: str
) -> None:
    with pytest.raises(UsageError, match="expected a version such as"):
        source.ensure(WANTED, version)
    assert server.requests == []
    assert not source.cache.exists()


def test_nothing_asked_nothing_done(source: DownloadSource) -> None:
    assert source.ensure([], VERSION) == {}
    assert not source.cache.exists()


def test_two_processes_at_once_share_one_download(server: Releases, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from clusters.components import *\n"
        "cache = Path(sys.argv[2])\n"
        f"wanted = [PROGRAMS[name] for name in {NAMES}]\n"
        f"found = DownloadSource(BuildSource(cache), sys.argv[1], cache).ensure(wanted, {VERSION!r}, print)\n"
        "print(*found.values())\n"
    )
    command = [sys.executable, "-u", "-c", code, server.url, str(tmp_path / "cache")]
    under_way, go_on = threading.Event(), threading.Event()

    def hold(path: str) -> None:
        under_way.set()
        go_on.wait(60)

    server.on_request = hold
    first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert under_way.wait(60)
    second = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert second.stdout is not None
    said = second.stdout.readline()
    go_on.set()
    outputs = [process.communicate(timeout=60)[0].splitlines() for process in (first, second)]
    assert said.startswith("wait 0 0 another run holds ")
    assert (first.returncode, second.returncode) == (0, 0)
    assert len(server.requests) == 8
    assert outputs[1] == outputs[0][-1:], "the second one only says where they are"


def test_a_second_run_waits_for_the_first(source: DownloadSource, server: Releases) -> None:
    source.cache.mkdir()
    other = filelock.FileLock(source.cache / "download.lock")
    phases = []

    def progress(phase: str, done: int, total: int, text: str) -> None:
        phases.append(phase)
        if phase == "wait":
            source._folder(VERSION).mkdir(parents=True)
            for name in NAMES:
                (source._folder(VERSION) / name).touch(0o755)
            other.release()

    with other:
        source.ensure(WANTED, VERSION, progress)
    assert phases == ["wait"]
    assert server.requests == [], "the other run has it all"


def test_a_probe_passes_where_the_version_is(source: DownloadSource, server: Releases) -> None:
    source.probe(VERSION)
    assert len(server.requests) == 1
    assert not source.cache.exists()


def test_a_probe_says_what_is_not_there(source: DownloadSource) -> None:
    with pytest.raises(NotPublished, match=r"v1\.99\.0/.*: not published there"):
        source.probe("v1.99.0")


def test_a_probe_is_one_attempt(source: DownloadSource, server: Releases) -> None:
    path = f"release/{VERSION}/bin/linux/{locations.architecture()}/kube-apiserver.sha256"
    server.failures[path] = [503]
    with pytest.raises(Unavailable, match="answered 503"):
        source.probe(VERSION)
    assert len(server.requests) == 1


def test_a_probe_of_a_server_that_never_answers_ends(source: DownloadSource, server: Releases) -> None:
    release = threading.Event()

    def hold(path: str) -> None:
        release.wait(30)

    server.on_request = hold
    started = time.monotonic()
    try:
        with pytest.raises(Unavailable):
            source.probe(VERSION)
    finally:
        release.set()
    assert time.monotonic() - started < 20


def test_a_probe_does_not_wait_for_a_name(
    rest: Rest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    def nobody(*_: object) -> None:
        release.wait(30)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    started = time.monotonic()
    try:
        with pytest.raises(Unavailable, match=r"^https://releases\.example: no answer within 2 s$"):
            DownloadSource(rest, "https://releases.example", tmp_path).probe(VERSION)
    finally:
        release.set()
    assert time.monotonic() - started < 20


def test_the_server_is_kubernetes_own_unless_the_environment_says(
    rest: Rest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DRA_HARNESS_DOWNLOAD_URL", raising=False)
    assert DownloadSource(rest, cache=tmp_path).url == "https://dl.k8s.io"
    monkeypatch.setenv("DRA_HARNESS_DOWNLOAD_URL", "https://mirror.example/")
    assert DownloadSource(rest, cache=tmp_path).url == "https://mirror.example"
    monkeypatch.setenv("DRA_HARNESS_DOWNLOAD_URL", "http://mirror.example")
    with pytest.raises(UsageError, match=r"^DRA_HARNESS_DOWNLOAD_URL 'http://mirror"):
        DownloadSource(rest, cache=tmp_path)
    with pytest.raises(UsageError, match=r"^--download-url 'nonsense'"):
        DownloadSource(rest, "nonsense", tmp_path)


def test_the_cache_is_the_harness_own_unless_told(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRA_HARNESS_CACHE", "/somewhere/else")
    source = DownloadSource(rest, "https://mirror.example")
    assert source.cache == Path("/somewhere/else")
