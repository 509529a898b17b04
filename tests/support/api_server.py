"""An API server that says what a test wants it to: answers by path, over plain HTTP on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answers = Mapping[str, Any]
"""Method and path, such as `GET /version` -> a JSON value, a text, a status code that refuses, or status
and value."""


@contextmanager
def serve(
    answers: Answers,
    *,
    otherwise: Any = 404,
    log: list[str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Serve answers, and yield the address; queries don't count.

    Args:
        answers: by method and path.
        otherwise: the answer to whatever has none.
        log: gets the method and path of each request.
        headers: on every answer.
    """

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked = f"{self.command} {self.path.partition('?')[0]}"
            if log is not None:
                log.append(asked)
            found = answers.get(asked, otherwise)
            status, value = found if isinstance(found, tuple) else (200, found)
            if isinstance(found, int):
                status, value = found, {"message": f"refused with {found}"}
            body = (value if isinstance(value, str) else json.dumps(value)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            for name, text in (headers or {}).items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = _answer

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
