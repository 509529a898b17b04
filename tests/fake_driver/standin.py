"""A stand-in for the API server: ResourceSlices, ResourceClaims and Nodes with resourceVersion and watch.

It keeps objects as they are and checks only what the tests need; the real one is covered elsewhere.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import socket
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

Object = dict[str, Any]
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


class ApiServerStandin:
    """Objects by path; `url` is where they are served."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._versions = itertools.count(1)
        self._version = 0
        self._objects: dict[str, Object] = {}
        self._events: list[tuple[int, str, str, Object]] = []  # version, type, path, object
        self._stopped = False
        self.requests: list[tuple[str, str, bool]] = []  # method, path, dry run
        self.reject: dict[str, Any] = {}  # "device": refuse slices with that device, "all": with a status
        self.drop_taints = False  # like an API server with the feature off
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.standin = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()

    def put(self, path: str, body: Object) -> Object:
        """Create or replace an object, as another client would."""
        with self._changed:
            known = self._objects.get(path)
            stored = copy.deepcopy(body)
            metadata = stored.setdefault("metadata", {})
            metadata.setdefault("name", path.rpartition("/")[2])
            metadata.setdefault("uid", str(uuid.uuid4()))
            self._version = next(self._versions)
            metadata["resourceVersion"] = str(self._version)
            if self.drop_taints:
                for device in stored.get("spec", {}).get("devices", []):
                    device.pop("taints", None)
            self._objects[path] = stored
            self._events.append((self._version, "MODIFIED" if known else "ADDED", path, stored))
            self._changed.notify_all()
            return copy.deepcopy(stored)

    def delete(self, path: str) -> bool:
        with self._changed:
            gone = self._objects.pop(path, None)
            if gone is None:
                return False
            self._version = next(self._versions)
            self._events.append((self._version, "DELETED", path, gone))
            self._changed.notify_all()
            return True

    def get(self, path: str) -> Object | None:
        with self._changed:
            return copy.deepcopy(self._objects.get(path))

    def slices(self) -> list[Object]:
        """All ResourceSlices, by name."""
        with self._changed:
            found = [(path, value) for path, value in self._objects.items() if path.startswith(SLICES)]
            return [copy.deepcopy(value) for _, value in sorted(found)]

    def node(self, name: str) -> Object:
        return self.put(f"/api/v1/nodes/{name}", {"metadata": {"name": name}})

    def writes(self) -> list[tuple[str, str, bool]]:
        with self._changed:
            return [request for request in self.requests if request[0] != "GET"]

    # What the handler calls.

    def handle(
        self, method: str, path: str, query: dict[str, str], body: Object | None
    ) -> tuple[int, Object]:
        dry_run = query.get("dryRun") == "All"
        with self._changed:
            self.requests.append((method, path, dry_run))
            if method == "GET" and path == SLICES:
                items = [value for value in self.slices() if _selected(value, query)]
                return 200, {"items": items, "metadata": {"resourceVersion": str(self._version)}}
            if method == "GET":
                found = self.get(path)
                return (200, found) if found else (404, {"message": f"{path} not found"})
            if method == "DELETE":
                return (200, {}) if self.delete(path) else (404, {"message": f"{path} not found"})
            assert body is not None
            if refusal := self._refusal(body):
                return refusal
            if method == "PUT":
                known = self._objects.get(path)
                if known is None:
                    return 404, {"message": f"{path} not found"}
                if known["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
                    return 409, {"message": "the object has been modified"}
                return (200, body) if dry_run else (200, self.put(path, body))
            name = body["metadata"]["generateName"] + uuid.uuid4().hex[:5]
            created = copy.deepcopy(body)
            created["metadata"]["name"] = name
            return (201, created) if dry_run else (201, self.put(f"{path}/{name}", created))

    def _refusal(self, body: Object) -> tuple[int, Object] | None:
        if "all" in self.reject:
            return self.reject["all"], {"message": "refused by the test"}
        names = [device["name"] for device in body["spec"].get("devices", [])]
        if self.reject.get("device") in names:
            return 422, {"message": f"device {self.reject['device']} is invalid"}
        return None

    def events_after(self, seen: int, query: dict[str, str]) -> list[tuple[int, Object]] | None:
        """Wait for slice events after version `seen`; None once the server stops."""
        with self._changed:
            while not self._stopped:
                fresh = [
                    (version, {"type": type_, "object": value})
                    for version, type_, path, value in self._events
                    if version > seen and path.startswith(SLICES) and _selected(value, query)
                ]
                if fresh:
                    return fresh
                self._changed.wait()
        return None


def _selected(value: Object, query: dict[str, str]) -> bool:
    wanted = dict(part.split("=", 1) for part in query.get("fieldSelector", "").split(",") if part)
    spec = value["spec"]
    return all(
        {"spec.driver": spec["driver"], "spec.nodeName": spec.get("nodeName")}[key] == expected
        for key, expected in wanted.items()
    )


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    standin: ApiServerStandin

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._open: list[socket.socket] = []

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.append(request)
        super().process_request(request, client_address)

    def hang_up(self) -> None:
        """End idle connections; clients keep theirs open."""
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        if query.get("watch"):
            self._watch(query)
            return
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        status, value = self.server.standin.handle(self.command, parts.path, query, body)
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = _serve

    def _watch(self, query: dict[str, str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        seen = int(query["resourceVersion"])
        while (events := self.server.standin.events_after(seen, query)) is not None:
            for version, event in events:
                try:
                    line = json.dumps(event).encode() + b"\n"
                    self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                    self.wfile.flush()
                except OSError:
                    return  # the client has gone
                seen = version

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""
