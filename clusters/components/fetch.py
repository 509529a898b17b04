"""Fetches files over HTTPS: resumed where they were cut, and visible only once their checksum is right."""

from __future__ import annotations

import hashlib
import ipaddress
import math
import os
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tenacity
import urllib3
from urllib3.exceptions import (
    HTTPError,
    LocationParseError,
    MaxRetryError,
    NameResolutionError,
    NewConnectionError,
    ProtocolError,
    ProxySchemeUnknown,
    TimeoutError,
)
from urllib3.util import Url, make_headers, parse_url

from clusters.components import locations
from harness.errors import HarnessError, UsageError

_MIB = 1024**2

Told = Callable[[int, int], None]
"""Told how much of a file is there: MiB so far, MiB in all (0 if the server doesn't say)."""

_CHUNK = _MIB
_REDIRECTS = 5
_ATTEMPTS = 5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
_TIMEOUT = urllib3.Timeout(connect=10, read=30)
"""Seconds for a connection, and for the next bytes of an answer."""
_ABSENT = (404, 410)
_TOO_MANY_REQUESTS = 429
_RANGE_NOT_SATISFIABLE = 416
_PASSING = (ProtocolError, TimeoutError, NewConnectionError)
"""What may go well the next time; a name that can't be resolved and a wrong certificate are not among it."""


class NotPublished(UsageError):
    """The server answered that it has no such file."""


class Unavailable(HarnessError):
    """The server can't be reached, or doesn't serve what it should."""


class _Transient(Unavailable):
    """Worth another attempt."""


def check_url(url: str, key: str) -> str:
    """A base URL as it is used: without a slash at its end.

    Args:
        url: as the user gave it.
        key: the option or variable that it comes from, for the message.

    Raises:
        UsageError: it isn't https (http only on this machine's loopback), or has more than host and path.
    """
    try:
        parsed = parse_url(url)
    except LocationParseError:
        parsed = Url()
    if not parsed.host or not _is_safe(parsed):
        raise UsageError(f"{key} {url!r}: expected an https URL (http only for loopback addresses)")
    if parsed.auth or parsed.query or parsed.fragment:
        raise UsageError(f"{key}: expected a URL of host and path only, without credentials or a query")
    return url.rstrip("/")


def _is_safe(url: Url) -> bool:
    return url.scheme == "https" or (url.scheme == "http" and _is_loopback(url.host or ""))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class _SafePool(urllib3.PoolManager):
    """Asks only servers that are safe to ask; each redirect passes here too."""

    def urlopen(  # type: ignore[override]  # as PoolManager's own
        self, method: str, url: str, redirect: bool = True, **kw: Any
    ) -> urllib3.BaseHTTPResponse:
        if not _is_safe(parse_url(url)):
            raise HarnessError(f"{url}: a redirect to what is neither https nor loopback was refused")
        return super().urlopen(method, url, redirect, **kw)


class _SafeProxyPool(_SafePool, urllib3.ProxyManager):
    """The same through the user's proxy."""


def _pool(url: str) -> urllib3.PoolManager:
    """Connections for a URL, through the proxy that the environment names for it, as curl and Go do."""
    parsed = parse_url(url)
    host = parsed.host or ""
    proxy = urllib.request.getproxies().get(parsed.scheme or "")
    if proxy is None or _is_loopback(host) or urllib.request.proxy_bypass(host):
        return _SafePool()
    auth = parse_url(proxy).auth
    try:
        return _SafeProxyPool(proxy, proxy_headers=make_headers(proxy_basic_auth=auth) if auth else None)
    except ProxySchemeUnknown:
        raise UsageError(f"{parsed.scheme}_proxy: expected the http or https URL of a proxy") from None


