"""Fetching from a server on loopback that really cuts connections, fails and redirects."""

from __future__ import annotations

import hashlib
import random
import shutil
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters.components.fetch import Fetcher, NotPublished, Unavailable, check_url
from harness.errors import HarnessError, UsageError
from tests.support.releases import Releases, serving

CONTENT = random.Random(1).randbytes(3 * 1024**2 + 17)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server() -> Iterator[Releases]:
    with serving() as releases:
        releases.files["program"] = CONTENT
        yield releases


@pytest.fixture
def pauses() -> list[float]:
    """The pauses between attempts, which no test waits for."""
    return []


@pytest.fixture
def fetcher(server: Releases, pauses: list[float]) -> Fetcher:
    return Fetcher(server.url, pauses.append)


def save(fetcher: Fetcher, target: Path, sha256: str = SHA256) -> list[tuple[int, int]]:
    told: list[tuple[int, int]] = []
    fetcher.save("program", target, sha256, lambda done, total: told.append((done, total)))
    return told


def test_a_file_appears_whole_and_executable(fetcher: Fetcher, server: Releases, tmp_path: Path) -> None:
    told = save(fetcher, tmp_path / "program")
    assert (tmp_path / "program").read_bytes() == CONTENT
    assert (tmp_path / "program").stat().st_mode & 0o777 == 0o755
    assert [each.name for each in tmp_path.iterdir()] == ["program"]
    assert told == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert server.requests == [("program", "")]


def test_a_cut_file_is_continued(
    fetcher: Fetcher, server: Releases, pauses: list[float], tmp_path: Path
) -> None:
    server.cuts["program"] = [1_000_000, 500_000]
    save(fetcher, tmp_path / "program")
    assert (tmp_path / "program").read_bytes() == CONTENT
    assert server.asked("program") == ["", "bytes=1000000-", "bytes=1500000-"]
    assert pauses == [0.5, 1.0]


def test_what_another_process_left_is_continued(fetcher: Fetcher, server: Releases, tmp_path: Path) -> None:
    (tmp_path / "program.part").write_bytes(CONTENT[:2_000_000])
    told = save(fetcher, tmp_path / "program")
    assert (tmp_path / "program").read_bytes() == CONTENT
    assert server.asked("program") == ["bytes=2000000-"]
    assert told == [(1, 4), (2, 4), (3, 4)]


def test_a_whole_part_is_not_asked_for_again(fetcher: Fetcher, server: Releases, tmp_path: Path) -> None:
    (tmp_path / "program.part").write_bytes(CONTENT)
    save(fetcher, tmp_path / "program")
    assert (tmp_path / "program").read_bytes() == CONTENT
    assert server.requests == []


def test_a_part_that_is_longer_than_the_file_is_fetched_anew(
    fetcher: Fetcher, server: Releases, tmp_path: Path
) -> None:
    (tmp_path / "program.part").write_bytes(CONTENT + b"more")
    save(fetcher, tmp_path / "program")
    assert (tmp_path / "program").read_bytes() == CONTENT
    assert server.asked("program") == [f"bytes={len(CONTENT) + 4}-", ""]


def test_a_server_without_ranges_starts_again(fetcher: Fetcher, server: Releases, tmp_path: Path) -> None:
    server.ranges = False
    server.cuts["program"] = [1_000_000]
    save(fetcher, tmp_path / "program")
    assert (tmp_path / "program").read_bytes() == CONTENT
    assert server.asked("program") == ["", "bytes=1000000-"]


def test_a_server_that_continues_elsewhere_is_asked_for_all(
    fetcher: Fetcher, server: Releases, tmp_path: Path
) -> None:
    server.shift = 100
    (tmp_path / "program.part").write_bytes(CONTENT[:1000])
    save(fetcher, tmp_path / "program")
    assert (tmp_path / "program").read_bytes() == CONTENT
    assert server.asked("program") == ["bytes=1000-", ""]


@pytest.mark.parametrize("nonsense", ["", "many", "-5"])
def test_a_server_that_says_no_size_will_do(
    fetcher: Fetcher, server: Releases, tmp_path: Path, nonsense: str
) -> None:
    server.sizes, server.nonsense = bool(nonsense), nonsense
    told = save(fetcher, tmp_path / "program")
    assert (tmp_path / "program").read_bytes() == CONTENT
    assert told == [(0, 0), (1, 0), (2, 0), (3, 0)]


