"""What can be said over a worker's connection, and by whom."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from cryptography.fernet import Fernet

from load.crew.channel import Channel, Lost, Refused, Side

KEY = Fernet(Fernet.generate_key())


class Pair:
    """Both sides, with the raw sockets for who listens or lies in between."""

    def __init__(self, key_of_worker: Fernet = KEY) -> None:
        self.here, self.there = _connected()
        self.master = Channel(self.here, KEY, Side.MASTER)
        self.worker = Channel(self.there, key_of_worker, Side.WORKER)
        greeting = threading.Thread(target=self.worker.greet, args=(5,))
        greeting.start()
        self.master.greet(60)
        greeting.join(60)

    def close(self) -> None:
        self.master.close()
        self.worker.close()


def _connected() -> tuple[socket.socket, socket.socket]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        there = socket.create_connection(server.getsockname())
        here, _ = server.accept()
    return here, there


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def test_both_sides_hear_each_other_in_order(pair: Pair) -> None:
    pair.worker.send({"name": "alpha"})
    pair.worker.send({"n": 2})
    pair.master.send({"welcome": "alpha"})
    pair.master.send({"large": "x" * 300_000})

    assert pair.master.receive(60) == {"name": "alpha"}
    assert pair.master.receive(60) == {"n": 2}
    assert pair.worker.receive(60) == {"welcome": "alpha"}
    heard = pair.worker.receive(60)
    assert heard is not None
    assert len(heard["large"]) == 300_000
    assert pair.worker.receive(0.01) is None


def test_who_has_not_shown_the_key_is_not_listened_to_for_long(pair: Pair) -> None:
    """Whoever reaches the port could fill the memory otherwise."""
    pair.there.sendall(b"x" * 200_000)
    with pytest.raises(Lost, match="what it says has no end"):
        pair.master.receive(60)
    assert len(pair.master._buffer) < 100_000


def test_nothing_is_said_in_clear(pair: Pair) -> None:
    pair.master.send({"token": "tell-nobody"})

    assert b"tell-nobody" not in pair.there.recv(65536)


def test_another_key_is_found_out_and_the_reason_said() -> None:
    pair = Pair(key_of_worker=Fernet(Fernet.generate_key()))
    pair.worker.send({"name": "stranger"})

    with pytest.raises(Lost, match="its key is another one"):
        pair.master.receive(60)
    pair.master.refuse("both need the same --key")

    with pytest.raises(Refused, match="both need the same --key"):
        pair.worker.receive(60)
    pair.close()


def test_a_line_that_is_said_again_is_no_line(pair: Pair) -> None:
    pair.master.send({"over": "yes"})
    line = pair.there.recv(65536)
    pair.here.sendall(line + line)

    assert pair.worker.receive(60) == {"over": "yes"}
    with pytest.raises(Lost, match="said elsewhere, or before"):
        pair.worker.receive(60)


def test_a_line_of_another_connection_is_no_line(pair: Pair) -> None:
    other = Pair()
    other.master.send({"over": "yes"})
    pair.here.sendall(other.there.recv(65536))

    with pytest.raises(Lost, match="said elsewhere"):
        pair.worker.receive(60)
    other.close()


def test_ones_own_line_sent_back_is_no_line(pair: Pair) -> None:
    pair.worker.send({"name": "alpha"})
    pair.here.sendall(pair.here.recv(65536))

    with pytest.raises(Lost, match="said elsewhere"):
        pair.worker.receive(60)


def test_the_end_of_a_connection_is_seen_at_once(pair: Pair) -> None:
    pair.master.close()

    with pytest.raises(Lost, match="closed the connection"):
        pair.worker.receive(60)


def test_who_is_no_harness_is_not_listened_to() -> None:
    here, there = _connected()
    there.sendall(b"GET / HTTP/1.1\r\n\r\n")
    channel = Channel(here, KEY, Side.MASTER)

    with pytest.raises(Lost, match="no dra-harness"):
        channel.greet(60)
    channel.close()
    there.close()
