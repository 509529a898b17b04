"""A gRPC server on a unix socket in a directory that the kubelet watches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from fake_driver.errors import StartError
from fake_driver.files import ShortPath

_WORKERS = 32  # threads are made on demand; each open health stream holds one

Register = Callable[[Any], None]


class SocketServer:
    """Serves some gRPC services on one socket file; can be started and stopped again and again."""

    def __init__(self, path: Path, services: Sequence[Register]) -> None:
        self.path = path
        self._services = services
        self._server: Any = None
        self._short: ShortPath | None = None
        self._inode = 0
        self._wanted = False

    def start(self) -> None:
        """Create the socket and serve.

        Raises:
            StartError: the socket can't be created; `ensure` tries again.
        """
        self._wanted = True
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.unlink(missing_ok=True)  # of an instance that died
            self._short = ShortPath(self.path)
            self._server = grpc.server(ThreadPoolExecutor(_WORKERS, thread_name_prefix=self.path.name))
            for register in self._services:
                register(self._server)
            self._server.add_insecure_port(f"unix:{self._short.path}")
            self.path.chmod(0o600)
            self._inode = self.path.stat().st_ino
            self._server.start()
        except (OSError, RuntimeError) as error:
            self._end(0)
            raise StartError(f"{self.path}: can't serve there: {error}") from None

    @property
    def running(self) -> bool:
        """Whether it's meant to serve."""
        return self._wanted

    def ensure(self) -> None:
        """Serve on a new socket if somebody removed the old one.

        Raises:
            StartError: as `start`.
        """
        if self._wanted and not self.path.exists():
            self._end(0)
            self.start()

    def stop(self, grace: float) -> None:
        """Remove the socket, let calls end for up to `grace` seconds, then end them."""
        self._wanted = False
        self._end(grace)

    def _end(self, grace: float) -> None:
        if self._server is not None:
            with contextlib.suppress(OSError):  # somebody removed it, or its folder
                if self.path.stat().st_ino == self._inode:
                    self.path.unlink()
            self._server.stop(grace).wait()
            self._server = None
        if self._short is not None:
            self._short.close()
            self._short = None