def test_a_wrong_checksum_is_refused_and_nothing_stays(fetcher: Fetcher, tmp_path: Path) -> None:
    wrong = "0" * 64
    with pytest.raises(HarnessError) as raised:
        save(fetcher, tmp_path / "program", wrong)
    assert str(raised.value) == (
        f"{fetcher.base_url}/program: wrong checksum: expected SHA-256 {wrong}, found {SHA256}; "
        "what was downloaded is removed"
    )
    assert not isinstance(raised.value, NotPublished | Unavailable), "no reason to try elsewhere"
    assert list(tmp_path.iterdir()) == []


def test_a_part_with_other_bytes_is_refused_and_the_next_attempt_succeeds(
    fetcher: Fetcher, tmp_path: Path
) -> None:
    (tmp_path / "program.part").write_bytes(b"x" * 1000)
    with pytest.raises(HarnessError, match="wrong checksum"):
        save(fetcher, tmp_path / "program")
    save(fetcher, tmp_path / "program")
    assert (tmp_path / "program").read_bytes() == CONTENT


def test_what_is_not_there_is_asked_for_once(
    fetcher: Fetcher, server: Releases, pauses: list[float], tmp_path: Path
) -> None:
    del server.files["program"]
    with pytest.raises(NotPublished) as raised:
        save(fetcher, tmp_path / "program")
    assert str(raised.value) == f"{server.url}/program: not published there (the server answered 404)"
    assert (len(server.requests), pauses) == (1, [])
    assert list(tmp_path.iterdir()) == []


def test_a_failing_server_is_asked_again(
    fetcher: Fetcher, server: Releases, pauses: list[float], tmp_path: Path
) -> None:
    server.failures["program"] = [503, 429, 500]
    save(fetcher, tmp_path / "program")
    assert (tmp_path / "program").read_bytes() == CONTENT
    assert pauses == [0.5, 1.0, 2.0]


def test_attempts_end(fetcher: Fetcher, server: Releases, pauses: list[float], tmp_path: Path) -> None:
    server.failures["program"] = [502] * 99
    with pytest.raises(Unavailable, match="/program: the server answered 502"):
        save(fetcher, tmp_path / "program")
    assert (len(server.requests), pauses) == (5, [0.5, 1.0, 2.0, 4.0])


def test_a_file_that_is_always_cut_keeps_its_part(fetcher: Fetcher, server: Releases, tmp_path: Path) -> None:
    server.cuts["program"] = [1000] * 5
    with pytest.raises(Unavailable, match="/program: Connection broken"):
        save(fetcher, tmp_path / "program")
    assert (tmp_path / "program.part").read_bytes() == CONTENT[:5000]
    assert not (tmp_path / "program").exists()


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_refusal_is_not_asked_again(
    fetcher: Fetcher, server: Releases, pauses: list[float], tmp_path: Path, status: int
) -> None:
    server.failures["program"] = [status]
    with pytest.raises(Unavailable, match=f"the server answered {status}"):
        save(fetcher, tmp_path / "program")
    assert pauses == []


def test_a_server_that_is_not_there(pauses: list[float]) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{holder.getsockname()[1]}"
        with pytest.raises(Unavailable, match=f"^{url}/program.sha256: Failed to establish .* refused"):
            Fetcher(url, pauses.append).checksum("program.sha256")
    assert len(pauses) == 4


