"""A server with the layout of Kubernetes' releases, on loopback, that can be made to misbehave."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from clusters.components import locations


@dataclass
class Releases:
    """What the server has, how it behaves, and what it was asked."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    """By path, without a slash at the front."""
    ranges: bool = True
    """Whether it continues files."""
    shift: int = 0
    """How many bytes before the wanted one it continues."""
    sizes: bool = True
    """Whether it says how large a file is."""
    nonsense: str = ""
    """What it says instead."""
    cuts: dict[str, list[int]] = field(default_factory=dict)
    """After how many bytes of the next answers for a path the connection is cut."""
    failures: dict[str, list[int]] = field(default_factory=dict)
    """The statuses of the next answers for a path."""
    redirects: dict[str, str] = field(default_factory=dict)
    """Where else a path is."""
    on_request: Callable[[str], None] = lambda path: None
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Path and Range of each request, in order; as a proxy, what it was to reach, and by whom."""

    def publish(self, version: str, name: str, program: bytes) -> str:
        """Have a program with its checksum; returns its path."""
        path = f"release/{version}/bin/linux/{locations.architecture()}/{name}"
        self.files[path] = program
        self.files[f"{path}.sha256"] = hashlib.sha256(program).hexdigest().encode()
        return path

    def asked(self, path: str) -> list[str]:
        """The Range of each request for a path."""
        return [wanted for asked, wanted in self.requests if asked == path]


class _Handler(BaseHTTPRequestHandler):
    releases: Releases

    def do_GET(self) -> None:
        releases, path = self.releases, self.path.lstrip("/")
        wanted = self.headers.get("Range", "")
        releases.requests.append((path, wanted))
        releases.on_request(path)
        if releases.failures.get(path):
            self._end(releases.failures[path].pop(0))
        elif path in releases.redirects:
            self._end(302, Location=releases.redirects[path])
        elif path not in releases.files:
            self._end(404)
        else:
            self._send(path, wanted if releases.ranges else "")

    def do_CONNECT(self) -> None:
        self.releases.requests.append((self.path, self.headers.get("Proxy-Authorization", "")))
        self._end(501)

    def _send(self, path: str, wanted: str) -> None:
        content = self.releases.files[path]
        found = re.fullmatch(r"bytes=(\d+)-", wanted)
        start = int(found[1]) - self.releases.shift if found else 0
        if start and start >= len(content):
            self._end(416)
            return
        self.send_response(206 if found else 200)
        if found:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if self.releases.sizes:
            self.send_header("Content-Length", self.releases.nonsense or str(len(content) - start))
        self.end_headers()
        cut = self.releases.cuts.get(path)
        self.wfile.write(content[start : start + cut.pop(0) if cut else None])

    def _end(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is none of the server's business."""


@contextmanager
def serving() -> Iterator[Releases]:
    """A server that runs until the end of the block; the port is a free one."""
    releases = Releases()
    handler = type("Handler", (_Handler,), {"releases": releases})
    with _Server(("127.0.0.1", 0), handler) as server:
        releases.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield releases
        finally:
            server.shutdown()
            thread.join()


def publish_programs(releases: Releases, version: str, programs: dict[str, Path]) -> None:
    """Have real programs, by name."""
    for name, path in programs.items():
        releases.publish(version, name, path.read_bytes())
