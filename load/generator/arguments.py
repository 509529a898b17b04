"""Turns the generator's own command line into Locust's."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Sequence
from pathlib import Path

from load.generator.orders import read_orders

LOCUSTFILE = Path(__file__).with_name("locustfile.py")
LOOPBACK = "127.0.0.1"


def locust_arguments(arguments: Sequence[str]) -> list[str]:
    """Locust's command line for ours.

    Raises:
        UsageError: the orders can't be used.
    """
    parser = argparse.ArgumentParser(prog="python -m load.generator", allow_abbrev=False)
    parser.add_argument("orders", type=Path, help="orders.json of the run")
    parser.add_argument("--web", type=int, metavar="PORT", help="serve Locust's web UI on loopback")
    parser.add_argument("--processes", type=int, metavar="N", help="as Locust's")
    ours, theirs = parser.parse_known_args(arguments)
    read_orders(ours.orders)
    line = ["--locustfile", str(LOCUSTFILE), "--orders", str(ours.orders)]
    if ours.web is None:
        line += ["--headless", "--only-summary"]
    else:
        line += ["--web-host", LOOPBACK, "--web-port", str(ours.web), "--autostart", "--autoquit", "1"]
    if ours.processes is not None:
        port = str(free_port())
        line += ["--processes", str(ours.processes), "--master-bind-host", LOOPBACK]
        line += ["--master-bind-port", port, "--master-host", LOOPBACK, "--master-port", port]
    return [*line, *theirs]


def free_port() -> int:
    """A port on loopback that is free now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
