"""A sealed connection between a run and one of its workers.

Each side first says a random number in clear; from then on every line is a Fernet token (AES-CBC with HMAC)
around a JSON object that names its sender, both numbers and its place in the order. So nobody without the key
can read or forge a line, send one back, or say one again in this or another connection.
"""

from __future__ import annotations

import contextlib
import enum
import json
import secrets
import select
import socket
from typing import Any

from cryptography.fernet import Fernet, InvalidToken

_LONGEST = 32 * 1024 * 1024
"""Bytes of a line: orders have whole manifests in them."""
_LONGEST_OF_STRANGERS = 16 * 1024
"""The same until the other side has shown that it has the key: anybody may connect."""
_CHUNK = 65536
_DEAD_AFTER = 10
"""Seconds without an answer to the kernel's probes after which a connection is taken for dead."""

Body = dict[str, Any]


class Side(enum.StrEnum):
    """Who says a line."""

    MASTER = "master"
    WORKER = "worker"


class Refused(Exception):
    """The other side doesn't want this connection; says why."""


class Lost(Exception):
    """The connection is gone, or what comes over it can't be what the other side said."""


class Channel:
    """One connection. `greet` first; then `send` and `receive`, each from one thread.

    Args:
        sock: connected; closed by `close`.
        key: of both sides.
        side: which one this is.
    """

    def __init__(self, sock: socket.socket, key: Fernet, side: Side) -> None:
        self._sock = sock
        self._key = key
        self._side = side
        self._session = ""
        self._sent = self._received = 0
        self._buffer = bytearray()
        sock.settimeout(_DEAD_AFTER)
        _watch_over(sock)

    def greet(self, timeout: float) -> None:
        """Exchange the random numbers.

        Raises:
            Lost: the other side says something else, or nothing in so many seconds.
        """
        mine = secrets.token_hex(16)
        self._write(json.dumps({"dra-harness": mine}).encode())
        line = self._line(timeout)
        try:
            theirs = str(json.loads(line or b"")["dra-harness"])
        except (ValueError, KeyError, TypeError) as error:
            raise Lost("the other side is no dra-harness") from error
        self._session = f"{mine}{theirs}" if self._side is Side.MASTER else f"{theirs}{mine}"

    def send(self, body: Body) -> None:
        """Say something.

        Raises:
            Lost: the connection is gone.
        """
        content = {"from": self._side, "session": self._session, "number": self._sent, "body": body}
        self._sent += 1
        self._write(self._key.encrypt(json.dumps(content).encode()))

    def receive(self, timeout: float) -> Body | None:
        """What the other side says next; None if it said nothing for so many seconds.

        Raises:
            Refused: it doesn't want this connection.
            Lost: the connection is gone, or the line is not sealed with our key for this place in the order.
        """
        line = self._line(timeout)
        if line is None:
            return None
        try:
            content = json.loads(self._key.decrypt(line))
        except InvalidToken as error:
            if line.startswith(b"{"):
                raise Refused(_reason(line)) from error
            raise Lost("its key is another one") from error
        other = Side.WORKER if self._side is Side.MASTER else Side.MASTER
        if (content["from"], content["session"], content["number"]) != (other, self._session, self._received):
            raise Lost("what it said was said elsewhere, or before")
        self._received += 1
        body: Body = content["body"]
        return body

    def refuse(self, reason: str) -> None:
        """Say in clear that the connection is not wanted: the other side's key may be another one."""
        with contextlib.suppress(Lost):
            self._write(json.dumps({"refused": reason}).encode())

    def close(self) -> None:
        """End the connection."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _write(self, line: bytes) -> None:
        try:
            self._sock.sendall(line + b"\n")
        except OSError as error:
            raise Lost(f"the connection is gone: {error}") from error

    def _line(self, timeout: float) -> bytes | None:
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > (_LONGEST if self._received else _LONGEST_OF_STRANGERS):
                raise Lost("what it says has no end")
            try:
                if not select.select([self._sock], [], [], timeout)[0]:
                    return None
                more = self._sock.recv(_CHUNK)
            except (OSError, ValueError) as error:  # ValueError: closed on this side
                raise Lost(f"the connection is gone: {error}") from error
            if not more:
                raise Lost("it closed the connection")
            self._buffer += more
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line


def _reason(line: bytes) -> str:
    try:
        return str(json.loads(line)["refused"])
    except (ValueError, KeyError, TypeError):
        return "without a reason"


def _watch_over(sock: socket.socket) -> None:
    """See within seconds that the other machine is gone, though it could not say so: tcp(7)."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_AFTER * 1000)
