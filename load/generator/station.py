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
from load.generator.sending import Meter
from load.generator.worker import Place, Worker
from load.model import Orders, Snapshot

_MAX_SKEW = 0.25
"""Seconds by which a worker's clock may differ from the master's, with the message's way added."""

_log = logging.getLogger(__name__)


class Station:
    """Runs at most one `Worker` in this process, for the master that the runner is connected to."""

    def __init__(self, orders: Orders, runner: Runner, meter: Meter) -> None:
        self._orders = orders
        self._runner = runner
        self._meter = meter
        self._clock = SteadyClock()
        self._worker: Worker | None = None
        self._go = Event()
        self._started_at = 0.0
        self.finished = Event()
        """Set once the report is sent, or there is nothing that could be reported."""
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

    # Messages; `environment` and `msg` are Locust's

    def _assigned(self, environment: Any, msg: Message) -> None:
        if self._worker is not None:
            return  # one run per process
        place = Place(index=msg.data["index"], count=msg.data["count"])
        self._worker = Worker(
            self._orders, place, clock=self._clock, meter=self._meter, tell=self._send_snapshot
        )
        gevent.spawn(self._work, self._worker)

    def _told_to_go(self, environment: Any, msg: Message) -> None:
        self._started_at = msg.data["started_at"]
        skew = self._clock() - msg.data["sent_at"]
        if self._worker is not None and abs(skew) > _MAX_SKEW:
            self._worker.distrust(f"this worker's clock differs from the master's by {skew:.2f} s")
        self._go.set()

    def _told_to_stop(self, environment: Any, msg: Message) -> None:
        self.interrupt()

    # Work

    def _work(self, worker: Worker) -> None:
        try:
            if self._prepare(worker):
                self._go.wait()
                if self._started_at:
                    report = worker.run(self._started_at)
                    self._send(Topic.REPORT, json=report.model_dump_json())
                else:
                    self._send(Topic.REPORT, error="interrupted before the start")
        except Exception as error:
            _log.exception("the worker ended by an error")
            self._send(Topic.REPORT, error=f"{type(error).__name__}: {error}")
        finally:
            worker.close()
            self.finished.set()

    def _prepare(self, worker: Worker) -> bool:
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
        self._send(Topic.READY, error=error, blocked=blocked)
        return not error

    def _send_snapshot(self, snapshot: Snapshot) -> None:
        self._send(Topic.SNAPSHOT, json=snapshot.model_dump_json())

    def _send(self, topic: Topic, **data: Any) -> None:
        self._runner.send_message(topic, data)
