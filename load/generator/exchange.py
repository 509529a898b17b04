"""What goes over the wire: the lines of a request, and what came back for it."""

from __future__ import annotations

from typing import NamedTuple

from load.generator.access import Access
from load.model import Flow

JSON = "application/json"
BRIEF = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
"""Answers to create and delete carry the metadata only: less to send and to read."""


class Answer(NamedTuple):
    """What came back for one request."""

    status: int
    """HTTP status; 0 if there was no answer."""
    reason: str = ""
    """`reason` of the Status object; the exception's name where nothing answered."""
    message: str = ""
    apf: bool = False
    """Priority and fairness turned the request away itself."""
    retry_after: str = ""
    body: bytes = b""
    flow: Flow | None = None
    """Only where the answer was asked for with `send(..., want_flow=True)`."""


def head(access: Access, method: str, path: str, *, accept: str = JSON, length: int | None = None) -> bytes:
    """The lines of a request up to its body; `length` is the body's, None for no body."""
    host = f"[{access.host}]" if ":" in access.host else access.host
    lines = [
        f"{method} {access.base_path}{path} HTTP/1.1",
        f"Host: {host}:{access.port}",
        "User-Agent: dra-harness-load",
        f"Accept: {accept}",
    ]
    if access.authorization:
        lines.append(f"Authorization: {access.authorization}")
    if length is not None:
        lines += [f"Content-Type: {JSON}", f"Content-Length: {length}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
