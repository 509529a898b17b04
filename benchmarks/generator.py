"""The load generator against a server that does nothing: `python -m benchmarks.generator`.

Offers 500 creates a second for half a minute with the generator on one core, and prints how late it sent and
what CPU it took. The null server has a process and, where there is one, a core of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import yaml

from load.histogram import LatencyHistogram
from load.model import Cause, Orders, PodKind, Segment, WorkerReport

RATE = 500.0
SECONDS = 30.0
LATENESS_TARGET = 0.020
CPU_TARGET = 0.25e-3
_FLOW = "null-server"
_POD = {
    "spec": {
        "containers": [
            {"name": "main", "image": "none.invalid/none", "resources": {"claims": [{"name": "claim-0"}]}}
        ],
        "resourceClaims": [{"name": "claim-0", "resourceClaimTemplateName": "plain-claim"}],
    }
}


def main() -> None:
    """Run the generator and print its figures beside their targets."""
    parser = argparse.ArgumentParser(description="The load generator against a server that does nothing.")
    parser.add_argument("--rate", type=float, default=RATE, help="offered requests/s")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, null_server() as port:
        before, started = psutil.cpu_times(), time.monotonic()
        report = generate(Path(folder), port, options.rate, options.seconds)
        busy = (_busy(psutil.cpu_times()) - _busy(before)) / (time.monotonic() - started)
    requests = sum(sum(entry.by_code.values()) for entry in report.requests if entry.verb == "create")
    lateness = LatencyHistogram.decode(report.lateness.histogram)
    p50, p99 = (quantile.seconds for q in (0.5, 0.99) if (quantile := lateness.quantile(q)) is not None)
    print(f"{'figure':<24} {'measured':>12} {'target':>12}")
    _print("offered", report.intended / report.seconds, options.rate, "/s")
    _print("sent and answered", requests / report.seconds, options.rate, "/s")
    _print("send lateness p50", p50 * 1e3, None, "ms")
    _print("send lateness p99", p99 * 1e3, LATENESS_TARGET * 1e3, "ms")
    _print("CPU per request", report.cpu_seconds / requests * 1e3, CPU_TARGET * 1e3, "ms")
    _print("all CPU of the machine", busy, None, "cores")
    for cause, number in report.causes.items():
        if cause is not Cause.NO_CLAIM:  # the null server makes none
            print(f"{cause}: {number} pods")
    for fault in report.faults:
        print(f"fault: {fault}")


def _print(name: str, measured: float, target: float | None, unit: str) -> None:
    wanted = "" if target is None else f"{target:>8.2f} {unit}"
    print(f"{name:<24} {measured:>8.2f} {unit:<5} {wanted}")


def _busy(times: Any) -> float:
    """Seconds that all cores together have worked; what exceeds generator and server is other people's."""
    return float(sum(times) - times.idle - times.iowait)


def generate(folder: Path, port: int, rate: float, seconds: float) -> WorkerReport:
    """Let the generator offer so many creates a second to the server at that port, pinned to one core."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(_kubeconfig(port)))
    orders = Orders(
        run_id="bench",
        seed=1,
        sender_kubeconfig=kubeconfig,
        observer_kubeconfig=kubeconfig,
        expected_flow_schema_uid=_FLOW,
        exempt_uids=[],
        observer_flow_schema_uid=_FLOW,
        kinds=[PodKind(name="template", weight=1, manifest=_POD, claims=1, namespaces=["bench"])],
        segments=[Segment(seconds=seconds, start=rate, end=rate)],
        max_in_flight=1000,  # a slow server must not look like a slow generator
        drain_seconds=0.5,
    )
    (folder / "orders.json").write_text(orders.model_dump_json())
    subprocess.run(
        [sys.executable, "-m", "load.generator", str(folder / "orders.json"), "--loglevel", "WARNING"],
        check=True,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # as the load command starts it
        preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    )
    return WorkerReport.model_validate_json((folder / "generator.json").read_bytes())


def _kubeconfig(port: int) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "null",
        "clusters": [{"name": "null", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "null", "user": {}}],
        "contexts": [{"name": "null", "context": {"cluster": "null", "user": "null"}}],
    }


# The null server


@contextmanager
def null_server() -> Iterator[int]:
    """A server in a process of its own that answers everything at once; yields its port on loopback."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.terminate()
        process.join()


def _serve(pipe: Connection) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[-1]})
    asyncio.run(_listen(pipe))


async def _listen(pipe: Connection) -> None:
    server = await asyncio.get_running_loop().create_server(_Null, "127.0.0.1", 0)
    pipe.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _answer(status: str, body: object) -> bytes:
    """With the headers that an API server sends."""
    text = json.dumps(body)
    lines = [
        f"HTTP/1.1 {status}",
        f"Audit-Id: {uuid.UUID(int=0)}",
        "Cache-Control: no-cache, private",
        "Content-Type: application/json",
        f"X-Kubernetes-Pf-Flowschema-Uid: {_FLOW}",
        f"X-Kubernetes-Pf-Prioritylevel-Uid: {_FLOW}",
        "Date: Thu, 01 Jan 1970 00:00:00 GMT",
        f"Content-Length: {len(text)}",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n" + text).encode()


class _Null(asyncio.Protocol):
    """Says 201 to every POST, an empty list to every GET, and nothing more to a watch."""

    _CREATED = _answer("201 Created", {"metadata": {"managedFields": "." * 1000}})
    _LIST = _answer("200 OK", {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": []})
    _WATCH = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"

    def __init__(self) -> None:
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the other end."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer each whole request."""
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            head, _, rest = self._buffer.partition(b"\r\n\r\n")
            _, _, length = head.lower().partition(b"content-length: ")
            size = int(length.split(b"\r\n")[0] or 0)
            if len(rest) < size:
                return
            self._buffer = rest[size:]
            assert self._transport is not None
            self._transport.write(self._reply(head))

    def _reply(self, head: bytes) -> bytes:
        if head.startswith(b"POST"):
            return self._CREATED
        return self._WATCH if b"watch=true" in head else self._LIST


if __name__ == "__main__":
    main()
