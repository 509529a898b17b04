"""The worker's side of a run: does what the master says, and tells it what comes of it."""

from __future__ import annotations

import logging
from typing import Any

import gevent
from gevent.event import Event
from locust.rpc import Message
from locust.runners import Runner

from harness.errors import EnvironmentBlocked, HarnessError, UsageError
from load.generator.clock import SteadyClock
from load.generator.identity import Refused
from load.generator.messages import Topic
from load.generator.roster import credentials
from load.generator.sending import Meter
from load.generator.worker import Place, Worker
from load.model import Orders, Snapshot

_JOIN_EVERY = 1.0
"""Seconds between two tries to join: the master may not listen yet."""

_log = logging.getLogger(__name__)


class Station:
    """Runs at most one `Worker` in this process, for the master that the runner is connected to.

    Args:
        orders: of the run.
        runner: Locust's.
        meter: Locust's table.
        name: of the worker, for people; empty for a number.
    """

    def __init__(self, orders: Orders, runner: Runner, meter: Meter, *, name: str = "") -> None:
        self._orders = orders
        self._runner = runner
        self._meter = meter
        self._clock = SteadyClock()
        self._worker: Worker | None = None
        self._go = Event()
        self._started_at = 0.0
        self._credentials = credentials(orders, name)
        self._answered = Event()
        self.refused = ""
        """Why the master does not want this worker."""
        self.finished = Event()
        """Set once the report is sent, or there is nothing that could be reported."""
        runner.register_message(Topic.REFUSED, self._told_to_leave)
        runner.register_message(Topic.ASSIGN, self._assigned)
        runner.register_message(Topic.GO, self._told_to_go)
        runner.register_message(Topic.STOP, self._told_to_stop)

    @property
    def at_work(self) -> bool:
        """Whether there is something to wait for."""
        return self._worker is not None and not self.finished.is_set()

    def interrupt(self, fault: str = "") -> None:
        """No more arrivals; a short drain and the report, with that fault in it."""
        if self._worker is not None:
            if fault:
                self._worker.distrust(fault)
            self._worker.interrupt()
        self._go.set()

    def join(self) -> None:
        """Ask the master to be taken, until it answers or the run is over."""
        while not self._answered.is_set() and not self.finished.is_set():
            self._send(Topic.JOIN, **self._credentials)
            self._answered.wait(_JOIN_EVERY)

    # Messages; `environment` and `msg` are Locust's

    def _told_to_leave(self, environment: Any, msg: Message) -> None:
        self.refused = msg.data["reason"]
        self._answered.set()
        self.finished.set()

    def _assigned(self, environment: Any, msg: Message) -> None:
        received_at = self._clock()
        self._answered.set()
        if self._worker is not None:
            return  # one run per process
        place = Place(index=msg.data["index"], count=msg.data["count"])
        self._worker = Worker(
            self._orders, place, clock=self._clock, meter=self._meter, tell=self._send_snapshot
        )
        moments = {"asked_at": msg.data["asked_at"], "received_at": received_at}
        gevent.spawn(self._work, self._worker, moments)

    def _told_to_go(self, environment: Any, msg: Message) -> None:
        self._started_at = msg.data["started_at"]
        self._go.set()

    def _told_to_stop(self, environment: Any, msg: Message) -> None:
        self.interrupt()

    # Work

    def _work(self, worker: Worker, moments: dict[str, float]) -> None:
        try:
            if self._prepare(worker, moments):
                self._go.wait()
                if self._started_at:
                    report = worker.run(self._started_at)
                    self._send(Topic.REPORT, json=report.model_dump_json())
                else:
                    self._send(Topic.REPORT, error="was interrupted")
        except Exception as error:
            _log.exception("the worker ended by an error")
            self._send(Topic.REPORT, error=f"broke ({type(error).__name__}: {error})")
        finally:
            worker.close()
            self.finished.set()

    def _prepare(self, worker: Worker, moments: dict[str, float]) -> bool:
        error, blocked = "", True
        try:
            worker.prepare()
        except (Refused, EnvironmentBlocked, OSError) as refusal:
            error = str(refusal)
        except (UsageError, HarnessError) as usage:
            error, blocked = str(usage), False
        except Exception as unexpected:
            _log.exception("the worker can't take part")
            error, blocked = f"{type(unexpected).__name__}: {unexpected}", False
        self._send(Topic.READY, error=error, blocked=blocked, **moments, replied_at=self._clock())
        return not error

    def _send_snapshot(self, snapshot: Snapshot) -> None:
        self._send(Topic.SNAPSHOT, json=snapshot.model_dump_json())

    def _send(self, topic: Topic, **data: Any) -> None:
        self._runner.send_message(topic, data)
