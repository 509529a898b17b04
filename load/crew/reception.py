"""The run's side: lets workers in, knows who is there, hands out each trial's parcel, sends them home."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from cryptography.fernet import Fernet

from harness.errors import EnvironmentBlocked, UsageError
from harness.redaction import redact
from harness.waiting import WaitTimeout, wait_until
from load.crew.channel import Body, Channel, Lost, Refused, Side
from load.crew.parcel import Parcel
from load.ports import listening
from load.source import harness_version

GREET_WITHIN = 10.0
"""Seconds within which who connects has to show its key."""
_POLL = 0.5

Say = Callable[[str], None]


@dataclass(frozen=True)
class Bind:
    """Where a run listens for its workers: Locust's master on the port, the reception on the one after it."""

    address: str = "127.0.0.1"
    port: int = 5557

    @property
    def reception(self) -> int:
        """The reception's port."""
        return self.port + 1

    @property
    def loopback(self) -> bool:
        """Whether nobody from outside this machine gets there."""
        return ipaddress.ip_address(self.address).is_loopback

    @property
    def everywhere(self) -> bool:
        """Whether it is every address of this machine."""
        return ipaddress.ip_address(self.address).is_unspecified


@dataclass
class _Guest:
    """A worker that was let in."""

    name: str
    where: str
    channel: Channel


class Reception:
    """Listens from `__enter__` to `__exit__`, which ends the workers.

    Args:
        bind: where.
        key: of this run and its workers.
        expected: how many workers there are to be.
        say: told what a person wants to know; called from threads.

    Raises:
        UsageError: the address is none of this machine's, or a port is taken.
    """

    def __init__(self, bind: Bind, key: Fernet, expected: int, say: Say) -> None:
        self.bind = bind
        self.expected = expected
        self._key = key
        self._say = say
        self._lock = threading.Lock()
        self._guests: list[_Guest] = []
        self._incidents: list[str] = []
        """Who was refused or left."""
        self._open = True
        with _listening(bind.address, bind.port):
            pass  # Locust takes it later; that it can't is better known now
        self._server = _listening(bind.address, bind.reception)
        threading.Thread(target=self._accept, name="reception", daemon=True).start()

    def __enter__(self) -> Reception:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def wait(self, seconds: float) -> None:
        """Wait until all workers are there.

        Raises:
            EnvironmentBlocked: they aren't after so many seconds; says who is, and who left or was refused.
        """
        with contextlib.suppress(WaitTimeout):
            wait_until(lambda: len(self.names) >= self.expected, seconds, "workers")
            return
        here = ", ".join(self.names) or "nobody"
        missing = self.expected - len(self.names)
        if missing <= 0:
            return
        told = "".join(f"; {incident}" for incident in self._incidents)
        raise EnvironmentBlocked(
            f"{missing} of {self.expected} workers are missing after {seconds:g} s; here: {here}{told}"
        )

    @property
    def names(self) -> list[str]:
        """Workers that are there."""
        with self._lock:
            return [f"{guest.name} ({guest.where})" for guest in self._guests]

    def hand_out(self, parcel: Parcel) -> None:
        """Give every worker its parcel: each starts at once, and connects to Locust's master."""
        body = {"trial": parcel.model_dump(mode="json")}
        for guest in self._present():
            self._tell(guest, body)

    def close(self) -> None:
        """Send the workers home, and listen no more."""
        self._open = False
        self._server.close()
        for guest in self._present():
            self._tell(guest, {"over": "the run is over"})
            guest.channel.close()

    # In threads

    def _accept(self) -> None:
        while self._open:
            try:
                sock, address = self._server.accept()
            except TimeoutError:
                continue
            except OSError:
                return  # closed
            sock.settimeout(GREET_WITHIN)
            arguments = (sock, str(address[0]))
            threading.Thread(target=self._receive, args=arguments, name="guest", daemon=True).start()

    def _receive(self, sock: socket.socket, where: str) -> None:
        channel = Channel(sock, self._key, Side.MASTER)
        try:
            guest = self._admit(channel, where)
        except Refused as refusal:
            self._incident(f"{where} was refused: {refusal}")
            channel.refuse(str(refusal))
            channel.close()
            return
        except Lost as error:
            self._incident(f"somebody at {where} was not let in: {error}")
            channel.close()
            return
        self._say(f"worker {guest.name} ({guest.where}) is here: {len(self.names)} of {self.expected}")
        try:
            self._listen(guest)
        except (Lost, Refused) as error:
            if self._open:
                self._incident(f"worker {guest.name} left: {error}")
        finally:
            with self._lock:
                self._guests.remove(guest)
            channel.close()

    def _admit(self, channel: Channel, where: str) -> _Guest:
        channel.greet(GREET_WITHIN)
        try:
            hello = channel.receive(GREET_WITHIN)
        except Lost as error:
            raise Refused(f"{error}: both need the same --key") from error
        if hello is None:
            raise Lost(f"it did not show its key in {GREET_WITHIN:.0f} s")
        mine, theirs = harness_version(), hello.get("version")
        if theirs != mine:
            raise Refused(f"it runs dra-harness {theirs}, the run {mine}: both need the same")
        with self._lock:
            if len(self._guests) >= self.expected:
                raise Refused(f"{self.expected} workers were expected, and are here")
            guest = _Guest(self._unique(str(hello["name"])), where, channel)
            channel.send({"welcome": guest.name})
            self._guests.append(guest)
        return guest

    def _unique(self, name: str) -> str:
        taken = {guest.name for guest in self._guests}
        others = (f"{name}-{number}" for number in range(2, len(taken) + 3))
        return name if name not in taken else next(other for other in others if other not in taken)

    def _listen(self, guest: _Guest) -> None:
        while True:
            if (word := guest.channel.receive(_POLL)) is not None and word.get("failed"):
                self._incident(f"worker {guest.name}: {word['failed']}")

    def _incident(self, text: str) -> None:
        told = redact(text)
        self._incidents.append(told)
        self._say(told)

    def _present(self) -> list[_Guest]:
        with self._lock:
            return list(self._guests)

    def _tell(self, guest: _Guest, body: Body) -> None:
        with contextlib.suppress(Lost):  # its listener sees that too
            guest.channel.send(body)


def _listening(address: str, port: int) -> socket.socket:
    try:
        return listening(address, port)
    except ValueError as error:
        raise UsageError(f"--bind {address}: expected an IP address of this machine") from error
    except OSError as error:
        raise UsageError(f"--bind {address} --bind-port {port}: {error.strerror}") from error
