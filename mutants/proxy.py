"""An API server that breaks one promise: a proxy in front of a real one, on loopback, for one mutant.

What checks ask and see goes through the mutant's changes; the cluster itself and its driver stay whole. The
address carries a secret, so nobody else on the machine gets the admin's rights by it.
"""

from __future__ import annotations

import json
import secrets
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import urllib3
import yaml

from clusters.interface import Cluster
from harness.kube import Object
from mutants.changes import Answer, Mutant, Request, parse_path

_API = "kube-apiserver"
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "accept-encoding"}


@contextmanager
def disguise(cluster: Cluster, mutant: Mutant, directory: Path) -> Iterator[Cluster]:
    """The cluster as checks are to see it: its API and its components' metrics through the mutant.

    Args:
        cluster: a local one, since the admin's certificate is in its folder.
        mutant: what is broken.
        directory: for the kubeconfig of the proxy.
    """
    server = _Server(cluster, mutant)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    kubeconfig = directory / "mutant.kubeconfig"
    _write_kubeconfig(kubeconfig, server.url(_API))
    try:
        endpoints = {component: server.url(component) for component in cluster.endpoints}
        yield replace(cluster, kubeconfig=kubeconfig, endpoints=endpoints)
    finally:
        server.shutdown()
        server.server_close()


def _write_kubeconfig(path: Path, server: str) -> None:
    named = {"name": "mutant"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [named | {"cluster": {"server": server}}],
        "users": [named | {"user": {}}],
        "contexts": [named | {"context": {"cluster": "mutant", "user": "mutant"}}],
        "current-context": "mutant",
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config), encoding="utf-8")


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, cluster: Cluster, mutant: Mutant) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.mutant = mutant
        self.secret = secrets.token_urlsafe(16)
        pki = cluster.directory / "pki"
        admin = yaml.safe_load(cluster.kubeconfig.read_text(encoding="utf-8"))
        self.upstream = {_API: admin["clusters"][0]["cluster"]["server"], **cluster.endpoints}
        self.tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        self.tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        self.pool = urllib3.PoolManager(ssl_context=self.tls, retries=False, maxsize=64)

    def url(self, component: str) -> str:
        """Where the proxy of a component is."""
        return f"http://127.0.0.1:{self.server_address[1]}/{self.secret}/{component}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in mid-answer is nothing to report."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _serve(self) -> None:
        chunked = self.headers.get("Transfer-Encoding") == "chunked"
        body = b"" if chunked else self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.close_connection |= chunked  # what follows an early answer may be the rest of the body
        _, secret, component, rest = (self.path.split("/", 3) + [""] * 3)[:4]
        if not secrets.compare_digest(secret, self.server.secret) or component not in self.server.upstream:
            self._reply(404, "text/plain", b"")
            return
        path, _, query = rest.partition("?")
        request = parse_path(self.command, component, "/" + path, dict(urllib.parse.parse_qsl(query)))
        request.body = _json(body)
        changed = self.server.mutant.ask(request)
        if isinstance(changed, Answer):
            self._reply(changed.status, "application/json", json.dumps(changed.body).encode())
            return
        if request.body is not None:
            body = json.dumps(request.body).encode()
        target = f"{self.server.upstream[component]}/{rest}"
        if self.headers.get("Upgrade"):
            self._tunnel(target)
        else:
            self._forward(request, target, self._chunks() if chunked else body)

    def _chunks(self) -> Iterator[bytes]:
        """A body as it comes: one that never ends holds its place at the API server."""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _headers(self) -> dict[str, str]:
        return {key: value for key, value in self.headers.items() if key.lower() not in _HOP_BY_HOP}

    def _forward(self, request: Request, target: str, body: bytes | Iterator[bytes]) -> None:
        answer = self.server.pool.request(
            self.command,
            target,
            body=body or None,
            headers=self._headers(),
            timeout=urllib3.Timeout(connect=10, read=600),
            preload_content=False,
        )
        try:
            kind = answer.headers.get("Content-Type", "")
            if request.verb == "watch" and answer.status < 400:
                self._stream(request, kind, answer)
                return
            data = answer.read()
            if (parsed := _json(data)) is not None:
                seen = self.server.mutant.answer(request, Answer(answer.status, parsed))
                self._reply(seen.status, kind, json.dumps(seen.body).encode())
            else:
                text = self.server.mutant.answer_text(request, data.decode(errors="surrogateescape"))
                self._reply(answer.status, kind, text.encode(errors="surrogateescape"))
        finally:
            answer.release_conn()

    def _stream(self, request: Request, kind: str, answer: Any) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        buffer = b""
        for chunk in answer.stream(65536):
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                event = self.server.mutant.event(request, json.loads(line)) if line.strip() else None
                if event is not None:
                    data = json.dumps(event).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                    self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _reply(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind or "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _tunnel(self, target: str) -> None:
        """Pass a WebSocket (exec) through as it is."""
        url = urllib.parse.urlsplit(target)
        self.close_connection = True
        with (
            socket.create_connection((url.hostname or "", url.port or 443), timeout=10) as plain,
            self.server.tls.wrap_socket(plain, server_hostname=url.hostname) as upstream,
        ):
            upstream.settimeout(None)
            head = [f"{self.command} {url.path}?{url.query} HTTP/1.1", f"Host: {url.netloc}"]
            head += [f"{key}: {value}" for key, value in self.headers.items() if key.lower() != "host"]
            upstream.sendall(("\r\n".join(head) + "\r\n\r\n").encode())
            back = threading.Thread(target=_copy, args=(upstream, self.connection), daemon=True)
            back.start()
            _copy(self.connection, upstream)
            back.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # one end is gone, which ends the tunnel


def _json(data: bytes) -> Object | Any | None:
    try:
        value: Mapping[str, Any] | list[Any] = json.loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict | list) else None