def test_a_name_that_is_nobodys_is_not_asked_again(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    with pytest.raises(Unavailable, match=r"x\.sha256: Failed to resolve 'releases\.example'"):
        Fetcher("https://releases.example", pauses.append).checksum("x.sha256")
    assert pauses == []


def test_too_little_disk_space_is_said(
    fetcher: Fetcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1024**2)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(UsageError, match=r"downloading program needs 0\.0 GiB of disk space"):
        save(fetcher, tmp_path / "program")


def test_redirects_are_followed_and_the_range_with_them(
    fetcher: Fetcher, server: Releases, tmp_path: Path
) -> None:
    server.redirects["program"] = "/moved"
    server.redirects["moved"] = server.url.replace("127.0.0.1", "localhost") + "/there"
    server.files["there"] = CONTENT
    (tmp_path / "program.part").write_bytes(CONTENT[:1000])
    save(fetcher, tmp_path / "program")
    assert (tmp_path / "program").read_bytes() == CONTENT
    assert server.asked("there") == ["bytes=1000-"]


@pytest.mark.parametrize("place", ["http://198.51.100.7/program", "ftp://127.0.0.1/program"])
def test_a_redirect_to_what_is_not_safe_is_refused(
    fetcher: Fetcher, server: Releases, pauses: list[float], tmp_path: Path, place: str
) -> None:
    server.redirects["program"] = place
    with pytest.raises(HarnessError) as raised:
        save(fetcher, tmp_path / "program")
    assert str(raised.value) == f"{place}: a redirect to what is neither https nor loopback was refused"
    assert not isinstance(raised.value, Unavailable)
    assert pauses == []


def test_redirects_in_a_circle_end(fetcher: Fetcher, server: Releases, tmp_path: Path) -> None:
    server.redirects["program"] = "/program"
    with pytest.raises(Unavailable, match="too many redirects"):
        save(fetcher, tmp_path / "program")
    assert len(server.requests) == 6


@pytest.mark.parametrize("text", [SHA256, f"{SHA256}\n", f"{SHA256}  program\n", SHA256.upper()])
def test_a_checksum_is_the_first_word(fetcher: Fetcher, server: Releases, text: str) -> None:
    server.files["program.sha256"] = text.encode()
    assert fetcher.checksum("program.sha256") == SHA256


@pytest.mark.parametrize("text", ["", "<!DOCTYPE html>", SHA256[:-1], SHA256 + "0", "g" * 64])
def test_what_is_no_checksum_is_refused(fetcher: Fetcher, server: Releases, text: str) -> None:
    server.files["program.sha256"] = text.encode()
    with pytest.raises(Unavailable, match=r"program\.sha256: expected a SHA-256, got '"):
        fetcher.checksum("program.sha256")


@pytest.mark.parametrize(
    ("url", "used"),
    [
        ("https://dl.k8s.io", "https://dl.k8s.io"),
        ("https://mirror.example:8443/kubernetes/", "https://mirror.example:8443/kubernetes"),
        ("http://127.0.0.1:80", "http://127.0.0.1:80"),
        ("http://127.8.9.10/x", "http://127.8.9.10/x"),
        ("http://[::1]:80", "http://[::1]:80"),
        ("http://localhost:80", "http://localhost:80"),
    ],
)
def test_a_url_as_it_is_used(url: str, used: str) -> None:
    assert check_url(url, "--download-url") == used


UNSAFE = ["ftp://dl.k8s.io", "http://dl.k8s.io", "http://192.0.2.1", "http://127.0.0.1.example"]
UNSAFE += ["http://[::2]", "http://0.0.0.0", "file:///releases"]


@pytest.mark.parametrize("url", ["", "dl.k8s.io", "/releases", "https://", "https://a b", *UNSAFE])
def test_a_url_that_is_not_safe_is_refused(url: str) -> None:
    with pytest.raises(UsageError) as raised:
        check_url(url, "--download-url")
    assert str(raised.value) == (
        f"--download-url {url!r}: expected an https URL (http only for loopback addresses)"
    )


@pytest.mark.parametrize("url", ["https://me:hunter2@mirror.example", "https://a/?x=1", "https://a/#x"])
def test_a_url_with_more_than_a_place_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(UsageError, match="without credentials or a query") as raised:
        check_url(url, "--download-url")
    assert url not in str(raised.value)


def test_a_proxy_is_used_but_not_for_loopback(server: Releases, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy is asked for a tunnel; this one can't make any, so its answer is what is seen."""
    proxy = server.url.replace("http://", "http://me:secret@")
    monkeypatch.setattr(urllib.request, "getproxies", lambda: {"https": proxy, "http": "http://192.0.2.1:1"})
    server.files["program.sha256"] = SHA256.encode()
    assert Fetcher(server.url).checksum("program.sha256") == SHA256
    with pytest.raises(Unavailable, match="Tunnel connection failed: 501") as raised:
        Fetcher("https://releases.example").checksum("x.sha256")
    assert "secret" not in str(raised.value)
    assert server.requests[-1] == ("releases.example:443", "Basic bWU6c2VjcmV0")


def test_a_proxy_that_can_not_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urllib.request, "getproxies", lambda: {"https": "socks5://me:secret@192.0.2.1"})
    with pytest.raises(UsageError) as raised:
        Fetcher("https://releases.example")
    assert str(raised.value) == "https_proxy: expected the http or https URL of a proxy"
