"""The inventory of this machine's GPUs: what a look finds, what events add, and who is told of a change."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fake_driver.errors import ClaimError
from fake_driver.inventory.base import NodeInventory
from fake_driver.inventory.nvml.cdi import Roots, container_edits
from fake_driver.inventory.nvml.condition import Conditions
from fake_driver.inventory.nvml.config import NvmlConfig
from fake_driver.inventory.nvml.devices import NamedDevice, Place, Versions, devices_of
from fake_driver.inventory.nvml.events import EventSet, Xid
from fake_driver.inventory.nvml.library import Nvml, NvmlAbsent, NvmlError
from fake_driver.inventory.nvml.scan import GpuFacts, Scan, scan

log = logging.getLogger(__name__)

_EVENT_SECONDS = 0.5  # the longest wait for an event, and so for the end of the watch
_STOP_SECONDS = 5.0


class NvmlInventory:
    """The GPUs of the machine that the driver runs on.

    A GPU that was there once stays in the inventory until the driver starts anew: lost, it is tainted.
    Without NVML there are no devices, `problem` says why, and it is tried again.
    """

    def __init__(self, config: NvmlConfig, driver: str) -> None:
        self._config = config
        self._driver = driver
        self._roots = Roots(config.root, Path(config.driver_root))
        self._nvml = Nvml(lambda: config.library or self._roots.nvml())
        self._events = EventSet(self._nvml)
        self._lock = threading.Lock()  # of what follows; never held while NVML is asked
        self._known: dict[str, GpuFacts] = {}
        self._indices: dict[str, int] = {}
        self._named: tuple[NamedDevice, ...] = ()
        self._versions = Versions("", 0)
        self._conditions = Conditions()
        self._problems: tuple[str, ...] = ()
        self._current: NodeInventory | None = None
        self._changed: Callable[[], None] = lambda: None
        self._stopping = threading.Event()
        self._answered = time.monotonic()
        self._threads: list[threading.Thread] = []

    def for_node(self, node: str) -> NodeInventory:
        """The machine's devices as they are known now; the first call looks."""
        if self._current is None:
            self._look()
            self._update()
        assert self._current
        return self._current

    def start(self, changed: Callable[[], None]) -> None:
        """Watch the GPUs in a thread, and the thread's own progress in another."""
        self._changed = changed
        self._answered = time.monotonic()
        for target in (self._watch, self._supervise):
            thread = threading.Thread(target=target, name=f"nvml-{target.__name__.strip('_')}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End the watch, and the session with NVML unless that hangs."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(_STOP_SECONDS)
        if not any(thread.is_alive() for thread in self._threads):
            self._close()

    def _watch(self) -> None:
        due = time.monotonic() + self._config.check_seconds
        while not self._stopping.is_set():
            left = due - time.monotonic()
            if left <= 0 or self._hear(min(left, _EVENT_SECONDS)):
                self._look()
                due = time.monotonic() + self._config.check_seconds
            self._answered = time.monotonic()
            self._update()

    def _hear(self, seconds: float) -> bool:
        """Wait for an event and take note of it; says whether a look is called for."""
        if not self._events.is_open:
            self._stopping.wait(seconds)
            return False
        try:
            event = self._events.wait(seconds)
        except NvmlAbsent as error:
            log.warning("no events: %s", error)
            self._close()
            return True
        except NvmlError as error:
            log.warning("no events: %s", error)
            self._events.close()
            self._stopping.wait(seconds)  # NVML refuses at once, and would again
            return True
        if isinstance(event, Xid):
            log.warning("GPU %s: XID %d", event.gpu, event.code)
            with self._lock:
                self._conditions.note(event, self._config)
        return event is not None

    def _supervise(self) -> None:
        limit = self._config.deadline_seconds
        while not self._stopping.wait(min(1.0, limit / 4)):
            silent = limit if time.monotonic() - self._answered > limit else None
            with self._lock:
                before, self._conditions.silent_for = self._conditions.silent_for, silent
            if silent != before:
                log.warning("NVML %s", f"has not answered for {limit:g} s" if silent else "answers again")
                self._update()

    def _look(self) -> None:
        """Look at all GPUs, with a new session if there is none."""
        try:
            if not self._nvml.is_open:
                self._nvml.open()
            found = scan(self._nvml)
            self._events.listen_to(found.seen)
        except NvmlAbsent as error:
            self._close()
            with self._lock:
                self._conditions.lost = dict.fromkeys(self._known, str(error))
                self._problems = (str(error),)
        except NvmlError as error:
            with self._lock:
                self._conditions.unread = dict.fromkeys(self._known, str(error))
                self._problems = (str(error),)
        else:
            with self._lock:
                self._take(found)

    def _take(self, found: Scan) -> None:
        seen = {each.facts.uuid: each for each in found.seen}
        taken = {each.facts.minor for each in found.seen}
        # A GPU that was exchanged gives its name to its successor.
        missing = {
            uuid: gpu for uuid, gpu in self._known.items() if uuid not in seen and gpu.minor not in taken
        }
        before = (self._known, self._versions)
        self._known = missing | {uuid: each.facts for uuid, each in seen.items()}
        self._indices |= {uuid: each.index for uuid, each in seen.items()}
        self._versions = Versions(found.driver_version, found.cuda_version)
        state = self._conditions
        state.unread = {
            uuid: found.unread[self._indices[uuid]] for uuid in missing if self._indices[uuid] in found.unread
        }
        state.lost = {
            uuid: found.lost.get(self._indices[uuid], "NVML doesn't list it any more")
            for uuid in missing
            if uuid not in state.unread
        }
        state.ecc_errors |= {uuid: each.ecc_errors for uuid, each in seen.items()}
        state.deaf = {uuid: reason for uuid, reason in self._events.deaf.items() if uuid in seen}
        self._problems = tuple(_problems(found, {self._indices[uuid] for uuid in missing}))
        if (self._known, self._versions) != before:
            place = Place(self._config.root / "sys", self._config.numa)
            gpus = sorted(self._known.values(), key=lambda gpu: gpu.minor)
            self._named = tuple(each for gpu in gpus for each in devices_of(gpu, self._versions, place))

    def _update(self) -> None:
        """Make the inventory anew from what is known, and tell of it if it is another."""
        with self._lock:
            before = self._current
            self._current = NodeInventory(
                devices=tuple(self._device(each) for each in self._named),
                health={each.device["name"]: self._conditions.health(each) for each in self._named},
                edits=self._edits,
                problem="; ".join(self._problems),
            )
            is_news = self._current != before
        if is_news and not self._stopping.is_set():
            self._changed()

    def _device(self, named: NamedDevice) -> dict[str, Any]:
        informational = self._config.informational_taints
        taints = list(self._conditions.taints(named, self._driver, informational=informational))
        return named.device | ({"taints": taints} if taints else {})

    def _edits(self, device: str) -> dict[str, Any]:
        with self._lock:
            named, version = {each.device["name"]: each for each in self._named}, self._versions.driver
        if device not in named:
            raise ClaimError(f"device {device} doesn't exist")
        return container_edits(self._roots, named[device].gpu, named[device].mig, version)

    def _close(self) -> None:
        self._events.close()
        self._nvml.close()


def _problems(found: Scan, known: set[int]) -> Iterator[str]:
    """What a reader has to know who misses devices: known ones are shown as they are anyway."""
    for index, reason in found.lost.items():
        if index not in known:
            yield f"GPU {index} is lost: {reason}"
    for index, reason in found.unread.items():
        if index not in known:
            yield f"GPU {index} can't be read: {reason}"
    for each in found.seen:
        if each.facts.mig_enabled and not each.facts.mig:
            yield f"GPU {each.index} is in MIG mode and has no MIG devices"
    if not found.seen and not found.lost and not found.unread:
        yield "NVML lists no GPU"
