"""A record of every gRPC call that the kubelet made, also of those that are still running."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

_KEPT = 20_000


class Call(BaseModel):
    """One call. `time` is in Unix seconds; `seconds` and the outcome are missing while it runs."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    seq: int
    time: float
    node: str
    method: str
    service: str
    request: dict[str, Any] = {}
    response: dict[str, Any] | None = None
    error: str | None = None
    seconds: float | None = None

    def claim_uids(self) -> list[str]:
        """The UIDs of the claims that the call is about."""
        return [claim["uid"] for claim in self.request.get("claims", [])]


class CallLog:
    """The latest calls, oldest first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sequence = itertools.count(1)
        self._calls: deque[Call] = deque(maxlen=_KEPT)

    @contextmanager
    def record(self, node: str, service: str, method: str, request: Message) -> Iterator[Call]:
        """Record a call while the body handles it; the body sets the response."""
        call = Call(
            seq=next(self._sequence),
            time=time.time(),
            node=node,
            method=method,
            service=service,
            request=as_dict(request),
        )
        started = time.perf_counter()
        with self._lock:
            self._calls.append(call)
        try:
            yield call
        except Exception as error:
            call.error = str(error) or call.error or type(error).__name__
            raise
        finally:
            call.seconds = time.perf_counter() - started

    def find(
        self,
        *,
        node: str | None = None,
        method: str | None = None,
        claim_uid: str | None = None,
        after: int = 0,
    ) -> list[Call]:
        """The calls that match, with a sequence number above `after`."""
        with self._lock:
            calls = list(self._calls)
        return [
            call
            for call in calls
            if call.seq > after
            and node in (None, call.node)
            and method in (None, call.method)
            and (claim_uid is None or claim_uid in call.claim_uids())
        ]

    def clear(self) -> None:
        """Forget all calls; sequence numbers go on."""
        with self._lock:
            self._calls.clear()


def as_dict(message: Message) -> dict[str, Any]:
    """A message as plain values, with the field names of the .proto file."""
    return dict(MessageToDict(message, preserving_proto_field_name=True))


def abort(context: grpc.ServicerContext, call: Call, code: str, message: str) -> None:
    """End a call with a gRPC status, and say so in its record.

    Raises:
        Exception: always; gRPC's own.
    """
    call.error = f"{code}: {message}"
    context.abort(grpc.StatusCode[code], message)
