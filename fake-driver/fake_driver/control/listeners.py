"""The two ways to the control endpoint. Each connection brings one request."""

from __future__ import annotations

import ipaddress
import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from fake_driver.control import token

MAX_BODY = 4 * 1024 * 1024
"""Bytes; an inventory of a thousand devices is about a tenth of it."""

_MAX_CONNECTIONS = 64
_LINGER_SECONDS = 1
_BLOCK = 64 * 1024
_SECONDS = 5  # a client that says nothing must not hold up the end

Answer = Callable[[str, bytes], tuple[int, Any]]


class UnixServer(socketserver.ThreadingUnixStreamServer):
    """Listens on a socket file that only its owner can open."""

    daemon_threads = False  # an answer under way is finished
    request_queue_size = 64

    def __init__(self, path: str, answer: Answer) -> None:
        self.answer = answer
        super().__init__(path, _Handler)

    def server_bind(self) -> None:
        """Bind, and close the socket to others before anybody can connect."""
        super().server_bind()
        Path(str(self.server_address)).chmod(0o600)


class TcpServer(socketserver.ThreadingTCPServer):
    """Listens on one address, answers holders of the token, and takes a bounded number of connections."""

    daemon_threads = False
    request_queue_size = 64
    allow_reuse_address = True

    def __init__(
        self, where: tuple[str, int], answer: Answer, token_file: Path, is_ready: Callable[[], bool]
    ) -> None:
        if ipaddress.ip_address(where[0]).version == 6:
            self.address_family = socket.AF_INET6
        self.answer = answer
        self.token_file = token_file
        self.is_ready = is_ready
        self._room = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        super().__init__(where, _TokenHandler)

    @property
    def port(self) -> int:
        """The port, also where a free one was asked for."""
        return int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve in a thread, or hang up where too many are being served."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve, and make room again."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()


class _Handler(BaseHTTPRequestHandler):
    server: UnixServer | TcpServer
    timeout = _SECONDS
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Run one operation."""
        try:
            length = int(self.headers.get("Content-Length") or 0)
        except ValueError:
            length = -1
        if length < 0 or "Transfer-Encoding" in self.headers:
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "expected a Content-Length")
        elif length > MAX_BODY:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"expected at most {MAX_BODY} bytes")
        else:
            name, _, query = self.path.partition("?")
            request = parse_qs(query).get("request", [""])[0].encode()
            self._send(*self.server.answer(name.strip("/"), self.rfile.read(length) or request))

    def _send(self, status: int, value: Any, *headers: tuple[str, str]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")  # which also makes the server close it
        for header in headers:
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(data)

    def _refuse(self, status: HTTPStatus, error: str, *headers: tuple[str, str]) -> None:
        """Answer without regard to the body, and throw away what the client still sends of it.

        Closing at once would reset the connection, and the answer would be lost with it:
        https://www.rfc-editor.org/rfc/rfc9112#section-9.6
        """
        self._send(status, {"error": error}, *headers)
        end = time.monotonic() + _LINGER_SECONDS
        try:
            self.connection.shutdown(socket.SHUT_WR)
            while (left := end - time.monotonic()) > 0:
                self.connection.settimeout(left)
                if not self.connection.recv(_BLOCK):
                    break
        except OSError:  # nobody is there any more, or still sending after all that time
            pass

    def address_string(self) -> str:
        """The peer; unix sockets have none."""
        return "client"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the driver's own log has what matters."""


class _TokenHandler(_Handler):
    server: TcpServer

    def do_GET(self) -> None:
        """Say whether the driver serves, for the kubelet's probe."""
        if self.path != "/readyz":
            self._send(HTTPStatus.NOT_FOUND, {"error": "expected POST /<operation> or GET /readyz"})
        elif self.server.is_ready():
            self._send(HTTPStatus.OK, {"ready": True})
        else:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, {"ready": False})

    def do_POST(self) -> None:
        """Run one operation, for a holder of the token; what others send is not looked at."""
        if token.accepts(self.server.token_file, self.headers.get(token.HEADER)):
            super().do_POST()
        else:
            error = f"expected the control token in the header {token.HEADER}"
            self._refuse(HTTPStatus.UNAUTHORIZED, error, ("WWW-Authenticate", token.HEADER))
