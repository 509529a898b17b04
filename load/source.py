"""Which code a generator runs: processes that share a load must share every rule of it."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
from pathlib import Path


@functools.cache
def code_digest() -> str:
    """SHA-256 of this room's Python files, names and contents, in hex."""
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def harness_version() -> str:
    """The release and the code itself: two checkouts of one release may differ."""
    return f"{importlib.metadata.version('dra-harness')} (code {code_digest()[:12]})"
