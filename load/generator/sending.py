"""Sends creates when they are due and deletes when it is time, each in a greenlet of its own, bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

import gevent
from gevent.event import Event
from gevent.lock import BoundedSemaphore

from load.arrivals import Arrival
from load.generator.clock import Clock
from load.generator.exchange import Answer
from load.generator.pods import PodRequests
from load.generator.wire import Wire
from load.model import Conduct, Orders, Stage
from load.tracker import Tracker

TRIES = 10
"""A well-behaved client gives up after so many 429s, as client-go does."""
_LOOK_UP = 0.2
"""Seconds after which a waiting greenlet looks whether it should stop."""
_WAKE = 0.01
"""Seconds in which those that wait for `stopping` have woken up and done what is left."""
_SHORTEST_TICK, _LONGEST_TICK = 0.005, 0.1
"""Seconds between two looks at what is to be deleted."""


class Meter(Protocol):
    """Told of every request, for Locust's table."""

    def request(self, verb: str, seconds: float, answer: Answer) -> None:
        """One request was answered, or given up."""
        ...

    def stage(self, stage: Stage, seconds: float) -> None:
        """A pod came to a stage."""
        ...


class Sender:
    """One worker's writes.

    Args:
        orders: of the run.
        slots: how many creates may be under way; as many deletes may be besides.
        wire: the sender's connections.
        pods: the sender's requests.
        tracker: the books.
        clock: for the stamps.
        meter: Locust's table.
        failed: told of errors that are ours.
    """

    def __init__(
        self,
        orders: Orders,
        *,
        slots: int,
        wire: Wire,
        pods: PodRequests,
        tracker: Tracker,
        clock: Clock,
        meter: Meter,
        failed: Callable[[Exception], None],
    ) -> None:
        self._orders = orders
        self._wire = wire
        self._pods = pods
        self._tracker = tracker
        self._clock = clock
        self._meter = meter
        self._failed = failed
        self._abandoned = False
        self._free = slots
        self._delete_slots = BoundedSemaphore(slots)
        self.creating = 0
        """Pods whose create has no last answer yet."""
        self.stopping = Event()
        """Set: no more arrivals, and no more tries of those that were turned away."""
        self.retry_after: Counter[str] = Counter()
        self.last_arrival_at = 0.0

    # Arrivals

    def send_all(self, arrivals: Iterable[Arrival]) -> None:
        """Send each pod when it is due, until the last one or `stopping`."""
        for number, arrival in enumerate(arrivals):
            while (wait := arrival.due - self._clock()) > 0 and not self.stopping.is_set():
                gevent.sleep(min(wait, _LOOK_UP))  # cheaper than to wait for the event
            if self.stopping.is_set():
                return
            self._arrive(arrival)
            if number % 16 == 0:
                gevent.sleep(0)  # in a burst, what was spawned gets to send meanwhile

    def abandon(self) -> None:
        """Give up on every answer that is still awaited; who waits for another try takes its last one."""
        self.stopping.set()
        gevent.sleep(_WAKE)
        self._abandoned = True

    def _arrive(self, arrival: Arrival) -> None:
        self._tracker.intended(arrival.name, arrival.namespace, arrival.kind, arrival.due)
        self.last_arrival_at = arrival.due
        if self._free <= 0:
            self._tracker.dropped(arrival.name, self._clock())
            return
        self._free -= 1
        self.creating += 1
        gevent.spawn_raw(self._guarded, self._create, arrival)

    def _create(self, arrival: Arrival) -> None:
        name = arrival.name
        try:
            self._tracker.sent(name, self._clock())
            request = self._pods.create(arrival)
            answer = self._request("create", "POST", request)
            for _ in range(TRIES - 1 if self._orders.conduct is Conduct.RETRY_AFTER else 0):
                if answer.status != 429 or self._stopped_while_waiting(answer):
                    break
                self._tracker.retried(name, self._clock(), answer.status)
                answer = self._request("create", "POST", request)
            if not self._abandoned:
                self._tracker.answered(
                    name, self._clock(), answer.status, answer.reason, answer.message, answer.apf
                )
        finally:
            self._free += 1
            self.creating -= 1

    def _stopped_while_waiting(self, answer: Answer) -> bool:
        """Wait as long as the answer says, without a slot; whether tries have come to an end meanwhile."""
        self._free += 1
        try:
            seconds = float(answer.retry_after) if answer.retry_after.isdigit() else 1.0
            return bool(self.stopping.wait(seconds))
        finally:
            self._free -= 1  # below zero, if need be: it has waited for its turn already

    # Deletes

    def delete_loop(self) -> None:
        """Delete each pod when the tracker says that it is due, until killed."""
        longest = min(_LONGEST_TICK, self._orders.hold_seconds / 2)  # nobody becomes due before
        while True:
            now = self._clock()
            for namespace, name in self._tracker.take_due_deletions(now):
                gevent.spawn_raw(self._guarded, self._delete, namespace, name)
            due = self._tracker.next_deletion()
            gevent.sleep(max(_SHORTEST_TICK, min(longest, due - now if due is not None else longest)))

    def _delete(self, namespace: str, name: str) -> None:
        with self._delete_slots:
            self._tracker.delete_sent(name, self._clock())
            answer = self._request("delete", "DELETE", self._pods.delete(namespace, name))
            if not self._abandoned:
                self._tracker.delete_answered(name, self._clock(), answer.status)

    def _guarded(self, work: Callable[..., None], *arguments: object) -> None:
        """Work in a greenlet without a `Greenlet` around it, which would cost as much as the sending."""
        try:
            work(*arguments)
        except Exception as error:
            self._failed(error)

    def _request(self, verb: str, method: str, request: bytes) -> Answer:
        started = self._clock()
        answer = self._wire.send(request, method)
        if answer.retry_after:
            self.retry_after[answer.retry_after] += 1
        self._meter.request(verb, self._clock() - started, answer)
        return answer
