"""A stand-in for an API server and its control plane: pods come, get a claim and a node, and go.

It speaks what the generator speaks (list, watch, create and delete of JSON over HTTP/1.1) and can be made to
misbehave. The real one is in the integration tests.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]

SENDER_FLOW = "uid-of-the-senders-flow-schema"
LEVEL = "uid-of-the-level"
_COLLECTIONS = {"pods": "pods", "resourceclaims": "claims", "resourceslices": "slices"}


@dataclass
class Refusal:
    """How to answer requests of one method instead of carrying them out; status 0 hangs up."""

    method: str
    status: int
    times: int
    headers: dict[str, str] = field(default_factory=dict)
    body: str = "Too many requests, please try again later.\n"
    content_type: str = "text/plain; charset=utf-8"


class ApiServer:
    """State of the stand-in. Everything in it belongs to its event loop; `call` reaches it from the test."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        self.flow = SENDER_FLOW
        self.delay = 0.0
        """Seconds before a create is answered."""
        self.refusals: list[Refusal] = []
        self.requests: Counter[tuple[str, int]] = Counter()
        """By method (WATCH and DRYRUN are ones) and status; 0 where it hung up."""
        self.pods: dict[str, Object] = {}
        self.created: list[str] = []
        """Names of all pods ever made."""
        self.created_at: list[float] = []
        """When they were, on the clock of `time.time()`."""
        self.authorizations: set[str] = set()
        self.accepted = 0
        """Connections that were ever made."""
        self.schedules = True
        """Whether pods get claims and nodes."""
        self.port = 0
        self._claims: dict[str, Object] = {}
        self._versions = itertools.count(1)
        self._version = 0
        self._oldest = 0
        self._events: list[tuple[int, str, str, Object]] = []
        self._connections: set[asyncio.StreamWriter] = set()
        self._watchers: dict[asyncio.StreamWriter, asyncio.Queue[tuple[str, str, Object] | None]] = {}
        self._mute: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    # For the test

    def start(self) -> None:
        """Listen, on the port of before if there was one."""
        if not self._thread.is_alive():
            self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    def stop(self) -> None:
        """Refuse and drop all connections, as a killed server does."""
        asyncio.run_coroutine_threadsafe(self._hang_up(), self._loop).result(10)

    def close(self) -> None:
        """End for good."""
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut_watches(self, *, forget: bool = False) -> None:
        """Break all watches; `forget`: what was before now can't be resumed from (410)."""

        def cut() -> None:
            if forget:
                self._version = next(self._versions)
                self._oldest = self._version
            for news in self._watchers.values():
                news.put_nowait(None)

        self.call(cut)

    def mute_watches(self) -> None:
        """Let those that are open say nothing more, as over a dead connection that nobody knows of."""
        self.call(lambda: self._mute.update(self._watchers))

    def chatter(self, times: int) -> None:
        """Say so many times that each pod is as it was."""

        def say() -> None:
            for pod in list(self.pods.values()) * times:
                self._emit("pods", "MODIFIED", pod)

        self.call(say)

    def hold(self, namespace: str, device: str) -> None:
        """Give a device to a claim of that namespace, which stays."""
        result = {"request": "d", "driver": "gpu.example", "pool": "node", "device": device}
        claim = {
            "metadata": {"name": "filler", "namespace": namespace, "uid": f"uid-{namespace}-filler"},
            "spec": {"devices": {"requests": [{"name": "d", "exactly": {"deviceClassName": "gpu"}}]}},
            "status": {
                "allocation": {"devices": {"results": [result]}},
                "reservedFor": [{"resource": "pods", "name": "filler"}],
            },
        }

        def add() -> None:
            self._claims[f"{namespace}/filler"] = claim
            self._emit("claims", "ADDED", claim)

        self.call(add)

    def call(self, function: Callable[[], object]) -> None:
        """Run a function in the loop."""

        async def run() -> None:
            function()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    # Connections

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _hang_up(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._connections:
            writer.transport.abort()
        for news in self._watchers.values():
            news.put_nowait(None)
        mine = asyncio.current_task()
        await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not mine))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        self.accepted += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                lines = head.split("\r\n")
                headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines[1:] if line)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                method, target, _ = lines[0].split(" ")
                self.authorizations.add(headers.get("authorization", ""))
                await self._answer(method, target, body, writer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self._connections.discard(writer)
            self._watchers.pop(writer, None)
            writer.transport.abort()

    async def _answer(self, method: str, target: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        url = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if query.get("watch") == "true":
            await self._watch(url.path, query, writer)
            return
        named = "DRYRUN" if query.get("dryRun") == "All" else method
        for refusal in self.refusals:
            if refusal.method == named and refusal.times > 0:
                refusal.times -= 1
                self.requests[named, refusal.status] += 1
                if not refusal.status:
                    raise ConnectionResetError
                self._write(writer, refusal.status, refusal.body, refusal.headers, refusal.content_type)
                return
        if named == "POST" and self.delay:
            await asyncio.sleep(self.delay)
        status, answer = self._carry_out(named, url.path, query, body)
        self.requests[named, status] += 1
        self._write(writer, status, json.dumps(answer))

    def _write(
        self,
        writer: asyncio.StreamWriter,
        status: int,
        body: str,
        headers: dict[str, str] | None = None,
        content_type: str = "application/json",
    ) -> None:
        lines = [
            f"HTTP/1.1 {status} Whatever",
            f"Content-Type: {content_type}",
            f"Content-Length: {len(body.encode())}",
            f"X-Kubernetes-PF-FlowSchema-UID: {self.flow}",
            f"X-Kubernetes-PF-PriorityLevel-UID: {LEVEL}",
            *(f"{key}: {value}" for key, value in (headers or {}).items()),
        ]
        writer.write(("\r\n".join(lines) + "\r\n\r\n" + body).encode())

    # Requests

    def _carry_out(self, method: str, path: str, query: dict[str, str], body: bytes) -> tuple[int, Object]:
        parts = path.strip("/").split("/")
        if method == "GET":
            items = [obj for obj in self._all(_COLLECTIONS[parts[-1]]) if _selected(obj, query)]
            return 200, {"kind": "List", "metadata": {"resourceVersion": str(self._version)}, "items": items}
        namespace = parts[3]
        if method == "DELETE":
            pod = self.pods.pop(f"{namespace}/{parts[-1]}", None)
            if pod is None:
                return 404, {"kind": "Status", "reason": "NotFound"}
            self._emit("pods", "DELETED", pod)
            self._loop.call_later(0.01, self._release, pod)
            return 200, {"kind": "PartialObjectMetadata"}
        pod = json.loads(body)
        if method == "POST":
            pod["metadata"] |= {"namespace": namespace, "uid": f"uid-{pod['metadata']['name']}"}
            self.created.append(pod["metadata"]["name"])
            self.created_at.append(time.time())
            self.pods[f"{namespace}/{pod['metadata']['name']}"] = pod
            self._emit("pods", "ADDED", pod)
            if self.schedules:
                self._loop.call_later(0.01, self._make_claim, pod)
        return 201, {"kind": "PartialObjectMetadata"}

    def _all(self, kind: str) -> list[Object]:
        return list({"pods": self.pods, "claims": self._claims, "slices": {}}[kind].values())

    async def _watch(self, path: str, query: dict[str, str], writer: asyncio.StreamWriter) -> None:
        kind = _COLLECTIONS[path.strip("/").split("/")[-1]]
        since = int(query["resourceVersion"])
        self.requests["WATCH", 200] += 1
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        if since < self._oldest:
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            writer.write(_chunk({"type": "ERROR", "object": status}) + b"0\r\n\r\n")
            await writer.drain()
            raise ConnectionResetError
        news: asyncio.Queue[tuple[str, str, Object] | None] = asyncio.Queue()
        for version, of, type_, obj in self._events:
            if version > since:
                news.put_nowait((of, type_, obj))
        self._watchers[writer] = news
        while (event := await news.get()) is not None:
            of, type_, obj = event
            if of == kind and _selected(obj, query) and writer not in self._mute:
                writer.write(_chunk({"type": type_, "object": obj}))
                await writer.drain()
        raise ConnectionResetError

    # The control plane

    def _emit(self, kind: str, type_: str, obj: Object) -> None:
        self._version = next(self._versions)
        obj["metadata"]["resourceVersion"] = str(self._version)
        kept = json.loads(json.dumps(obj))
        self._events.append((self._version, kind, type_, kept))
        for news in self._watchers.values():
            news.put_nowait((kind, type_, kept))

    def _make_claim(self, pod: Object) -> None:
        metadata = pod["metadata"]
        owner = {"kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        name = f"{metadata['name']}-claim"
        claim: Object = {
            "metadata": {
                "name": name,
                "namespace": metadata["namespace"],
                "uid": f"uid-{name}",
                "ownerReferences": [owner],
            },
            "spec": {"devices": {"requests": [{"name": "d", "exactly": {"deviceClassName": "gpu"}}]}},
        }
        self._claims[f"{metadata['namespace']}/{name}"] = claim
        self._emit("claims", "ADDED", claim)
        pod["status"] = {"resourceClaimStatuses": [{"name": "claim-0", "resourceClaimName": name}]}
        self._emit("pods", "MODIFIED", pod)
        self._loop.call_later(0.01, self._place, pod, claim)

    def _place(self, pod: Object, claim: Object) -> None:
        result = {"request": "d", "driver": "gpu.example", "pool": "node", "device": pod["metadata"]["uid"]}
        claim["status"] = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": pod["metadata"]["name"]}],
        }
        self._emit("claims", "MODIFIED", claim)
        pod["spec"]["nodeName"] = "node"
        self._emit("pods", "MODIFIED", pod)

    def _release(self, pod: Object) -> None:
        metadata = pod["metadata"]
        claim = self._claims.pop(f"{metadata['namespace']}/{metadata['name']}-claim", None)
        if claim is not None:
            claim["status"] = {}
            self._emit("claims", "MODIFIED", claim)
            self._emit("claims", "DELETED", claim)


def _chunk(event: Object) -> bytes:
    line = json.dumps(event).encode() + b"\n"
    return b"%x\r\n%b\r\n" % (len(line), line)


def _selected(obj: Object, query: dict[str, str]) -> bool:
    labels = obj["metadata"].get("labels", {})
    wanted = [pair.split("=") for pair in query.get("labelSelector", "").split(",") if pair]
    return all(labels.get(key) == value for key, value in wanted)


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[ApiServer]:
    """A stand-in that listens on loopback."""
    server = ApiServer(tls)
    server.start()
    try:
        yield server
    finally:
        server.close()
