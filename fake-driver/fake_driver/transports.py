"""The ways from a client to a control endpoint."""

from __future__ import annotations

import http.client
import socket
from pathlib import Path
from typing import Protocol

from fake_driver.control.token import HEADER
from fake_driver.files import ShortPath


class Transport(Protocol):
    """Carries one request at a time, from any thread."""

    @property
    def where(self) -> str:
        """The endpoint, for people."""
        ...

    def post(self, operation: str, body: bytes) -> bytes:
        """Send a request and return the answer's body, whatever its status.

        Raises:
            OSError, http.client.HTTPException: there was no answer.
        """
        ...


class UnixTransport:
    """A unix socket; every request is a connection of its own."""

    def __init__(self, path: Path, timeout: float) -> None:
        self.where = str(path)
        self._path = path
        self._timeout = timeout

    def post(self, operation: str, body: bytes) -> bytes:
        """See `Transport`."""
        return _exchange(_UnixConnection(self._path, self._timeout), operation, body, {})


class TcpTransport:
    """A port that wants a token; every request is a connection of its own."""

    def __init__(self, host: str, port: int, token: str, timeout: float = 60) -> None:
        self.where = f"{host}:{port}"
        self._address = (host, port)
        self._token = token
        self._timeout = timeout

    def post(self, operation: str, body: bytes) -> bytes:
        """See `Transport`."""
        connection = http.client.HTTPConnection(*self._address, timeout=self._timeout)
        return _exchange(connection, operation, body, {HEADER: self._token})


def _exchange(
    connection: http.client.HTTPConnection, operation: str, body: bytes, headers: dict[str, str]
) -> bytes:
    try:
        connection.request("POST", f"/{operation}", body, {"Content-Type": "application/json", **headers})
        return connection.getresponse().read()
    finally:
        connection.close()


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket file, however deep it lies."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        with ShortPath(self._path) as short:
            self.sock.connect(short.path)
