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

_SILENCE = 5.0
"""Seconds without a word of the master after which a worker takes it for dead; it answers each second."""

_NEVER = 2**31
"""More workers than ever come."""

_SECOND_THOUGHT = 1.0
"""Seconds after which another signal means that nobody wants to wait: terminal and parent send one each."""


class _Process:
    """What this process is in the run. Locust makes users and shapes by itself, so they find it here."""

    conductor: Conductor | None = None
    station: Station | None = None
    parent: int = 0
    signalled_at: float = 0.0
    heard_at: float = 0.0
    """When the master was last heard, on the monotonic clock."""


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

    parser.add_argument(
        "--worker-name", default="", help="what a worker is called in reports", include_in_web_ui=False
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
        expected = options.expect_workers if isinstance(runner, MasterRunner) else 1
        folder = Path(options.orders).parent
        _Process.conductor = Conductor(orders, runner, environment, folder, expected=expected)
        if isinstance(runner, MasterRunner):
            gevent.spawn(_gather, _Process.conductor, runner, options)
        environment.events.test_start.add_listener(lambda **_: _begin())
    if isinstance(runner, WorkerRunner | LocalRunner):
        _Process.station = Station(orders, runner, LocustMeter(environment), name=options.worker_name)
        gevent.spawn(_Process.station.join)
    if isinstance(runner, WorkerRunner):
        gevent.spawn(_serve, _Process.station, environment)
    _Process.parent = os.getppid() if options.end_with_parent else 0
    where = " in Locust's web UI" if environment.web_ui is not None else ""
    environment.events.test_stopping.add_listener(lambda **_: _end(f"the test was stopped{where}"))
    environment.events.quitting.add_listener(lambda **_: _end("the generator was told to quit"))
    for number in (signal.SIGINT, signal.SIGTERM):
        gevent.signal_handler(number, _on_signal, number)


def _gather(conductor: Conductor, runner: Runner, options: Any) -> None:
    """Let Locust begin once all workers have joined; it would count strangers, and wait for ever."""
    options.expect_workers = _NEVER
    while not conductor.complete:
        if conductor.give_up_gathering():
            runner.quit()
            sys.exit(int(ExitCode.BLOCKED))
        gevent.sleep(0.2)
    options.expect_workers = 0


def _serve(station: Station, environment: Environment) -> None:
    """End a worker's process when the master doesn't want it, or is gone."""
    _Process.heard_at = time.monotonic()
    environment.events.heartbeat_received.add_listener(lambda **_: _heard())
    while not (reason := station.refused or _alone()):
        gevent.sleep(0.5)
    print(reason, file=sys.stderr, flush=True)  # noqa: T201 - as above
    if station.refused:
        os._exit(int(ExitCode.USAGE))  # without Locust's goodbye: a master ends when its last worker says it
    environment.process_exit_code = int(ExitCode.BLOCKED)
    station.interrupt(reason)
    if station.at_work:
        station.finished.wait(_END_WITHIN)
    if environment.runner is not None:
        environment.runner.quit()


def _alone() -> str:
    """Why nobody wants this worker's load any more, or an empty text."""
    if time.monotonic() - _Process.heard_at > _SILENCE:
        return f"the master was not heard for {_SILENCE:.0f} s"
    if _Process.parent and os.getppid() != _Process.parent:
        return "the process that started this worker is gone"
    return ""


def _heard() -> None:
    _Process.heard_at = time.monotonic()


def _begin() -> None:
    if _Process.conductor is not None:
        _Process.conductor.begin()


def _interrupt(reason: str) -> bool:
    """Ask for an early end; whether there is anything to wait for."""
    conductor, station = _Process.conductor, _Process.station
    if conductor is not None:
        conductor.stop(reason)
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
