"""The master's side of a run, or the only one: starts the workers together, gathers what they report."""

from __future__ import annotations

import enum
import logging
from pathlib import Path
from typing import Any

from gevent.event import Event
from locust.env import Environment
from locust.rpc import Message
from locust.runners import STATE_MISSING, LocalRunner, MasterRunner

from harness.errors import ExitCode
from load import arrivals
from load.generator.clock import Clock, SteadyClock, offset
from load.generator.messages import Topic
from load.generator.outcome import Outcome
from load.generator.roster import Member, Roster
from load.lost import lost_report
from load.model import Orders, Snapshot, WorkerReport
from load.shift import shift_report, shift_snapshot

GATHER_WITHIN = 60.0
"""Seconds within which the expected workers have to be there."""
_LEAD = 0.3
"""Seconds from the word to the start, so that it reaches all workers before."""
_PREPARE_WITHIN = 90.0
_REPORT_WITHIN = 60.0
"""Seconds after the end of the drain within which a worker has to report."""
_STOP_WITHIN = 20.0
"""Seconds after an interruption within which a worker has to report."""
MAX_UNCERTAINTY = 0.25
"""Seconds by which a worker's start may differ from the others'."""

_log = logging.getLogger(__name__)


class _State(enum.Enum):
    WAITING = enum.auto()
    GATHERING = enum.auto()
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
        expected: how many workers take part.
        clock: the master's.
    """

    def __init__(
        self,
        orders: Orders,
        runner: MasterRunner | LocalRunner,
        environment: Environment,
        folder: Path,
        *,
        expected: int = 1,
        clock: Clock | None = None,
    ) -> None:
        self._orders = orders
        self._runner = runner
        self._environment = environment
        self._outcome = Outcome(orders, folder)
        self._roster = Roster(orders, expected)
        self._clock = clock or SteadyClock()
        self._state = _State.WAITING
        self._ready: set[str] = set()
        self._give_up_at = self._clock() + GATHER_WITHIN
        self._started_at = 0.0
        self._stopped_at: float | None = None
        self.finished = Event()
        """Set once the report is written."""
        runner.register_message(Topic.JOIN, self._on_join)
        runner.register_message(Topic.READY, self._on_ready)
        runner.register_message(Topic.SNAPSHOT, self._on_snapshot)
        runner.register_message(Topic.REPORT, self._on_report)

    @property
    def begun(self) -> bool:
        """Whether workers were told to prepare."""
        return self._state is not _State.WAITING

    @property
    def complete(self) -> bool:
        """Whether all workers have joined."""
        self._forget_the_gone()
        return self._roster.complete

    @property
    def users(self) -> int:
        """How many Locust users there should be: one for each worker."""
        return self._roster.expected

    @property
    def rate(self) -> float:
        """Pods/s that the load asks for now."""
        if self._state is not _State.RUNNING:
            return 0.0
        return arrivals.rate_at(self._orders.segments, self._clock() - self._started_at)

    def begin(self) -> None:
        """Locust's test starts: give every worker its place, as soon as all have joined."""
        if self._state is not _State.WAITING:
            _log.warning("these orders were carried out already: new ones make a new run")
            return
        self._state = _State.GATHERING
        self._forget_the_gone()
        self._assign_if_complete()

    def stop(self, reason: str) -> None:
        """Somebody wants it to end. Locust also says so once it has no worker left, which `tick` tells of."""
        members = self._roster.members
        if self._state in (_State.WAITING, _State.DONE) or (members and all(map(self._gone, members))):
            return
        self._outcome.stopped = True
        self.interrupt(reason)

    def interrupt(self, fault: str) -> None:
        """No more arrivals: workers drain briefly and report what they measured."""
        if self._state in (_State.WAITING, _State.DONE):
            return
        self._outcome.fault(fault)
        if self._state is _State.GATHERING:
            self._end()
            return
        if self._stopped_at is None:
            self._stopped_at = self._clock()
        self._give_up_at = self._clock() + _STOP_WITHIN
        for member in self._roster.members:
            self._send(Topic.STOP, member.client)

    def give_up_gathering(self) -> bool:
        """End what never began, if workers are missing for too long; whether it has ended so."""
        if self._state not in (_State.WAITING, _State.GATHERING) or self._clock() < self._give_up_at:
            return False
        self._outcome.fault(f"{self._roster.missing()} within {GATHER_WITHIN:.0f} s")
        self._end()
        return True

    def tick(self) -> bool:
        """Look after the workers, about once a second; whether the run still goes on."""
        if not self.give_up_gathering():
            self._forget_the_gone()
        if self._state in (_State.PREPARING, _State.RUNNING):
            late = self._clock() > self._give_up_at
            for member in self._awaited():
                if self._gone(member):
                    self._lose(member, "was lost")
                elif late:
                    self._lose(member, "did not report in time")
            self._end_if_complete()
        return self._state is not _State.DONE

    # Messages; `environment` and `msg` are Locust's

    def _on_join(self, environment: Environment, msg: Message) -> None:
        if reason := self._roster.join(msg.node_id, msg.data):
            _log.warning("%s", reason)
            self._send(Topic.REFUSED, msg.node_id, reason=reason)
        else:
            self._assign_if_complete()

    def _assign_if_complete(self) -> None:
        if self._state is not _State.GATHERING or not self._roster.complete:
            return
        self._state = _State.PREPARING
        self._give_up_at = self._clock() + _PREPARE_WITHIN
        members = self._roster.members
        for index, member in enumerate(members):
            place = {"index": index, "count": len(members)}
            self._send(Topic.ASSIGN, member.client, **place, asked_at=self._clock())

    def _on_ready(self, environment: Environment, msg: Message) -> None:
        if msg.node_id not in self._roster:
            return
        name, data = self._roster[msg.node_id].name, msg.data
        if data["error"]:
            self._outcome.refused(msg.node_id, f"worker {name}: {data['error']}", blocked=data["blocked"])
            if self._awaited():
                self.interrupt("a worker could not take part")
            self._end_if_complete()
            return
        clock = offset(data["asked_at"], data["received_at"], data["replied_at"], self._clock())
        self._roster.set_clock(msg.node_id, clock)
        _log.info("worker %s: its clock is %+.4f s off, to %.4f s", name, clock.seconds, clock.uncertainty)
        if clock.uncertainty > MAX_UNCERTAINTY:
            told = f"{clock.uncertainty:.2f} s, more than {MAX_UNCERTAINTY} s"
            self._outcome.fault(f"worker {name}: its clock is known only to {told}")
        self._ready.add(msg.node_id)
        if self._state is _State.PREPARING and len(self._ready) == len(self._roster.members):
            self._go()

    def _go(self) -> None:
        self._state = _State.RUNNING
        self._started_at = self._clock() + _LEAD
        load = arrivals.duration(self._orders) + self._orders.drain_seconds
        self._give_up_at = self._started_at + load + _REPORT_WITHIN
        for member in self._roster.members:
            self._send(Topic.GO, member.client, started_at=self._started_at + member.clock.seconds)

    def _on_snapshot(self, environment: Environment, msg: Message) -> None:
        if msg.node_id not in self._roster:
            return
        snapshot = Snapshot.model_validate_json(msg.data["json"])
        shifted = shift_snapshot(snapshot, -self._roster[msg.node_id].clock.seconds)
        self._outcome.progress(msg.node_id, shifted, expected=len(self._awaited()))

    def _on_report(self, environment: Environment, msg: Message) -> None:
        if msg.node_id not in self._roster:
            return
        member = self._roster[msg.node_id]
        if "json" in msg.data:
            report = WorkerReport.model_validate_json(msg.data["json"])
            self._outcome.reported(msg.node_id, shift_report(report, -member.clock.seconds))
        elif member in self._awaited():
            self._lose(member, msg.data["error"])
        self._end_if_complete()

    # Ending

    def _lose(self, member: Member, what: str) -> None:
        """A worker will not report: say when, and account for its pods."""
        if self._state is not _State.RUNNING:
            self._outcome.lost(member.client, f"worker {member.name} {what} before the start")
            if self._awaited():
                self.interrupt("a worker could not take part")
            return
        elapsed = self._clock() - self._started_at
        reason = f"worker {member.name} {what} {elapsed:.0f} s after the start"
        until = arrivals.duration(self._orders)
        if self._stopped_at is not None:
            until = min(until, self._stopped_at - self._started_at)
        left = lost_report(
            self._orders,
            index=self._roster.index(member.client),
            count=len(self._roster.members),
            started_at=self._started_at,
            until=until,
            reason=reason,
        )
        self._outcome.lost(member.client, reason, left)

    def _end_if_complete(self) -> None:
        if self._state in (_State.PREPARING, _State.RUNNING) and not self._awaited():
            self._end()

    def _end(self) -> None:
        self._state = _State.DONE
        code = ExitCode.HARNESS_ERROR
        try:
            code = self._outcome.write()
        finally:
            self._environment.process_exit_code = int(code)
            self.finished.set()

    def _awaited(self) -> list[Member]:
        return [each for each in self._roster.members if each.client not in self._outcome.accounted]

    def _gone(self, member: Member) -> bool:
        if isinstance(self._runner, LocalRunner):
            return False
        clients = self._runner.clients
        return member.client not in clients or clients[member.client].state == STATE_MISSING

    def _forget_the_gone(self) -> None:
        if self._state not in (_State.WAITING, _State.GATHERING):
            return
        for member in self._roster.members:
            if self._gone(member):
                self._roster.leave(member.client)

    def _send(self, topic: Topic, client: str, **data: Any) -> None:
        self._runner.send_message(topic, data, client)
