"""Addresses for our Docker daemon, and what it leaves on the machine: bridges, rules, chains of iptables."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network, ip_network
from pathlib import Path

from harness.errors import EnvironmentBlocked, UsageError

BLOCKS = tuple(map(IPv4Network, ("172.30.0.0/16", "172.28.0.0/16", "10.230.0.0/16", "10.200.0.0/16")))
"""Private ones, the first that is free is taken. None is among what kind gives to pods and services."""

_BEFORE = IPv4Network("172.30.0.0/15")
"""What daemons had that were started when nothing was written down."""
_SHORTEST = 8
"""Routes to more than that lead to the whole Internet, in one or two halves."""
_BRIDGES = re.compile(r"docker0|br-[0-9a-f]{12}")
_HOOKS: Mapping[str, Sequence[str]] = {
    "filter": ("FORWARD",),
    "nat": ("PREROUTING", "OUTPUT", "POSTROUTING"),
}
"""Table -> the chains to which Docker adds rules, besides those that it makes."""


@dataclass(frozen=True)
class Addresses:
    """The addresses that a daemon gives to its networks."""

    block: IPv4Network

    @property
    def pool(self) -> str:
        """What networks get theirs from, as dockerd's --default-address-pool has it."""
        return f"base={next(self.block.subnets())},size=24"

    @property
    def bridge(self) -> str:
        """The address of the default bridge, as dockerd's --bip has it: outside of the pool."""
        *_, second = self.block.subnets()
        return f"{second[1]}/24"


def choose(directory: Path) -> Addresses:
    """Take a block that no route of this machine leads to, and write it down in the daemon's folder.

    The one of last time comes first: the daemon remembers its networks.

    Raises:
        UsageError: all blocks are routed.
        EnvironmentBlocked: the routes can't be had.
    """
    routed = _routed()
    last = _recorded(directory)
    for block in (last, *BLOCKS) if last else BLOCKS:
        if not any(block.overlaps(route) for route in routed):
            if block != last:
                shutil.rmtree(directory / "data" / "network", ignore_errors=True)
            _record(directory).write_text(str(block))
            return Addresses(block)
    blocks = ", ".join(map(str, BLOCKS))
    raise UsageError(
        f"docker up: this machine has routes into each of {blocks}, so no addresses are left for containers; "
        "start a daemon of your own with addresses that are free (dockerd --bip and --default-address-pool)"
    )


def remove(directory: Path) -> None:
    """Take away what the daemon of a folder leaves: the iptables rules and chains that it made, its bridges.

    Raises:
        EnvironmentBlocked: the machine's addresses can't be had.
    """
    bridges = bridges_in(_ip("-o", "-4", "address"), _recorded(directory) or _BEFORE)
    for family in ("iptables", "ip6tables"):
        with contextlib.suppress(FileNotFoundError):
            _remove_rules(family, bridges)
    for name in bridges:  # last: the rules are known by them
        subprocess.run(["ip", "link", "delete", name], check=False)


def bridges_in(addresses: str, block: IPv4Network) -> dict[str, IPv4Network]:
    """The daemon's bridges with their networks: Docker's names, and addresses of its block.

    Args:
        addresses: what `ip -o -4 address` prints.
        block: what the daemon takes its addresses from.
    """
    found = {}
    for line in addresses.splitlines():
        words = line.split()
        network = IPv4Interface(_after(words, "inet")).network
        if _BRIDGES.fullmatch(words[1]) and network.subnet_of(block):
            found[words[1]] = network
    return found


def is_dockers(table: str, words: Sequence[str], bridges: Mapping[str, IPv4Network]) -> bool:
    """Whether a rule of `iptables -S` is in a chain of Docker's, leads into one, or is for our bridges."""
    chain, target = words[1], _after(words, "-j")
    if chain.startswith("DOCKER"):
        return True
    if chain not in _HOOKS[table]:
        return False
    if target.startswith("DOCKER"):
        return True
    if chain == "FORWARD":
        return bool({_after(words, "-i"), _after(words, "-o")} & bridges.keys())
    return chain == "POSTROUTING" and target == "MASQUERADE" and _is_masqueraded(words, bridges)


def _is_masqueraded(words: Sequence[str], bridges: Mapping[str, IPv4Network]) -> bool:
    """Whether it is of what leaves a bridge, or of a container that comes back to a port of its own."""
    source = _after(words, "-s")
    own_port = bool(source) and source == _after(words, "-d")
    return _after(words, "-o") in bridges or (
        own_port and any(_is_within(source, network) for network in bridges.values())
    )


def _is_within(address: str, network: IPv4Network) -> bool:
    inner = ip_network(address)
    return isinstance(inner, IPv4Network) and inner.subnet_of(network)


def _after(words: Sequence[str], option: str) -> str:
    return words[words.index(option) + 1] if option in words else ""


def _remove_rules(program: str, bridges: Mapping[str, IPv4Network]) -> None:
    for table in _HOOKS:
        listed = subprocess.run([program, "-t", table, "-S"], capture_output=True, text=True, check=False)
        lines = [line.split() for line in listed.stdout.splitlines()]
        chains = [words[1] for words in lines if words[0] == "-N" and words[1].startswith("DOCKER")]
        rules = [words[1:] for words in lines if words[0] == "-A" and is_dockers(table, words, bridges)]
        changes = [["-D", *rule] for rule in rules]
        changes += [[option, chain] for option in ("-F", "-X") for chain in chains]
        for change in changes:
            subprocess.run([program, "-t", table, *change], check=False)


def _routed() -> list[IPv4Network]:
    """Where routes of this machine lead, but for those to everything."""
    routes = json.loads(_ip("-j", "-4", "route", "show", "table", "all") or "[]")
    found = [IPv4Network(route["dst"]) for route in routes if route["dst"] != "default"]
    return [network for network in found if network.prefixlen >= _SHORTEST]


def _record(directory: Path) -> Path:
    return directory / "addresses"


def _recorded(directory: Path) -> IPv4Network | None:
    try:
        return IPv4Network(_record(directory).read_text())
    except (FileNotFoundError, ValueError):
        return None


def _ip(*arguments: str) -> str:
    try:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        raise EnvironmentBlocked(f"ip: {error}") from error
    if done.returncode:
        raise EnvironmentBlocked(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
