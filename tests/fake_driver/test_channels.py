"""Channels to unix sockets: real gRPC servers that say who they are."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from fake_driver.channels import unix_channel
from fake_driver.files import ShortPath

_METHOD = "/test.Names/Name"
_NAMES = ("a", "b")


def _serve(path: Path, name: str) -> grpc.Server:
    handler = grpc.unary_unary_rpc_method_handler(lambda request, context: name.encode())
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Names", {"Name": handler}),))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    return server


@pytest.fixture
def sockets(tmp_path: Path) -> Iterator[dict[str, Path]]:
    paths = {name: tmp_path / ("deep" * 30) / name / "socket" for name in _NAMES}
    with ExitStack() as stack:
        for name, path in paths.items():
            path.parent.mkdir(parents=True)
            server = _serve(Path(stack.enter_context(ShortPath(path)).path), name)
            stack.callback(server.stop, 0)
        yield paths


def _ask(path: Path) -> str:
    with unix_channel(path) as channel:
        name: Any = channel.unary_unary(_METHOD, bytes, bytes)
        return str(name(b"", timeout=10), "ascii")


def test_channels_that_follow_each_other_reach_their_own_socket(sockets: dict[str, Path]) -> None:
    """The alias of both is the same; over shared connections some in a hundred went to the other one."""
    asked = list(_NAMES) * 1000
    assert [_ask(sockets[name]) for name in asked] == asked


def test_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), unix_channel(tmp_path / "none" / "socket"):
        pass
