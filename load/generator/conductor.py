"""The master's side of a run, or the only one: starts the workers together, gathers what they report."""

from __future__ import annotations

import enum
import logging
import time
from pathlib import Path
from typing import Any

from gevent.event import Event
from locust.env import Environment
from locust.rpc import Message
from locust.runners import STATE_MISSING, LocalRunner, MasterRunner

from harness.errors import ExitCode
from load import arrivals
from load.generator.messages import Topic
from load.generator.outcome import Outcome
from load.model import Orders, Snapshot, WorkerReport

_LEAD = 0.3
"""Seconds from the word to the start, so that it reaches all workers before."""
_PREPARE_WITHIN = 90.0
_REPORT_WITHIN = 60.0
"""Seconds after the end of the drain within which a worker has to report."""
_STOP_WITHIN = 20.0
"""Seconds after an interruption within which a worker has to report."""

_log = logging.getLogger(__name__)


class _State(enum.Enum):
    WAITING = enum.auto()
    PREPARING = enum.auto()
    RUNNING = enum.auto()
    DONE = enum.auto()


class Conductor:
    """Leads one run.

    Args:
        orders: of the run.
        runner: Locust's; a local one is master and worker in one.
        environment: Locust's; gets the exit code.
        folder: where `generator.json` and `progress.ndjson` go.
    """

    def __init__(
        self, orders: Orders, runner: MasterRunner | LocalRunner, environment: Environment, folder: Path
    ) -> None:
        self._orders = orders
        self._runner = runner
        self._environment = environment
        self._outcome = Outcome(orders, folder)
        self._state = _State.WAITING
        self._members: list[str] = []
        """Client ids of the workers that take part, by index."""
        self._ready: set[str] = set()
        self._give_up_at = 0.0
        self._started_at = 0.0
        self.finished = Event()
        """Set once the report is written."""
        runner.register_message(Topic.READY, self._on_ready)
        runner.register_message(Topic.SNAPSHOT, self._on_snapshot)
        runner.register_message(Topic.REPORT, self._on_report)

    @property
    def begun(self) -> bool:
        """Whether workers were told to prepare."""
        return self._state is not _State.WAITING

    @property
    def users(self) -> int:
        """How many Locust users there should be: one for each worker."""
        if self._members:
            return len(self._members)
        return max(1, self._runner.worker_count)

    @property
    def rate(self) -> float:
        """Pods/s that the load asks for now."""
        if self._state is not _State.RUNNING:
            return 0.0
        return arrivals.rate_at(self._orders.segments, time.time() - self._started_at)

    def begin(self) -> None:
        """Locust's test starts: give every worker that is there its place."""
        if self._state is not _State.WAITING:
            _log.warning("these orders were carried out already: new ones make a new run")
            return
        self._state = _State.PREPARING
        self._give_up_at = time.time() + _PREPARE_WITHIN
        self._members = self._workers()
        for index, client in enumerate(self._members):
            self._send(Topic.ASSIGN, client, index=index, count=len(self._members))

    def interrupt(self, fault: str) -> None:
        """No more arrivals: workers drain briefly and report what they measured."""
        if self._state in (_State.WAITING, _State.DONE):
            return
        self._outcome.fault(fault)
        self._give_up_at = time.time() + _STOP_WITHIN
        for client in self._members:
            self._send(Topic.STOP, client)

    def tick(self) -> bool:
        """Look after the workers, about once a second; whether the run still goes on."""
        if self._state in (_State.PREPARING, _State.RUNNING):
            for client in self._lost():
                self._outcome.lost(client, f"worker {self._members.index(client)} was lost")
            if time.time() > self._give_up_at:
                for client in self._awaited():
                    self._outcome.lost(client, f"worker {self._members.index(client)} did not report in time")
            self._end_if_complete()
        return self._state is not _State.DONE

    # Messages; `environment` and `msg` are Locust's

    def _on_ready(self, environment: Environment, msg: Message) -> None:
        if msg.data["error"]:
            self._outcome.refused(msg.node_id, msg.data["error"], blocked=msg.data["blocked"])
            if self._awaited():
                self.interrupt("a worker could not take part")
            self._end_if_complete()
            return
        self._ready.add(msg.node_id)
        if self._state is _State.PREPARING and self._ready == set(self._members):
            self._go()

    def _go(self) -> None:
        self._state = _State.RUNNING
        self._started_at = time.time() + _LEAD
        load = arrivals.duration(self._orders) + self._orders.drain_seconds
        self._give_up_at = self._started_at + load + _REPORT_WITHIN
        for client in self._members:
            self._send(Topic.GO, client, started_at=self._started_at, sent_at=time.time())

    def _on_snapshot(self, environment: Environment, msg: Message) -> None:
        snapshot = Snapshot.model_validate_json(msg.data["json"])
        self._outcome.progress(msg.node_id, snapshot, expected=len(self._awaited()))

    def _on_report(self, environment: Environment, msg: Message) -> None:
        if "json" in msg.data:
            self._outcome.reported(msg.node_id, WorkerReport.model_validate_json(msg.data["json"]))
        else:
            self._outcome.lost(msg.node_id, msg.data["error"])
        self._end_if_complete()

    # Ending

    def _end_if_complete(self) -> None:
        if self._state is _State.DONE or not self._members or self._awaited():
            return
        self._state = _State.DONE
        code = ExitCode.HARNESS_ERROR
        try:
            code = self._outcome.write()
        finally:
            self._environment.process_exit_code = int(code)
            self.finished.set()

    def _awaited(self) -> list[str]:
        return [client for client in self._members if client not in self._outcome.accounted]

    def _workers(self) -> list[str]:
        if isinstance(self._runner, LocalRunner):
            return ["local"]
        ready = [client.id for client in self._runner.clients.ready]
        return sorted(ready, key=self._runner.get_worker_index)

    def _lost(self) -> list[str]:
        if isinstance(self._runner, LocalRunner):
            return []
        clients = self._runner.clients
        return [
            client
            for client in self._awaited()
            if client not in clients or clients[client].state == STATE_MISSING
        ]

    def _send(self, topic: Topic, client: str, **data: Any) -> None:
        self._runner.send_message(topic, data, client)
