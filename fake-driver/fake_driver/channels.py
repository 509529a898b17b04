"""gRPC channels to unix sockets, however deep these lie."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

from fake_driver.files import ShortPath

# gRPC shares connections between channels of one address, also with one that was closed just now; an alias
# may name another socket by then: https://grpc.github.io/grpc/core/group__grpc__arg__keys.html
_CONNECTION_OF_ITS_OWN = ("grpc.use_local_subchannel_pool", 1)


@contextmanager
def unix_channel(path: Path) -> Iterator[grpc.Channel]:
    """A channel to the socket file at `path`, over a connection of its own.

    Raises:
        OSError: the socket's folder can't be opened.
    """
    with (
        ShortPath(path) as short,
        grpc.insecure_channel(f"unix:{short.path}", [_CONNECTION_OF_ITS_OWN]) as channel,
    ):
        yield channel
