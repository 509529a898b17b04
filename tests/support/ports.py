"""Ports for servers of a test."""

from __future__ import annotations

import socket


def two_free_ports() -> int:
    """A port that is free now, with the one after it."""
    while True:
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            port: int = one.getsockname()[1]
            try:
                two.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port
