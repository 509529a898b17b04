"""CPU and memory of a cluster's processes and of the machine, sampled while a run goes on."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Self

import psutil

from clusters import processes
from load.books import Component
from load.result import Host

_PEAK_SECONDS = 10.0
_LOOK_AGAIN_SECONDS = 10.0


@dataclass(frozen=True)
class ProcessSample:
    """One component's process at a moment."""

    pid: int
    rss: int
    """Bytes."""
    cpu: float
    """Seconds since it began."""


@dataclass(frozen=True)
class Sample:
    """Everything at a moment. CPU times are seconds over all cores since the machine began."""

    at: float
    """Seconds, of time.time()."""
    busy: float
    steal: float
    total: float
    processes: Mapping[str, ProcessSample]
    """By component."""


class Sampler:
    """Takes a sample every `interval` seconds, in a thread, from `start` (or `with`) to `stop`.

    Of a cluster whose processes don't carry its mark only the machine is sampled.
    """

    def __init__(self, cluster_id: str, *, interval: float = 1.0) -> None:
        self._cluster_id = cluster_id
        self._interval = interval
        self._samples: list[Sample] = []
        self._processes: dict[str, psutil.Process] = {}
        self._looked_at = -_LOOK_AGAIN_SECONDS
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="usage", daemon=True)

    @property
    def samples(self) -> Sequence[Sample]:
        """All samples until now."""
        return tuple(self._samples)

    def start(self) -> None:
        """Take the first sample, and begin."""
        self.take()
        self._thread.start()

    def stop(self) -> None:
        """Take the last sample, and end."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
            self.take()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def take(self) -> Sample:
        """Take one sample now."""
        if time.monotonic() - self._looked_at >= _LOOK_AGAIN_SECONDS:
            self._look()
        found = {}
        for component, process in list(self._processes.items()):
            try:
                with process.oneshot():
                    cpu = process.cpu_times()
                    memory = process.memory_info().rss
                found[component] = ProcessSample(process.pid, memory, cpu.user + cpu.system)
            except psutil.Error:
                self._looked_at = -_LOOK_AGAIN_SECONDS  # it ended; another may be there for it
        sample = Sample(time.time(), *_machine(), found)
        self._samples.append(sample)
        return sample

    def _run(self) -> None:
        while not self._stopped.wait(self._interval):
            self.take()

    def _look(self) -> None:
        self._looked_at = time.monotonic()
        known = {component: process.pid for component, process in self._processes.items()}
        seen: dict[str, int] = {}
        for process in sorted(processes.find(self._cluster_id), key=lambda each: each.pid):
            program, _, _ = process.component.partition("/")
            if process.program != program and not process.program.startswith("python"):
                continue  # a wrapper around it, or a shim below it
            seen.setdefault(process.component, process.pid)
        for component, pid in seen.items():
            if known.get(component) != pid:
                with contextlib.suppress(psutil.Error):
                    self._processes[component] = psutil.Process(pid)
        for component in known.keys() - seen.keys():
            del self._processes[component]


def host(samples: Sequence[Sample], since: float, until: float) -> Host | None:
    """How busy the machine was between two moments of time.time(); None without two samples there."""
    within = _within(samples, since, until)
    if len(within) < 2:
        return None
    first, last = within[0], within[-1]
    return Host(
        cores=psutil.cpu_count() or 1,
        seconds=last.at - first.at,
        cpu=_share(first, last),
        cpu_peak=_peak(within),
        steal=(last.steal - first.steal) / ((last.total - first.total) or 1.0),
    )


def components(samples: Sequence[Sample], since: float, until: float) -> list[Component]:
    """What each component's process used between two moments of time.time(), by name."""
    within = _within(samples, since, until)
    names = sorted({name for sample in within for name in sample.processes})
    return [_component(name, [s.processes[name] for s in within if name in s.processes]) for name in names]


def memory(samples: Sequence[Sample], component: str) -> list[tuple[float, int]]:
    """The resident memory of a component over time: (time.time(), bytes)."""
    return [
        (sample.at, sample.processes[component].rss) for sample in samples if component in sample.processes
    ]


def _component(name: str, seen: Sequence[ProcessSample]) -> Component:
    cpu = 0.0
    restarts = 0
    for before, after in pairwise(seen):
        same = before.pid == after.pid
        restarts += not same
        cpu += after.cpu - before.cpu if same else after.cpu
    return Component(
        name=name,
        cpu_seconds=cpu,
        rss_start=seen[0].rss,
        rss_end=seen[-1].rss,
        rss_peak=max(each.rss for each in seen),
        restarts=restarts,
    )


def _within(samples: Sequence[Sample], since: float, until: float) -> list[Sample]:
    """The samples of a time, and the one before and after it: what happens between two belongs to both."""
    before = [sample for sample in samples if sample.at < since][-1:]
    inside = [sample for sample in samples if since <= sample.at <= until]
    after = [sample for sample in samples if sample.at > until][:1]
    return [*before, *inside, *after]


def _share(first: Sample, last: Sample) -> float:
    return min(1.0, (last.busy - first.busy) / ((last.total - first.total) or 1.0))


def _peak(samples: Sequence[Sample]) -> float:
    """The largest share over ten seconds; over all of them if they are fewer."""
    peak = 0.0
    start = 0
    for end, sample in enumerate(samples):
        while sample.at - samples[start].at > _PEAK_SECONDS and start + 1 < end:
            start += 1
        if sample.at - samples[start].at >= 0.9 * _PEAK_SECONDS:
            peak = max(peak, _share(samples[start], sample))
    return peak or _share(samples[0], samples[-1])


def _machine() -> tuple[float, float, float]:
    """Busy, stolen and all seconds of all cores; guests' time is in user already."""
    times = psutil.cpu_times()._asdict()
    steal = times.get("steal", 0.0)
    total = sum(value for name, value in times.items() if not name.startswith("guest"))
    idle = times["idle"] + times.get("iowait", 0.0)
    return total - idle - steal, steal, total
