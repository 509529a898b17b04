"""Ports that somebody will listen on, tried before anything is made."""

from __future__ import annotations

import ipaddress
import socket


def listening(address: str, port: int) -> socket.socket:
    """A socket that listens there; accepting from it times out after a second.

    Raises:
        ValueError: no IP address.
        OSError: the port is taken, or the address is none of this machine's.
    """
    version = ipaddress.ip_address(address).version
    server = socket.socket(socket.AF_INET6 if version == 6 else socket.AF_INET)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, port))
        server.listen()
    except OSError:
        server.close()
        raise
    server.settimeout(1.0)
    return server
