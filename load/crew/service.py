"""The worker's side: `dra-harness load-worker` finds the run, and runs a generator for each of its trials."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from cryptography.fernet import Fernet

from clusters import processes
from harness.errors import EnvironmentBlocked, ExitCode, UsageError
from harness.waiting import WaitTimeout, wait_until
from load.crew.channel import Channel, Lost, Refused, Side
from load.crew.parcel import Parcel
from load.crew.reception import GREET_WITHIN
from load.source import harness_version

_POLL = 0.2
_STOP_WITHIN = 15.0
"""Seconds that a generator has for its short drain once nobody waits for its report."""
_LOG = "generator.log"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Master:
    """Where the run is."""

    host: str
    port: int = 5557
    """Locust's; the reception is on the one after it."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port + 1}"


def serve(master: Master, key: Fernet, name: str, *, wait: float, say: Say) -> ExitCode:
    """Take part in one run, from its first trial to its end.

    Args:
        master: where the run is; it need not be there yet.
        key: of the run.
        name: what this worker is called.
        wait: seconds within which the run has to be there.
        say: told what a person wants to know.

    Returns:
        PASSED once the run is over, BLOCKED where it is gone without a word.

    Raises:
        UsageError: the run refuses this worker, and says why.
        EnvironmentBlocked: there is no run in time.
    """
    channel = _connect(master, key, wait)
    try:
        name = _introduce(channel, name)
        say(f"worker {name} takes part in the run at {master}")
        return _take_part(channel, master, name, say)
    except Refused as refusal:
        raise UsageError(f"the run at {master} refused this worker: {refusal}") from refusal
    except Lost as error:
        say(f"the run at {master} is gone: {error}")
        return ExitCode.BLOCKED
    finally:
        channel.close()


def _connect(master: Master, key: Fernet, wait: float) -> Channel:
    seen = ""

    def connected() -> Channel | None:
        nonlocal seen
        try:
            sock = socket.create_connection((master.host, master.port + 1), timeout=GREET_WITHIN)
        except OSError as error:
            seen = str(error)
            return None
        channel = Channel(sock, key, Side.WORKER)
        try:
            channel.greet(GREET_WITHIN)
        except Lost as error:
            seen = str(error)
            channel.close()
            return None
        return channel

    try:
        return wait_until(connected, wait, "the run")
    except WaitTimeout as error:
        raise EnvironmentBlocked(f"no run at {master} within {wait:g} s: {seen}") from error


def _introduce(channel: Channel, name: str) -> str:
    """Show the key and the version; returns what the run calls this worker."""
    channel.send({"name": name, "version": harness_version()})
    welcome = channel.receive(GREET_WITHIN)
    if welcome is None:
        raise Lost(f"it said nothing for {GREET_WITHIN:.0f} s")
    return str(welcome["welcome"])


def _take_part(channel: Channel, master: Master, name: str, say: Say) -> ExitCode:
    with contextlib.ExitStack() as stack:
        trial: _Trial | None = None
        while True:
            word = channel.receive(_POLL)
            if trial is not None and (ended := trial.ended()) is not None:
                trial = None
                stack.close()
                if ended:
                    channel.send({"failed": ended})
                    say(ended)
            if word is None:
                continue
            if over := word.get("over"):
                say(str(over))
                return ExitCode.PASSED
            stack.close()  # a trial that did not end
            parcel = Parcel.model_validate(word["trial"])
            say(f"trial {parcel.trial}")
            trial = stack.enter_context(_Trial(parcel, master, name))


class _Trial:
    """A generator at work on a trial; leaving it ends the generator and removes its files."""

    def __init__(self, parcel: Parcel, master: Master, name: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="dra-harness-worker-")  # it is 0700
        self._log = Path(self._folder.name) / _LOG
        orders = parcel.unpack(Path(self._folder.name))
        options = ["--worker", "--worker-name", name, "--end-with-parent"]
        options += ["--master-host", master.host, "--master-port", str(master.port)]
        with self._log.open("wb") as log:
            self._popen = subprocess.Popen(
                [sys.executable, "-P", "-m", "load.generator", str(orders), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd="/",
                start_new_session=True,
            )

    def __enter__(self) -> _Trial:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._popen.poll() is None:
            self._popen.send_signal(signal.SIGINT)
            try:
                self._popen.wait(_STOP_WITHIN)
            except subprocess.TimeoutExpired:
                self._popen.kill()
                self._popen.wait()
        self._folder.cleanup()

    def ended(self) -> str | None:
        """None while the generator is at work; then an empty text, or its error with the end of its log."""
        code = self._popen.poll()
        if code is None:
            return None
        return f"its generator ended with {code}: {processes.tail(self._log, 3)}" if code else ""


def default_name() -> str:
    """This machine's name; in a pod, the pod's."""
    return os.environ.get("HOSTNAME") or socket.gethostname()
