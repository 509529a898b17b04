"""The locustfile: `locust -f .../load/generator/locustfile.py --orders ORDERS [Locust's options]`.

Everything that Locust can do works as Locust does it: `--headless` or the web UI, `--processes N`, `--master`
and `--worker` on several machines. One user per worker stands for its arrivals, and the shape for the clock.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import gevent
from locust import LoadTestShape, User, events, task
from locust.env import Environment
from locust.exception import StopUser
from locust.runners import LocalRunner, MasterRunner, Runner, WorkerRunner

from harness.errors import ExitCode, UsageError
from load.generator.conductor import Conductor
from load.generator.meter import LocustMeter
from load.generator.orders import read_orders
from load.generator.priority import go_first
from load.generator.station import Station

_END_WITHIN = 25.0
"""Seconds that a stop from outside leaves for the short drain and the report."""

_SECOND_THOUGHT = 1.0
"""Seconds after which another signal means that nobody wants to wait: terminal and parent send one each."""


class _Process:
    """What this process is in the run. Locust makes users and shapes by itself, so they find it here."""

    conductor: Conductor | None = None
    station: Station | None = None
    parent: int = 0
    signalled_at: float = 0.0


class Arrivals(User):
    """Stands for one worker's arrivals, which are not users: it is there from the start to the report."""

    @task
    def arrive(self) -> None:
        """Wait until the worker has reported."""
        if _Process.station is not None:
            _Process.station.finished.wait()
        raise StopUser


class Clock(LoadTestShape):
    """Keeps the test going until every worker has reported, and shows the rate that is asked for."""

    rate = 0.0
    """Pods/s that the load asks for now."""

    def tick(self) -> tuple[int, float] | None:
        """Users and spawn rate: one for each worker, at once; None at the end."""
        conductor = _Process.conductor
        if conductor is None or not conductor.tick():
            return None
        if _Process.parent and os.getppid() != _Process.parent:
            conductor.interrupt("the process that wanted this load is gone")
        self.rate = conductor.rate
        return conductor.users, float(conductor.users)


def _add_options(parser: Any) -> None:
    parser.add_argument(
        "--orders", env_var="DRA_HARNESS_ORDERS", help="orders.json of the run", include_in_web_ui=False
    )
    parser.add_argument(
        "--end-with-parent",
        action="store_true",
        env_var="DRA_HARNESS_END_WITH_PARENT",
        help="stop when the process that started this one is gone",
        include_in_web_ui=False,
    )


def _start(environment: Environment, runner: Runner, **_: Any) -> None:
    options = environment.parsed_options
    if options is None or not options.orders:
        sys.exit("--orders: expected the orders.json of a run")
    try:
        orders = read_orders(Path(options.orders))
    except UsageError as error:
        print(error, file=sys.stderr)  # noqa: T201 - there is no logger of ours in Locust's process
        sys.exit(int(error.exit_code))
    go_first()
    environment.process_exit_code = 0  # a refused request is a result, not an error of Locust's
    if isinstance(runner, MasterRunner | LocalRunner):
        environment.process_exit_code = int(ExitCode.HARNESS_ERROR)  # until there is a report
        _Process.conductor = Conductor(orders, runner, environment, Path(options.orders).parent)
        _Process.parent = os.getppid() if options.end_with_parent else 0
        environment.events.test_start.add_listener(lambda **_: _begin())
    if isinstance(runner, WorkerRunner | LocalRunner):
        _Process.station = Station(orders, runner, LocustMeter(environment))
    environment.events.test_stopping.add_listener(lambda **_: _end("the test was stopped"))
    environment.events.quitting.add_listener(lambda **_: _end("the generator was told to quit"))
    for number in (signal.SIGINT, signal.SIGTERM):
        gevent.signal_handler(number, _on_signal, number)


def _begin() -> None:
    if _Process.conductor is not None:
        _Process.conductor.begin()


def _interrupt(reason: str) -> bool:
    """Ask for an early end; whether there is anything to wait for."""
    conductor, station = _Process.conductor, _Process.station
    if conductor is not None:
        conductor.interrupt(reason)
        return conductor.begun and not conductor.finished.is_set()
    if station is not None and station.at_work:
        station.interrupt(reason)
        return True
    return False


def _end(reason: str) -> None:
    """Locust is about to end this test or process: see that the report comes first."""
    if not _interrupt(reason):
        return
    if _Process.conductor is not None:
        _Process.conductor.finished.wait(_END_WITHIN)
    elif _Process.station is not None:
        _Process.station.finished.wait(_END_WITHIN)


def _on_signal(number: int) -> None:
    """The first signal ends the load and leaves a report; where there is nothing to report, it ends all."""
    first, _Process.signalled_at = _Process.signalled_at, time.monotonic()
    if first and time.monotonic() - first > _SECOND_THOUGHT:
        os._exit(128 + number)
    if not _interrupt(f"{signal.Signals(number).name} in the middle of the run"):
        raise KeyboardInterrupt


events.init_command_line_parser.add_listener(_add_options)
events.init.add_listener(_start)
