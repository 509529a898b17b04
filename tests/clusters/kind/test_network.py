"""Addresses of our Docker daemon, and what of the machine's network is taken for its."""

from __future__ import annotations

import json
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from clusters.kind import network
from harness.errors import UsageError

BLOCK = IPv4Network("172.30.0.0/16")
BRIDGES = {"docker0": IPv4Network("172.30.128.0/24"), "br-0123456789ab": IPv4Network("172.30.0.0/24")}
LISTED = """\
1: lo    inet 127.0.0.1/8 scope host lo
3: docker0    inet 172.30.128.1/24 brd 172.30.128.255 scope global docker0
4: br-0123456789ab    inet 172.30.0.1/24 scope global br-0123456789ab
5: br-ba9876543210    inet 172.18.0.1/16 scope global br-ba9876543210
6: br-lan    inet 172.30.9.1/24 scope global br-lan
7: eth0    inet 172.30.8.2/24 scope global eth0
8: tun0    inet 10.8.0.6 peer 10.8.0.5/32 scope global tun0
"""


def test_only_bridges_with_names_of_dockers_and_addresses_of_ours_are_ours() -> None:
    assert network.bridges_in(LISTED, BLOCK) == BRIDGES


@pytest.mark.parametrize(
    ("table", "rule", "ours"),
    [
        ("filter", "-A DOCKER -d 172.30.0.2/32 ! -i docker0 -o docker0 -p tcp -j ACCEPT", True),
        ("filter", "-A FORWARD -j DOCKER-USER", True),
        ("filter", "-A FORWARD -o br-0123456789ab -m conntrack --ctstate ESTABLISHED -j ACCEPT", True),
        ("filter", "-A FORWARD -i br-0123456789ab ! -o br-0123456789ab -j ACCEPT", True),
        ("nat", "-A DOCKER -i docker0 -j RETURN", True),
        ("nat", "-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER", True),
        ("nat", "-A POSTROUTING -s 172.30.0.0/24 ! -o br-0123456789ab -j MASQUERADE", True),
        ("nat", "-A POSTROUTING -s fc00:f853:ccd:e793::/64 ! -o br-0123456789ab -j MASQUERADE", True),
        ("nat", "-A POSTROUTING -s 172.30.0.2/32 -d 172.30.0.2/32 -p tcp --dport 6443 -j MASQUERADE", True),
        ("nat", "-A POSTROUTING -s fc00::2/128 -d fc00::2/128 -p tcp -j MASQUERADE", False),
        ("nat", "-A POSTROUTING -s 172.30.0.0/24 -d 10.0.0.0/8 -o eth0 -j MASQUERADE", False),
        ("nat", "-A POSTROUTING -s 172.30.7.2/32 -d 172.30.7.2/32 -j MASQUERADE", False),
        ("nat", "-A POSTROUTING -s 10.0.0.0/8 -j MASQUERADE", False),
        ("nat", "-A OUTPUT -d 172.30.0.2/32 -j DNAT --to-destination 10.0.0.1", False),
        ("filter", "-A OUTPUT -d 172.31.0.2/32 -p udp -m udp --dport 53 -j ACCEPT", False),
        ("filter", "-A OUTPUT -d 172.30.0.2/32 -p udp -m udp --dport 53 -j ACCEPT", False),
        ("filter", "-A INPUT -i docker0 -j DROP", False),
        ("filter", "-A FORWARD -s 172.30.0.0/24 -j DROP", False),
        ("filter", "-A FORWARD -i br-lan -j ACCEPT", False),
        ("filter", "-A KUBE-FIREWALL -j DROP", False),
    ],
)
def test_which_rules_are_taken_away(table: str, rule: str, ours: bool) -> None:
    assert network.is_dockers(table, rule.split(), BRIDGES) is ours


@pytest.fixture
def routes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What an `ip` on PATH prints, whatever it is asked."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "ip"
    program.write_text(f"#!/bin/sh\nexec /bin/cat {tmp_path}/routes\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    return tmp_path / "routes"


def _lead(routes: Path, *to: str) -> None:
    routes.write_text(json.dumps([{"dst": each, "dev": "eth0"} for each in to]))


@pytest.mark.parametrize(
    ("routed", "block"),
    [
        (["default", "127.0.0.1", "172.17.0.0/16"], "172.30.0.0/16"),
        (["0.0.0.0/1", "128.0.0.0/1"], "172.30.0.0/16"),
        (["default", "172.31.16.0/20", "172.31.0.2"], "172.30.0.0/16"),
        (["default", "172.30.16.0/20"], "172.28.0.0/16"),
        (["default", "172.16.0.0/12", "10.230.5.5"], "10.200.0.0/16"),
    ],
)
def test_a_block_is_taken_that_no_route_leads_to(
    routes: Path, tmp_path: Path, routed: list[str], block: str
) -> None:
    _lead(routes, *routed)
    assert str(network.choose(tmp_path).block) == block


def test_the_block_of_last_time_stays_while_it_is_free(routes: Path, tmp_path: Path) -> None:
    """The networks that the daemon remembers are of the block, and go with it."""
    remembered = tmp_path / "data" / "network"
    _lead(routes, "172.30.0.0/16")
    network.choose(tmp_path)
    remembered.mkdir(parents=True)

    _lead(routes, "default")
    assert str(network.choose(tmp_path).block) == "172.28.0.0/16"
    assert remembered.exists()

    _lead(routes, "172.28.7.0/24")
    assert str(network.choose(tmp_path).block) == "172.30.0.0/16"
    assert not remembered.exists()


def test_where_all_blocks_are_routed_the_refusal_names_them(routes: Path, tmp_path: Path) -> None:
    _lead(routes, "10.0.0.0/8", "172.16.0.0/12")
    with pytest.raises(UsageError, match=r"routes into each of 172\.30\.0\.0/16, .*10\.200\.0\.0/16, so no"):
        network.choose(tmp_path)
