from __future__ import annotations

import ipaddress
import itertools
import json
import socket
import stat
from pathlib import Path

import pytest

from clusters.local import network
from harness.errors import EnvironmentBlocked, UsageError

# RFC 2544 sets 198.18.0.0/15 aside for tests.
RESERVED = ipaddress.IPv4Network("198.18.0.0/15")


def test_no_two_nodes_of_any_clusters_share_an_address_or_a_pod_network() -> None:
    places = list(itertools.product(range(network.SLOTS), range(1, network.MAX_NODES + 1)))
    addresses = [ipaddress.IPv4Address(network.node_address(slot, 0)) for slot in range(network.SLOTS)]
    addresses += [ipaddress.IPv4Address(network.node_address(*place)) for place in places]
    subnets = [ipaddress.IPv4Network(network.pod_subnet(*place)) for place in places]
    assert len(set(addresses)) == network.SLOTS * (network.MAX_NODES + 1)
    assert len(set(subnets)) == network.SLOTS * network.MAX_NODES
    assert all(address in RESERVED for address in addresses)
    assert all(subnet.subnet_of(RESERVED) for subnet in subnets)
    assert not any(address in subnet for address in addresses for subnet in subnets)


@pytest.mark.parametrize(
    ("slot", "index", "address", "subnet"),
    [(0, 1, "198.18.0.2", "198.19.1.0/24"), (15, 15, "198.18.15.16", "198.19.255.0/24")],
)
def test_addresses_by_example(slot: int, index: int, address: str, subnet: str) -> None:
    assert network.node_address(slot, index) == address
    assert network.pod_subnet(slot, index) == subnet


def test_a_bridges_name_fits_the_kernel_and_names_its_cluster() -> None:
    names = {network.bridge_name(each, 15) for each in ("0a1b2c", "0a1b2d")}
    assert names == {"dh0a1b2cb15", "dh0a1b2db15"}
    assert all(len(name) <= 15 for name in names)  # IFNAMSIZ is 16, with the terminating zero


def test_free_ports_differ_and_can_be_had() -> None:
    ports = network.free_ports(20)
    assert len(set(ports)) == 20
    for port in ports[:3]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


def test_a_free_port_is_granted() -> None:
    (port,) = network.free_ports(1)
    assert network.require_port(port) == port


def test_a_taken_port_is_refused_by_number() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(UsageError) as raised:
            network.require_port(port)
    assert str(raised.value) == f"--port {port}: taken by another program on 127.0.0.1"


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_can_not_be_is_refused(port: int) -> None:
    with pytest.raises(UsageError) as raised:
        network.require_port(port)
    assert str(raised.value) == f"--port {port}: expected 1 to 65535"


@pytest.fixture
def ip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An `ip` on PATH that shows what is in `<what>.json` and notes every change in `calls`."""
    program = tmp_path / "ip"
    program.write_text(
        f"""#!/bin/sh
if [ "$1" = -j ]; then exec cat {tmp_path}/$2.json; fi
echo "$*" >> {tmp_path}/calls
case "$*" in *missing*) echo 'Cannot find device "missing"' >&2; exit 1;;
*198.18.0.9*) echo 'Error: ipv4: Address not found.' >&2; exit 2;;
*198.18.0.8*) echo 'RTNETLINK answers: Cannot assign requested address' >&2; exit 2;;
*refused*) echo 'RTNETLINK answers: Operation not permitted' >&2; exit 2;; esac
"""
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    show(tmp_path, "addr", [])
    show(tmp_path, "link", [])
    return tmp_path


def show(ip: Path, what: str, links: list[dict[str, object]]) -> None:
    (ip / f"{what}.json").write_text(json.dumps(links))


def calls(ip: Path) -> list[str]:
    path = ip / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_a_slot_is_free_of_our_clusters_and_of_the_machines_addresses(ip: Path) -> None:
    assert network.free_slot(()) == 0
    assert network.free_slot({0, 1, 3}) == 2
    show(ip, "addr", [{"ifname": "lo", "addr_info": [{"local": "127.0.0.1"}, {"local": "198.18.2.1"}, {}]}])
    assert network.free_slot({0, 1}) == 3
    show(ip, "addr", [{"ifname": "lo", "addr_info": [{"local": "198.18.10.1"}]}])
    assert network.free_slot(()) == 0


def test_without_a_free_slot_the_user_is_told(ip: Path) -> None:
    with pytest.raises(
        UsageError, match=r"^all 16 address blocks for local clusters are taken; take one down"
    ):
        network.free_slot(range(16))


def test_an_address_is_loopbacks_own_and_labelled(ip: Path) -> None:
    network.add_address("0a1b2c", "198.18.0.2")
    assert calls(ip) == ["addr add 198.18.0.2/32 dev lo scope host label lo:dh0a1b2c"]
    assert len("lo:dh0a1b2c") <= 15


def test_only_what_is_the_clusters_is_removed(ip: Path) -> None:
    mine, others = {"label": "lo:dh0a1b2c"}, {"label": "lo:dh0a1b2d"}
    show(
        ip,
        "addr",
        [
            {
                "ifname": "lo",
                "addr_info": [
                    {"local": "127.0.0.1", "label": "lo"},
                    {"local": "198.18.0.2", **mine},
                    {"local": "198.18.1.2", **others},
                ],
            }
        ],
    )
    show(
        ip,
        "link",
        [
            {"ifname": "lo"},
            {"ifname": "dh0a1b2cb1"},
            {"ifname": "dh0a1b2db1"},
            {"ifname": "veth1", "master": "dh0a1b2cb1"},
            {"ifname": "missing", "master": "dh0a1b2cb1"},
            {"ifname": "veth2", "master": "dh0a1b2db1"},
        ],
    )
    network.remove_all("0a1b2c")
    assert calls(ip) == [
        "addr del 198.18.0.2/32 dev lo",
        "link del veth1",
        "link del missing",
        "link del dh0a1b2cb1",
    ]


def test_addresses_that_another_command_removes_meanwhile_are_fine(ip: Path) -> None:
    mine = {"label": "lo:dh0a1b2c"}
    gone = [{"local": f"198.18.0.{number}", **mine} for number in (8, 9)]
    show(ip, "addr", [{"ifname": "lo", "addr_info": [*gone, {"local": "198.18.0.2", **mine}]}])
    network.remove_all("0a1b2c")
    assert calls(ip)[-1] == "addr del 198.18.0.2/32 dev lo"


def test_a_refusal_of_the_kernel_is_passed_on(ip: Path) -> None:
    with pytest.raises(EnvironmentBlocked, match=r"^ip addr add refused/32 .*Operation not permitted$"):
        network.add_address("0a1b2c", "refused")
