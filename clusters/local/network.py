"""Addresses, bridges and ports of a local cluster.

A node's address is only a name for it: a kubelet refuses one in 127.0.0.0/8, and one that no interface
has, so it sits on the loopback interface and nothing serves there. Addresses carry a label and bridges a
name with the cluster's id; both come from 198.18.0.0/15, which RFC 2544 sets aside for tests.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Collection
from typing import Any

from harness.errors import EnvironmentBlocked, UsageError

SLOTS = 16
MAX_NODES = 15
_MISSING = ("Cannot find device", "Address not found", "Cannot assign requested address")
"""What `ip` says of a link that is gone, and, with newer kernels and older ones, of an address."""


def node_address(slot: int, index: int) -> str:
    """The address of a cluster's node, counted from 1; index 0 is the cluster's own."""
    return f"198.18.{slot}.{index + 1}"


def pod_subnet(slot: int, index: int) -> str:
    """The pod network of a cluster's node, counted from 1."""
    return f"198.19.{slot * SLOTS + index}.0/24"


def bridge_name(cluster_id: str, index: int) -> str:
    """The bridge that a node's pods hang on."""
    return f"dh{cluster_id}b{index}"


def free_slot(taken: Collection[int]) -> int:
    """A block of addresses that neither our clusters nor this machine use.

    Raises:
        UsageError: all blocks are taken.
    """
    used = {address for link in _links("addr") for address in _addresses(link)}
    for slot in range(SLOTS):
        ours = f"198.18.{slot}."
        if slot not in taken and not any(address.startswith(ours) for address in used):
            return slot
    raise UsageError(f"all {SLOTS} address blocks for local clusters are taken; take one down first")


def add_address(cluster_id: str, address: str) -> None:
    """Put a node's address on the loopback interface."""
    label = f"lo:dh{cluster_id}"
    _ip("addr", "add", f"{address}/32", "dev", "lo", "scope", "host", "label", label)


def remove_all(cluster_id: str) -> None:
    """Remove the cluster's addresses and bridges, and any pod interface left on them."""
    for link in _links("addr"):
        for info in link.get("addr_info", ()):
            if info.get("label") == f"lo:dh{cluster_id}":
                _ip("addr", "del", f"{info['local']}/32", "dev", "lo", missing_ok=True)
    bridges = {link["ifname"] for link in _links("link") if link["ifname"].startswith(f"dh{cluster_id}b")}
    for link in _links("link"):
        if link.get("master") in bridges:
            _ip("link", "del", link["ifname"], missing_ok=True)
    for bridge in bridges:
        _ip("link", "del", bridge, missing_ok=True)


def free_ports(count: int) -> list[int]:
    """Free ports on loopback. They are held together while chosen, so they differ."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def require_port(port: int) -> int:
    """Check that a port that the user chose can be had.

    Raises:
        UsageError: it is out of range or taken.
    """
    if not 1 <= port <= 65535:
        raise UsageError(f"--port {port}: expected 1 to 65535")
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UsageError(f"--port {port}: taken by another program on 127.0.0.1") from error
    return port


def _links(what: str) -> list[dict[str, Any]]:
    output = subprocess.run(["ip", "-j", what, "show"], check=True, capture_output=True, text=True).stdout
    links: list[dict[str, Any]] = json.loads(output or "[]")
    return links


def _addresses(link: dict[str, Any]) -> list[str]:
    return [info["local"] for info in link.get("addr_info", ()) if "local" in info]


def _ip(*args: str, missing_ok: bool = False) -> None:
    done = subprocess.run(["ip", *args], capture_output=True, text=True, check=False)
    if done.returncode and not (missing_ok and any(words in done.stderr for words in _MISSING)):
        raise EnvironmentBlocked(f"ip {' '.join(args)}: {done.stderr.strip()}")
