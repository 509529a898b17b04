"""`load-worker`, and the side of `load` that waits for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from cli.console import err
from harness.errors import UsageError
from harness.redaction import redact
from load.crew.key import default_path, ensure_key, read_key
from load.crew.reception import Bind, Reception
from load.crew.service import Master, default_name, serve
from load.ports import listening

PortOption = Annotated[
    int, typer.Option(min=1, max=65534, help="Port of Locust's master; the one after it is taken too.")
]
KeyOption = Annotated[
    Path | None,
    typer.Option(
        help="The key that a run and its workers share; made if it isn't there. Default: one a user."
    ),
]


def load_worker(
    master: Annotated[
        str, typer.Option(help="Address or name of the machine where `load` runs.")
    ] = "127.0.0.1",
    port: PortOption = 5557,
    key: Annotated[
        Path | None, typer.Option(help="Copy of the key that `load` names. Default: this user's own.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What reports call this worker; default the machine's name.")
    ] = None,
    wait: Annotated[float, typer.Option(min=1, help="Seconds within which the run has to be there.")] = 300.0,
) -> None:
    """Send a share of the load of a run that `load --expect-workers` leads, until it is over."""
    sealed = read_key(key or default_path())
    code = serve(Master(master, port), sealed, name or default_name(), wait=wait, say=_say)
    raise typer.Exit(code)


def reception(workers: int, bind: str, port: int, key: Path | None, say: Callable[[str], None]) -> Reception:
    """Listen for the workers of a run, and say how to start one.

    Raises:
        UsageError: the key can't be used, or the address can't be listened on.
    """
    place = key or default_path()
    where = Bind(bind, port)
    found = Reception(where, ensure_key(place), workers, say)
    host = "THIS-MACHINE" if where.everywhere else bind
    say(f"workers: dra-harness load-worker --master {host} --port {port} --key {place}")
    if not where.loopback:
        say(
            f"ports {port} and {port + 1} are open at {bind}: Locust's own traffic has neither password nor"
            " encryption, so let nobody but the workers reach them"
        )
    return found


def require_web_port(port: int) -> None:
    """See that Locust's web UI can listen: without its port Locust goes on without it.

    Raises:
        UsageError: it can't.
    """
    try:
        listening("127.0.0.1", port).close()
    except OSError as error:
        raise UsageError(f"--web {port}: {error.strerror}") from error


def _say(text: str) -> None:
    err.print(redact(text), markup=False, highlight=False, soft_wrap=True)
