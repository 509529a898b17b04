"""A TLS server in place of the control plane, for whoever has the admin's certificate."""

from __future__ import annotations

import json
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from clusters.interface import Cluster, Profile
from clusters.local.pki import CertificateAuthority, write_kubeconfig


@dataclass(frozen=True)
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    user: str
    """The common name of the client's certificate."""


@dataclass
class Said:
    """What to answer to a path."""

    status: int = 200
    body: Any = None
    """JSON, or bytes that are sent as they are."""
    kind: str = "application/json"
    stream: list[bytes] = field(default_factory=list)
    """Pieces of a body of unknown length, each sent when `go_on` is released once."""


class Upstream:
    """The server, and a cluster whose addresses lead to it."""

    def __init__(self, directory: Path) -> None:
        authority = CertificateAuthority.create(directory / "pki")
        server = authority.issue("server", "server", hosts=["127.0.0.1"])
        admin = authority.issue("admin", "admin", organization="system:masters")
        self.answers: dict[str, Said] = {}
        self.seen: list[Seen] = []
        self.go_on = threading.Semaphore(0)
        self.pieces: list[bytes] = []
        """Pieces of chunked bodies, as they arrive."""
        self.arrived = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.upstream = self
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.certificate))
        tls.verify_mode = ssl.CERT_REQUIRED
        tls.load_cert_chain(*server)
        self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        url = f"https://127.0.0.1:{self._server.server_address[1]}"
        kubeconfig = directory / "admin.kubeconfig"
        write_kubeconfig(
            kubeconfig, server=url, ca=authority.certificate, certificate=admin[0], key=admin[1], name="c"
        )
        self.cluster = Cluster(
            name="c",
            provider="local",
            kubernetes="v1.37.2",
            profile=Profile.GA,
            kubeconfig=kubeconfig,
            nodes=(),
            directory=directory,
            gates={},
            id="c",
            driver_kubeconfig=kubeconfig,
            endpoints={"kube-scheduler": f"{url}/scheduler"},
        )

    def stop(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def server_of(kubeconfig: Path) -> str:
    """The address in a kubeconfig."""
    address: str = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    return address


class _Server(ThreadingHTTPServer):
    upstream: Upstream
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _serve(self) -> None:
        upstream = self.server.upstream
        chunked = self.headers.get("Transfer-Encoding") == "chunked"
        body = (
            self._read_pieces() if chunked else self.rfile.read(int(self.headers.get("Content-Length") or 0))
        )
        subject: Any = self.connection.getpeercert()["subject"]
        user = next(value for ((key, value),) in subject if key == "commonName")
        parsed = json.loads(body) if body else None
        upstream.seen.append(Seen(self.command, self.path, dict(self.headers.items()), parsed, user))
        if self.headers.get("Upgrade"):
            self._echo()
            return
        said = upstream.answers[self.path.partition("?")[0]]
        self.send_response(said.status)
        self.send_header("Content-Type", said.kind)
        if said.stream:
            self._stream(said.stream)
            return
        data = said.body if isinstance(said.body, bytes) else json.dumps(said.body).encode()
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _stream(self, pieces: list[bytes]) -> None:
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self.server.upstream.go_on.acquire(timeout=10)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def _read_pieces(self) -> bytes:
        upstream = self.server.upstream
        while size := int(self.rfile.readline(), 16):
            upstream.pieces.append(self.rfile.read(size))
            self.rfile.readline()
            upstream.arrived.set()
        self.rfile.readline()
        return b"".join(upstream.pieces)

    def _echo(self) -> None:
        """Take over the connection, as for a WebSocket: what comes goes back in capitals."""
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\n\r\n")
        while data := self.connection.recv(100):
            self.wfile.write(data.upper())

    def log_message(self, format: str, *args: Any) -> None:
        pass
