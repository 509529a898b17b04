"""Ports for servers of a test."""

from __future__ import annotations

import socket


def two_free_ports() -> int:
    """A port that is free now, with the one after it."""
    while True:
        with socket.socket() as one, socket.socket() as two:
            # Linux gives odd ports to servers; the second one is the one that stays free for longer.
            two.bind(("127.0.0.1", 0))
            port: int = two.getsockname()[1] - 1
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
