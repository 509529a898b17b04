"""The control endpoint: HTTP with JSON bodies over a unix socket, `POST /<operation>`."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fake_driver.errors import ConfigError, StartError
from fake_driver.files import ShortPath
from fake_driver.strict import Strict, validate

Operation = tuple[type[Strict], Callable[[Any], Any]]


class ControlServer:
    """Serves operations by name on a socket that only its owner can open."""

    def __init__(
        self, path: Path, operations: Mapping[str, Operation], refusals: tuple[type[Exception], ...]
    ) -> None:
        self._path = path
        self._operations = operations
        self._refusals: tuple[type[Exception], ...] = (ConfigError, *refusals)
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Create the socket and serve in threads.

        Raises:
            StartError: the socket can't be created.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.unlink(missing_ok=True)
            with ShortPath(self._path) as short:
                self._server = _Server(short.path, self._answer)
        except OSError as error:
            raise StartError(
                f"{self._path}: can't serve the control endpoint there: {error.strerror}"
            ) from None
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="control", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Answer what is being asked, then remove the socket."""
        if self._server and self._thread:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self._path.unlink(missing_ok=True)

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


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = False  # an answer under way is finished
    request_queue_size = 64

    def __init__(self, path: str, answer: Callable[[str, bytes], tuple[int, Any]]) -> None:
        self.answer = answer
        super().__init__(path, _Handler)

    def server_bind(self) -> None:
        """Bind, and close the socket to others before anybody can connect."""
        super().server_bind()
        Path(str(self.server_address)).chmod(0o600)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 5  # a client that says nothing must not hold up the end

    def do_POST(self) -> None:
        """Run one operation."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, value = self.server.answer(self.path.strip("/"), body)
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def address_string(self) -> str:
        """The peer; unix sockets have none."""
        return "unix"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the driver's own log has what matters."""
