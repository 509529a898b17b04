"""Files and sockets of the driver: atomic writes, and socket paths longer than the kernel's 107 bytes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_atomically(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Replace `path` in one step: readers see the old or the new content, also after a crash.

    Raises:
        OSError: the directory can't be made or written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # A leading dot: CDI readers and the kubelet's watcher take no notice of the unfinished file.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any, mode: int = 0o644) -> None:
    """Write `value` as indented JSON with `write_atomically`."""
    write_atomically(path, (json.dumps(value, indent=2) + "\n").encode(), mode)


class ShortPath:
    """An alias of a path that fits into a socket address, valid while this object is open.

    The directory is held open and named through `/proc/self/fd`, so its depth doesn't matter.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor: int | None = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.path = f"/proc/self/fd/{self._descriptor}/{path.name}"

    def close(self) -> None:
        """Let go of the directory; a server must have stopped by then, since it unlinks through the alias."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> ShortPath:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
