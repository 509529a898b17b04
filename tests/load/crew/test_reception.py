"""Who is let in, who is missing, and who is told why not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from cryptography.fernet import Fernet

from harness.errors import EnvironmentBlocked, ExitCode, UsageError
from harness.waiting import wait_until
from load.crew import service
from load.crew.channel import Channel, Side
from load.crew.reception import Bind, Reception
from load.crew.service import Master, serve
from load.source import harness_version
from tests.support.ports import two_free_ports

KEY = Fernet(Fernet.generate_key())


@dataclass
class Run:
    """A reception for two workers, and what it said."""

    reception: Reception
    said: list[str] = field(default_factory=list)
    workers: list[threading.Thread] = field(default_factory=list)

    def worker(self, name: str, key: Fernet = KEY) -> list[ExitCode | Exception]:
        """Starts one; its outcome comes into the list."""
        ended: list[ExitCode | Exception] = []
        thread = threading.Thread(target=self._serve, args=(name, key, ended))
        self.workers.append(thread)
        thread.start()
        return ended

    def _serve(self, name: str, key: Fernet, ended: list[ExitCode | Exception]) -> None:
        master = Master("127.0.0.1", self.reception.bind.port)
        try:
            ended.append(serve(master, key, name, wait=10, say=lambda text: None))
        except Exception as error:
            ended.append(error)


@pytest.fixture
def run() -> Iterator[Run]:
    said: list[str] = []
    with Reception(Bind(port=two_free_ports()), KEY, 2, said.append) as reception:
        made = Run(reception, said)
        yield made
    for worker in made.workers:
        worker.join(20)


def test_two_workers_come_and_go_home_with_the_run(run: Run) -> None:
    first, second = run.worker("alpha"), run.worker("alpha")
    run.reception.wait(20)

    assert sorted(run.reception.names) == ["alpha (127.0.0.1)", "alpha-2 (127.0.0.1)"]
    run.reception.close()
    wait_until(lambda: first and second, 20, "both to end")
    assert first == second == [ExitCode.PASSED]


def test_a_missing_worker_is_missed_by_number_and_the_others_named(run: Run) -> None:
    run.worker("alpha")
    wait_until(lambda: run.reception.names, 20, "alpha")

    with pytest.raises(EnvironmentBlocked) as error:
        run.reception.wait(0.1)

    assert str(error.value) == "1 of 2 workers are missing after 0.1 s; here: alpha (127.0.0.1)"


def test_another_key_is_refused_on_both_sides(run: Run) -> None:
    outcome = run.worker("alpha", Fernet(Fernet.generate_key()))
    wait_until(lambda: outcome, 20, "the refusal")

    (error,) = outcome
    assert isinstance(error, UsageError)
    assert str(error).endswith("refused this worker: its key is another one: both need the same --key")
    with pytest.raises(EnvironmentBlocked, match=r"2 of 2 workers .* here: nobody; 127\.0\.0\.1 was refused"):
        run.reception.wait(0.1)


def test_another_version_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "harness_version", lambda: "0.0.9 (code 0123)")
    outcome = run.worker("alpha")
    wait_until(lambda: outcome, 20, "the refusal")

    assert "refused this worker: it runs dra-harness 0.0.9 (code 0123), the run 0.1.0" in str(outcome[0])


def test_one_too_many_is_refused(run: Run) -> None:
    run.worker("alpha")
    run.worker("beta")
    run.reception.wait(20)

    outcome = run.worker("gamma")
    wait_until(lambda: outcome, 20, "the refusal")

    assert "2 workers were expected, and are here" in str(outcome[0])


def test_who_left_is_named_and_may_come_back(run: Run) -> None:
    first = socket.create_connection(("127.0.0.1", run.reception.bind.reception))
    channel = Channel(first, KEY, Side.WORKER)
    channel.greet(5)
    channel.send({"name": "alpha", "version": harness_version()})
    wait_until(lambda: run.reception.names, 20, "alpha")
    channel.close()
    wait_until(lambda: not run.reception.names, 20, "alpha to be missed")

    with pytest.raises(EnvironmentBlocked, match="here: nobody; worker alpha left: it closed the connection"):
        run.reception.wait(0.1)

    run.worker("alpha")
    run.worker("beta")
    run.reception.wait(20)


def test_a_run_that_is_not_there_is_blocked() -> None:
    port = two_free_ports()
    with pytest.raises(
        EnvironmentBlocked, match=rf"no run at 127\.0\.0\.1:{port + 1} within 0\.2 s: .*refused"
    ):
        serve(Master("127.0.0.1", port), KEY, "alpha", wait=0.2, say=lambda text: None)


@pytest.mark.parametrize("taken", [0, 1])
def test_a_port_that_is_taken_is_known_before_anything_is_made(taken: int) -> None:
    port = two_free_ports()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port + taken))
        other.listen()
        with pytest.raises(UsageError, match=rf"--bind-port {port + taken}: .*in use"):
            Reception(Bind(port=port), KEY, 1, print)


@pytest.mark.parametrize(("address", "words"), [("host", "an IP address"), ("192.0.2.1", "192.0.2.1")])
def test_an_address_that_is_not_ours_is_refused(address: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Reception(Bind(address), KEY, 1, print)
