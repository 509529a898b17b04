"""The prepared claims of one node on disk: survives the process, and is shared by two instances of it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fake_driver.errors import StartError
from fake_driver.files import write_json
from fake_driver.node.claims import PreparedClaim

VERSION = "v1"


class Checkpoint:
    """A versioned JSON file with a checksum, replaced as a whole."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "checkpoint.json"
        self._directory = directory
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._claims: dict[str, PreparedClaim] = {}

    @contextmanager
    def transaction(self) -> Iterator[dict[str, PreparedClaim]]:
        """The prepared claims by UID, exclusively; changes to the mapping are saved at the end.

        Nothing is saved when the body raises.

        Raises:
            StartError: the file is damaged or from another version.
            OSError: it can't be read or written.
        """
        with self._exclusive():
            claims = dict(self._load())
            yield claims
            if claims != self._claims:
                self._save(claims)

    def read(self) -> dict[str, PreparedClaim]:
        """A copy of the prepared claims by UID; raises like `transaction`."""
        with self._exclusive():
            return dict(self._load())

    def forget(self) -> None:
        """Remove the file."""
        with self._exclusive():
            self.path.unlink(missing_ok=True)

    def forget_if_empty(self) -> None:
        """Remove the file if it has no claims, which is the same to another process; raises like `read`."""
        with self._exclusive():
            if not self._load():
                self.path.unlink(missing_ok=True)

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        with self._lock:
            # The folder itself: a lock file would be left behind.
            descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)  # the other instance of a rolling update
                yield
            finally:
                os.close(descriptor)

    def _load(self) -> dict[str, PreparedClaim]:
        stamp = self._stamp()
        if stamp is None:
            self._claims = {}
        elif stamp != self._seen:
            self._claims = self._parse(self.path.read_bytes())
        self._seen = stamp
        return self._claims

    def _save(self, claims: dict[str, PreparedClaim]) -> None:
        data = {uid: claim.to_dict() for uid, claim in claims.items()}
        write_json(self.path, {"version": VERSION, "checksum": _checksum(data), "claims": data}, 0o600)
        self._claims = claims
        self._seen = self._stamp()

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _parse(self, content: bytes) -> dict[str, PreparedClaim]:
        help_ = "restore it, or remove it once no pod uses this driver's devices"
        try:
            document = json.loads(content)
            version, checksum, data = document["version"], document["checksum"], document["claims"]
        except (ValueError, KeyError, TypeError):
            raise StartError(
                f"{self.path}: the checkpoint is damaged: not the expected JSON; {help_}"
            ) from None
        if version != VERSION:
            raise StartError(
                f"{self.path}: the checkpoint has version {version!r}, expected {VERSION!r}; {help_}"
            )
        if checksum != _checksum(data):
            raise StartError(f"{self.path}: the checkpoint is damaged: the checksum doesn't match; {help_}")
        return {uid: PreparedClaim.from_dict(claim) for uid, claim in data.items()}


def _checksum(data: dict[str, Any]) -> str:
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
