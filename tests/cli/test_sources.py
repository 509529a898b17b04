"""`--source` and `--download-url`: what they become, and what is refused."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cli import main
from cli.console import BringUpProgress
from cli.sources import Source, programs_from, released_from
from clusters.components import (
    CONTROL_PLANE,
    NODE,
    AutoSource,
    BuildSource,
    DirectorySource,
    DownloadSource,
)
from clusters.components.programs import KUBERNETES_MODULE
from harness.errors import UsageError
from tests.support.releases import Releases, serving

UNSAFE = "expected an https URL (http only for loopback addresses)"
MIRROR = "https://mirror.example"
KUBERNETES = [each for each in (*CONTROL_PLANE, *NODE) if each.module == KUBERNETES_MODULE]
CONFLICT = "--components says where Kubernetes' programs are: no --source or --download-url"


@dataclass(frozen=True)
class Ended:
    code: object
    out: str
    err: str


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where everything that the command makes would be; isn't there."""
    for name in ("STATE", "CACHE", "RESULTS", "MACHINE"):
        monkeypatch.setenv(f"DRA_HARNESS_{name}", str(tmp_path / "places" / name.lower()))
    for name in ("SOURCE", "DOWNLOAD_URL"):
        monkeypatch.delenv(f"DRA_HARNESS_{name}", raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    return tmp_path / "places"


@pytest.fixture
def run(
    places: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    def execute(*arguments: str | Path) -> Ended:
        monkeypatch.setattr(sys, "argv", ["dra-harness", *map(str, arguments)])
        monkeypatch.setattr("signal.signal", lambda *_: None)
        with pytest.raises(SystemExit) as ended:
            main.main()
        return Ended(ended.value.code, *capsys.readouterr())

    return execute


@pytest.fixture
def server() -> Iterator[Releases]:
    with serving() as releases:
        yield releases


def test_auto_is_the_default(places: Path) -> None:
    made = programs_from(None, None, None)
    assert isinstance(made, AutoSource)
    assert made.download.url == "https://dl.k8s.io"
    assert made.build.cache == made.download.cache == places / "cache"


def test_each_source_by_its_name(places: Path) -> None:
    assert isinstance(released_from(Source.BUILD, None), BuildSource)
    download = released_from(Source.DOWNLOAD, MIRROR)
    assert isinstance(download, DownloadSource)
    assert download.url == MIRROR
    auto = released_from(Source.AUTO, MIRROR)
    assert isinstance(auto, AutoSource)
    assert auto.download.url == MIRROR


def test_the_environment_says_what_the_options_do_not(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRA_HARNESS_SOURCE", "build")
    monkeypatch.setenv("DRA_HARNESS_DOWNLOAD_URL", MIRROR)
    assert isinstance(released_from(None, None), BuildSource)
    download = released_from(Source.DOWNLOAD, None)
    assert isinstance(download, DownloadSource)
    assert download.url == MIRROR


def test_a_folder_has_kubernetes_and_the_rest_is_built(places: Path, tmp_path: Path) -> None:
    made = programs_from(tmp_path, None, None)
    assert isinstance(made, DirectorySource)
    assert isinstance(made._rest, BuildSource)


@pytest.mark.parametrize(("source", "url"), [(Source.AUTO, None), (None, MIRROR)])
def test_a_folder_and_a_source_contradict_each_other(
    places: Path, tmp_path: Path, source: Source | None, url: str | None
) -> None:
    with pytest.raises(UsageError) as raised:
        programs_from(tmp_path, source, url)
    assert str(raised.value) == CONFLICT


@pytest.mark.parametrize("command", ["up", "run ER-01", "load ext-churn", "node-image", "doctor"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "--source build --download-url https://x",
            "--download-url: nothing is downloaded with --source build",
        ),
        ("--download-url http://x.example", f"--download-url 'http://x.example': {UNSAFE}"),
    ],
)
def test_every_command_refuses_in_one_line(
    run: Callable[..., Ended], places: Path, command: str, options: str, message: str
) -> None:
    assert run(*command.split(), *options.split()) == Ended(2, "", f"error: {message}\n")
    assert not places.exists()


@pytest.mark.parametrize("command", ["up", "run ER-01", "load ext-churn"])
def test_a_folder_excludes_a_source_on_every_command(
    run: Callable[..., Ended], places: Path, tmp_path: Path, command: str
) -> None:
    done = run(*command.split(), "--components", tmp_path, "--source", "build")
    assert done == Ended(2, "", f"error: {CONFLICT}\n")


def test_a_wrong_environment_is_named(
    run: Callable[..., Ended], places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRA_HARNESS_SOURCE", "dowmload")
    message = "error: DRA_HARNESS_SOURCE 'dowmload': expected one of auto, build, download\n"
    assert run("up") == Ended(2, "", message)
    monkeypatch.setenv("DRA_HARNESS_SOURCE", "download")
    monkeypatch.setenv("DRA_HARNESS_DOWNLOAD_URL", "dl.k8s.io")
    message = f"DRA_HARNESS_DOWNLOAD_URL 'dl.k8s.io': {UNSAFE}"
    assert run("up") == Ended(2, "", f"error: {message}\n")
    assert run("list").code == 0, "what brings nothing up does not mind"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gets past the first check of a local cluster")
def test_a_version_that_is_not_published_starts_nothing(
    run: Callable[..., Ended], places: Path, server: Releases
) -> None:
    options = ("--kubernetes", "v1.37.2", "--source", "download", "--download-url", server.url)
    done = run("up", *options)
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith(f"error: {server.url}/release/v1.37.2/bin/linux/")
    assert done.err.endswith("/kube-apiserver.sha256: not published there (the server answered 404)\n")
    assert not (places / "state").exists()


def findings(run: Callable[..., Ended], *options: str) -> dict[str, dict[str, Any]]:
    done = run("doctor", "-o", "json", *options)
    return {row["subject"]: row for row in json.loads(done.out)}


def downloaded(cache: Path, url: str) -> None:
    source = DownloadSource(BuildSource(cache), url, cache)
    for program in KUBERNETES:
        target = source._folder("v1.37.2") / program.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch(0o755)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("auto", f"not in the cache; downloaded when needed if {MIRROR} answers, else built"),
        ("download", f"not in the cache; downloaded from {MIRROR} when needed"),
    ],
)
def test_doctor_says_where_programs_would_come_from_and_asks_nobody(
    run: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: pytest.fail("nobody is to be asked"))
    rows = findings(run, "--source", source, "--download-url", MIRROR)
    assert rows["Kubernetes v1.37.2"] == {"subject": "Kubernetes v1.37.2", "state": "ok", "message": message}
    assert "release server" not in rows


def test_doctor_knows_the_build(run: Callable[..., Ended]) -> None:
    rows = findings(run, "--source", "build", "--online")
    assert rows["Kubernetes v1.37.2"]["message"] == "not in the cache; built when needed"
    assert "release server" not in rows


def test_doctor_knows_what_is_in_the_cache(run: Callable[..., Ended], places: Path) -> None:
    downloaded(places / "cache", MIRROR)
    rows = findings(run, "--download-url", MIRROR)
    assert rows["Kubernetes v1.37.2"]["message"] == "downloaded, in the cache"
    rows = findings(run, "--source", "build")
    assert rows["Kubernetes v1.37.2"]["message"] == "not in the cache; built when needed"


def test_doctor_asks_the_server_when_told(run: Callable[..., Ended], server: Releases) -> None:
    server.publish("v1.37.2", "kube-apiserver", b"")
    row = findings(run, "--download-url", server.url, "--online")["release server"]
    assert (row["state"], row["message"]) == ("ok", f"{server.url} has Kubernetes v1.37.2")


@pytest.mark.parametrize(
    ("source", "in_cache", "state"),
    [("auto", False, "ok"), ("download", False, "missing"), ("download", True, "ok")],
)
def test_a_server_that_does_not_answer_is_only_missed_where_it_is_needed(
    run: Callable[..., Ended], places: Path, source: str, in_cache: bool, state: str
) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{holder.getsockname()[1]}"
        if in_cache:
            downloaded(places / "cache", url)
        row = findings(run, "--source", source, "--download-url", url, "--online")["release server"]
    assert row["state"] == state
    assert row["message"].endswith("Connection refused")


def test_a_change_of_source_stays_on_a_terminal() -> None:
    console = Console(force_terminal=True, width=80, color_system=None, record=True)
    progress = BringUpProgress(console)
    progress.components("source", 0, 0, "no download, so Kubernetes is built: because")
    progress.components("compile", 0, 9, "something else")
    progress.close()
    assert "source: no download, so Kubernetes is built: because" in console.export_text()
