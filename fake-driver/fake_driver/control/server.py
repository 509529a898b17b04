"""The control endpoint: HTTP with JSON, `POST /<operation>`, on a unix socket, a TCP port or both.

A request is the body or, if there is none, the query's `request`.
"""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fake_driver.control.config import ControlConfig
from fake_driver.control.listeners import TcpServer, UnixServer
from fake_driver.control.token import check_token_file
from fake_driver.errors import ConfigError, StartError
from fake_driver.files import ShortPath
from fake_driver.strict import Strict, validate

Operation = tuple[type[Strict], Callable[[Any], Any]]


class ControlServer:
    """Serves operations by name: on a socket for its owner, on a port for holders of the token."""

    def __init__(
        self,
        config: ControlConfig,
        operations: Mapping[str, Operation],
        refusals: tuple[type[Exception], ...],
    ) -> None:
        self._config = config
        self._operations = operations
        self._refusals: tuple[type[Exception], ...] = (ConfigError, *refusals)
        self._serving: list[tuple[socketserver.BaseServer, threading.Thread]] = []
        self.ready = threading.Event()
        """Whether `GET /readyz` on the port says yes; its answer needs no token."""
        self.address: tuple[str, int] | None = None
        """Where the port is, once started."""

    def start(self) -> None:
        """Listen, and serve in threads.

        Raises:
            ConfigError: the token can't be used.
            StartError: the socket can't be created, or the port not be had.
        """
        if self._config.socket is not None:
            self._serve(self._unix(self._config.socket))
        if self._config.port is not None and self._config.token_file is not None:
            check_token_file(self._config.token_file)
            self._serve(self._tcp(self._config.port, self._config.token_file))

    def stop(self) -> None:
        """Answer what is being asked, then stop listening."""
        for server, thread in self._serving:
            server.shutdown()
            thread.join()
            server.server_close()
        if self._serving and self._config.socket is not None:
            self._config.socket.unlink(missing_ok=True)
        self._serving.clear()

    def _serve(self, server: socketserver.BaseServer) -> None:
        thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="control", daemon=True
        )
        thread.start()
        self._serving.append((server, thread))

    def _unix(self, path: Path) -> UnixServer:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            with ShortPath(path) as short:
                return UnixServer(short.path, self._answer)
        except OSError as error:
            raise StartError(f"{path}: can't serve the control endpoint there: {error.strerror}") from None

    def _tcp(self, port: int, token_file: Path) -> TcpServer:
        where = (self._config.address, port)
        try:
            server = TcpServer(where, self._answer, token_file, self.ready.is_set)
        except OSError as error:
            raise StartError(
                f"{where[0]} port {port}: can't serve the control endpoint there: {error.strerror}"
            ) from None
        self.address = (where[0], server.port)
        return server

    def _answer(self, name: str, body: bytes) -> tuple[int, Any]:
        if name not in self._operations:
            return 404, {"error": f"no operation {name!r}; expected one of {', '.join(self._operations)}"}
        model, operation = self._operations[name]
        try:
            data = json.loads(body or b"{}")
        except ValueError as error:
            return 400, {"error": f"{name}: expected JSON: {error}"}
        try:
            return 200, {"result": _plain(operation(validate(model, data, name)))}
        except self._refusals as error:
            return 400, {"error": str(error)}


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return value
