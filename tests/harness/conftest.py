from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.kube import (
    KubeClient,
)
from tests.harness.api_server import TOKEN, Handler, Server, write_config


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    started: list[tuple[http.server.ThreadingHTTPServer, threading.Thread]] = []

    def start(context: ssl.SSLContext | None = None) -> Server:
        state = Server()
        handler = type("BoundHandler", (Handler,), {"state": state})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        if context:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        state.url = f"http{'s' if context else ''}://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        started.append((server, thread))
        return state

    yield start
    for server, thread in started:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def server(serve: Callable[..., Server]) -> Server:
    return serve()


@pytest.fixture
def kube(server: Server, tmp_path: Path) -> Iterator[KubeClient]:
    client = KubeClient.from_kubeconfig(write_config(tmp_path / "config", server.url, {"token": TOKEN}))
    yield client
    client.connection.api.rest_client.pool_manager.clear()
