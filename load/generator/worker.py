"""One generator process at work: prepares, sends, watches, drains, reports."""

from __future__ import annotations

import gc
import logging
import resource
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import gevent
from gevent.event import Event

from harness.labels import RUN
from load import arrivals
from load.generator.access import Access, read_kubeconfig
from load.generator.clock import Clock
from load.generator.feed import Feed
from load.generator.identity import check_observer, check_sender
from load.generator.pods import WORKER_LABEL, PodRequests
from load.generator.sending import Meter, Sender
from load.generator.watching import Target, Watch
from load.generator.wire import Wire
from load.model import Flow, Orders, Requests, Snapshot, WorkerReport
from load.tracker import Tracker

READY_WITHIN = 30.0
"""Seconds within which the API server has to accept the watches at the start."""
SHORT_DRAIN = 5.0
"""Seconds of drain after an interruption."""

_RESOURCE_API = "/apis/resource.k8s.io/v1"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """Which of how many workers this one is."""

    index: int
    count: int


class Worker:
    """One process's share of a run. `prepare`, then `run`, both in greenlets; `interrupt` from anywhere.

    Args:
        orders: of the run.
        place: this worker's share of them.
        clock: for all stamps.
        meter: Locust's table.
        tell: given a snapshot about once a second.
    """

    def __init__(
        self, orders: Orders, place: Place, *, clock: Clock, meter: Meter, tell: Callable[[Snapshot], None]
    ) -> None:
        self._orders = orders
        self._place = place
        self._clock = clock
        self._meter = meter
        self._tell = tell
        self._requests: Counter[tuple[str, str]] = Counter()
        self._watches: list[tuple[Target, Watch, Feed]] = []
        self._faults: list[str] = []
        self._interrupted = Event()
        self._wire: Wire | None = None
        self._sender: Sender | None = None
        self._flow: Flow | None = None
        self._draining = False

    # Before the start

    def prepare(self) -> None:
        """Open connections and watches, and see who the API server takes us for.

        Raises:
            UsageError: a kubeconfig can't be used.
            EnvironmentBlocked: the API server did not let us watch.
            Refused: it is no use to measure as this sender.
        """
        access = read_kubeconfig(self._orders.sender_kubeconfig)
        self._pods = PodRequests(self._orders, access, worker=self._place.index)
        self._slots = max(1, arrivals.share(self._orders.max_in_flight, self._place.index, self._place.count))
        self._wire = wire = Wire(access, size=2 * self._slots)
        self._flow = self._probe(wire)
        wire.warm(self._at_once())
        self._open_watches(read_kubeconfig(self._orders.observer_kubeconfig))

    def _probe(self, wire: Wire) -> Flow:
        prefix = arrivals.name_prefix(self._orders.run_id, self._place.index)
        flow: Flow | None = None
        for number, kind in enumerate(self._orders.kinds):
            request = self._pods.probe(kind, kind.namespaces[0], f"{prefix}probe-{number}")
            answer = wire.send(request, "POST", want_flow=True)
            self._requests["probe", str(answer.status)] += 1
            flow = check_sender(answer, self._orders)
        assert flow is not None  # orders have at least one kind
        return flow

    def _at_once(self) -> int:
        """How many connections the largest burst needs at once, or a few."""
        at_once = max((burst.pods for burst in self._orders.bursts), default=16)
        return min(self._slots, max(16, at_once // self._place.count))

    def _open_watches(self, observer: Access) -> None:
        for target in self._targets():
            feed = Feed(target)
            watch = Watch(
                target,
                observer,
                feed,
                self._clock,
                seconds=arrivals.duration(self._orders) + self._orders.drain_seconds + 600,
                requests=self._requests,
            )
            watch.start(READY_WITHIN).link_exception(self._failed)
            self._watches.append((target, watch, feed))
        self._faults += check_observer(self._watches[0][1].flow_schema_uid, self._orders)

    def _targets(self) -> list[Target]:
        """Our own pods by their labels; all claims of the run: others make ours, and hold devices, too."""
        selector = f"{RUN}={self._orders.run_id},{WORKER_LABEL}={self._place.index}"
        prefix = self._orders.namespace_prefix
        targets = [
            Target("pods", "/api/v1/pods", selector),
            Target("claims", f"{_RESOURCE_API}/resourceclaims", prefix=prefix),
        ]
        if self._orders.removed_devices:
            targets.append(Target("slices", f"{_RESOURCE_API}/resourceslices"))
        return targets

    # The run

    def run(self, started_at: float) -> WorkerReport:
        """Send and follow everything that is due from that moment on; return when it has drained."""
        assert self._wire is not None  # `prepare` came first
        tracker = Tracker(
            self._orders, started_at=started_at, worker=self._place.index, on_stage=self._meter.stage
        )
        for _, _, feed in self._watches:
            feed.attach(tracker)
        self._sender = sender = Sender(
            self._orders,
            slots=self._slots,
            wire=self._wire,
            pods=self._pods,
            tracker=tracker,
            clock=self._clock,
            meter=self._meter,
            failed=self._broke,
        )
        if self._interrupted.is_set():
            sender.stopping.set()
        _spare_the_collector()
        self._interrupted.wait(max(0.0, started_at - self._clock()))
        cpu = _cpu_seconds()
        helpers = [
            gevent.spawn(sender.delete_loop),
            gevent.spawn(self._tell_each_second, tracker, started_at),
        ]
        for helper in helpers:
            helper.link_exception(self._failed)
        try:
            self._send_all(sender, started_at)
            stopped_at, cpu = self._clock(), _cpu_seconds() - cpu
            self._draining = True
            self._drain(sender, tracker)
        finally:
            gevent.killall(helpers)
            sender.abandon()
            self.close()
        return self._report(tracker, sender, started_at, stopped_at, cpu)

    def distrust(self, fault: str) -> None:
        """Note a reason not to trust this worker's numbers."""
        if fault not in self._faults:
            self._faults.append(fault)

    def interrupt(self) -> None:
        """No more arrivals; drain for a few seconds only, and report."""
        self._interrupted.set()
        if self._sender is not None:
            self._sender.stopping.set()

    def _send_all(self, sender: Sender, started_at: float) -> None:
        orders, place = self._orders, self._place
        try:
            sender.send_all(
                arrivals.schedule(orders, started_at=started_at, worker=place.index, workers=place.count)
            )
        except Exception as error:
            _log.exception("arrivals ended by an error")
            self.distrust(f"arrivals ended by an error: {type(error).__name__}: {error}")

    def _drain(self, sender: Sender, tracker: Tracker) -> None:
        """Wait until nothing is under way or the drain's time is over."""
        began = self._clock()
        while sender.creating or tracker.open_pods() or tracker.lingering_claims():
            limit = self._orders.drain_seconds
            if self._interrupted.is_set():
                limit = min(limit, SHORT_DRAIN)
            if self._clock() - began >= limit:
                return
            gevent.sleep(0.05)

    def _report(
        self, tracker: Tracker, sender: Sender, started_at: float, stopped_at: float, cpu: float
    ) -> WorkerReport:
        at = self._clock()
        last_arrival_at = sender.last_arrival_at or stopped_at
        findings = tracker.finish(at)
        self._tell(tracker.snapshot(at, "done", 0.0))
        report = findings.report(
            seconds=max(0.0, stopped_at - started_at),
            cpu_seconds=cpu,
            started_at=started_at,
            last_arrival_at=last_arrival_at,
            drained_at=at,
            flow=self._flow,
            faults=self._faults,
            retry_after=dict(sender.retry_after),
        )
        return report.model_copy(update={"requests": [*report.requests, *self._own_requests()]})

    def _own_requests(self) -> list[Requests]:
        """What the tracker doesn't see: probes, lists and watches."""
        verbs = sorted({verb for verb, _ in self._requests})
        return [
            Requests(verb=verb, by_code={code: n for (v, code), n in self._requests.items() if v == verb})
            for verb in verbs
        ]

    # Beside it

    def _tell_each_second(self, tracker: Tracker, started_at: float) -> None:
        while True:
            now = self._clock()
            elapsed = now - started_at
            rate = 0.0
            phase = "drain"
            if not self._draining:
                rate = arrivals.rate_at(self._orders.segments, elapsed) / self._place.count
                phase = arrivals.windows_at(self._orders.segments, elapsed)[-1]
            self._tell(tracker.snapshot(now, phase, rate))
            gevent.sleep(1.0 - (self._clock() - started_at) % 1.0)

    def close(self) -> None:
        """Close connections and watches; a watch that is away by now is a fault."""
        for target, watch, _ in self._watches:
            if watch.away_since is not None:
                self.distrust(
                    f"watch on {target.kind}: away for the last {self._clock() - watch.away_since:.1f} s"
                )
            watch.stop()
        self._watches.clear()
        if self._wire is not None:
            self._wire.close()

    def _failed(self, greenlet: gevent.Greenlet) -> None:
        self._broke(greenlet.exception)

    def _broke(self, error: Exception) -> None:
        _log.error("an error in the generator", exc_info=error)
        self.distrust(f"an error in the generator: {type(error).__name__}: {error}")


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _spare_the_collector() -> None:
    """Don't look again and again through what lives for the whole run: that makes sends late."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