class Fetcher:
    """Fetches from one server.

    Args:
        base_url: as `check_url` returns it.
        sleep: injected by tests.
    """

    def __init__(self, base_url: str, sleep: Callable[[float], None] = time.sleep) -> None:
        self.base_url = base_url
        self._pool = _pool(base_url)
        self._retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_Transient),
            stop=tenacity.stop_after_attempt(_ATTEMPTS),
            wait=tenacity.wait_exponential(multiplier=_FIRST_PAUSE, max=_LONGEST_PAUSE),
            sleep=sleep,
            reraise=True,
        )

    def checksum(self, path: str, seconds: float | None = None) -> str:
        """The SHA-256 in a checksum file: its first word, in hex.

        Args:
            path: below the base URL.
            seconds: only one attempt, that may take so long; None takes the usual ones.

        Raises:
            NotPublished: there is no such file.
            Unavailable: the server can't be reached, or the file has no checksum.
        """

        def attempt() -> str:
            timeout = _TIMEOUT if seconds is None else urllib3.Timeout(total=seconds)
            with self._answer(path, {}, timeout) as answer:
                text = answer.read(1024).decode(errors="replace")
            first = (text.split() or [""])[0].lower()
            if not re.fullmatch("[0-9a-f]{64}", first):
                raise Unavailable(f"{self.base_url}/{path}: expected a SHA-256, got {first[:80]!r}")
            return first

        return attempt() if seconds is not None else self._retrying(attempt)

    def save(self, path: str, target: Path, sha256: str, told: Told) -> None:
        """Fetch a program; what an earlier attempt left in `<target>.part` is not asked for again.

        Args:
            path: below the base URL.
            target: appears whole and executable, or not at all.
            sha256: what it must have.
            told: how it goes on.

        Raises:
            NotPublished: there is no such file.
            UsageError: there is not enough disk space.
            Unavailable: the server can't be reached, also after some attempts; the part stays.
            HarnessError: the file is not what was published; the part is removed.
        """
        part = target.with_name(f"{target.name}.part")
        found = _digest(part) if part.exists() else ""
        if found != sha256:
            self._retrying(self._continue, path, part, told)
            found = _digest(part)
        if found != sha256:
            part.unlink()
            raise HarnessError(
                f"{self.base_url}/{path}: wrong checksum: expected SHA-256 {sha256}, found {found}; "
                "what was downloaded is removed"
            )
        part.chmod(0o755)
        part.rename(target)

    def _continue(self, path: str, part: Path, told: Told) -> None:
        """One attempt: the rest of a file, from where the part ends."""
        start = part.stat().st_size if part.exists() else 0
        headers = {"Range": f"bytes={start}-"} if start else {}
        try:
            with self._answer(path, headers, _TIMEOUT) as answer:
                _append(answer, part, start, told)
        except _RangeRefused:
            part.unlink()
            raise _Transient(f"{self.base_url}/{path}: does not continue at byte {start}") from None

    @contextmanager
    def _answer(
        self, path: str, headers: dict[str, str], timeout: urllib3.Timeout
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        url = f"{self.base_url}/{path}"
        try:
            answer = self._pool.request(
                "GET",
                url,
                headers={"Accept-Encoding": "identity", **headers},
                timeout=timeout,
                retries=urllib3.Retry(total=None, connect=0, read=0, status=0, other=0, redirect=_REDIRECTS),
                preload_content=False,
            )
            try:
                _check_status(answer.status, url, part_asked=bool(headers))
                yield answer
            finally:
                answer.close()
        except HTTPError as error:
            raise _explain(url, error) from error


class _RangeRefused(Exception):
    """The server doesn't continue the file where it was cut."""


def _explain(url: str, error: HTTPError) -> Unavailable:
    reason = (error.reason if isinstance(error, MaxRetryError) else None) or error
    passing = isinstance(reason, _PASSING) and not isinstance(reason, NameResolutionError)
    text = str(getattr(reason, "original_error", None) or (reason.args[0] if reason.args else reason))
    return (_Transient if passing else Unavailable)(f"{url}: {text.partition('): ')[2] or text}")


def _check_status(status: int, url: str, *, part_asked: bool) -> None:
    if status in (200, 206):
        return
    if status in _ABSENT:
        raise NotPublished(f"{url}: not published there (the server answered {status})")
    if status == _RANGE_NOT_SATISFIABLE and part_asked:
        raise _RangeRefused
    passing = status >= 500 or status == _TOO_MANY_REQUESTS
    raise (_Transient if passing else Unavailable)(f"{url}: the server answered {status}")


def _append(answer: urllib3.BaseHTTPResponse, part: Path, start: int, told: Told) -> None:
    """Write an answer's body behind what the part has; anew, if the server sends all of the file."""
    if answer.status == 206 and not answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
        raise _RangeRefused
    done = start if answer.status == 206 else 0
    length = answer.length_remaining or 0
    locations.require_space(part.parent, length, f"downloading {part.stem}")
    total = math.ceil((done + length) / _MIB) if length else 0
    with part.open("ab") as file:
        file.truncate(done)
        told(done // _MIB, total)
        for chunk in answer.stream(_CHUNK, decode_content=False):
            file.write(chunk)
            before, done = done, done + len(chunk)
            if done // _MIB > before // _MIB:
                told(done // _MIB, total)
        file.flush()
        os.fsync(file.fileno())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
