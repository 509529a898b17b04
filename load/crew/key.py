"""The key that a run and its workers share: a file, 0600, with nothing but a Fernet key in it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cryptography.fernet import Fernet

from harness.errors import UsageError
from harness.settings import state_root

_FILE = "load-workers.key"


def default_path() -> Path:
    """Where the key is unless the user says otherwise."""
    return state_root() / _FILE


def read_key(path: Path) -> Fernet:
    """Read a key.

    Raises:
        UsageError: there is none, it is no key, or others can read it. Its group may: that is how Kubernetes
            mounts a Secret for a user that isn't root.
    """
    try:
        mode = path.stat().st_mode
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"--key {path}: {error.strerror}; copy it from where `load` runs") from error
    if mode & stat.S_IRWXO:
        raise UsageError(f"--key {path}: expected a file that only its owner can read; chmod 600 it")
    try:
        return Fernet(content.strip())
    except ValueError as error:
        raise UsageError(f"--key {path}: expected a key that `load --expect-workers` made") from error


def ensure_key(path: Path) -> Fernet:
    """Read a key, or make one if there is no such file.

    Raises:
        UsageError: as `read_key`, or it can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return read_key(path)
    except OSError as error:
        raise UsageError(f"--key {path}: {error.strerror}") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(Fernet.generate_key() + b"\n")
    return read_key(path)
