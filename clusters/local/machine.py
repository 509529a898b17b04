"""What all local clusters of a machine share, whoever made them: a lock, address blocks, kernel settings.

A folder below /run holds two files for each cluster, named by its id: one has its address block, one the path
of its record. It is the machine's, not a user's: with sudo, several users or tests there are several state
directories.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clusters.local import sysctls
from harness.files import write_atomically
from harness.settings import machine_root


@contextmanager
def lock() -> Iterator[None]:
    """Held while names, address blocks and kernel settings are taken or given back.

    The lock is on the machine's folder itself, which goes with the last cluster: whoever waited on a folder
    that was removed meanwhile tries again on the new one.
    """
    root = machine_root()
    while True:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_same_file(root, descriptor):
                yield
                return
        finally:
            os.close(descriptor)


def register(cluster_id: str, slot: int, record: Path) -> None:
    """Enter a cluster; before the first one, kernel settings are remembered. Call with the lock held.

    Args:
        cluster_id: its mark.
        slot: its address block.
        record: where its record is.
    """
    if not _entries(_folder()):
        sysctls.remember(machine_root() / "sysctls.json")
        sysctls.raise_limits()
    for folder, text in ((_folder(), str(slot)), (_records(), str(record))):
        folder.mkdir(exist_ok=True, mode=0o700)
        write_atomically(folder / cluster_id, text)


def unregister(cluster_id: str) -> None:
    """Strike a cluster out; after the last one, kernel settings are put back. Call with the lock held."""
    for folder in (_folder(), _records()):
        (folder / cluster_id).unlink(missing_ok=True)
    if not _entries(_folder()):
        sysctls.restore(machine_root() / "sysctls.json")
        for folder in (_folder(), _records(), machine_root()):
            with contextlib.suppress(OSError):
                folder.rmdir()


def taken_slots() -> set[int]:
    """The address blocks of all clusters on the machine. Call with the lock held."""
    return {int(entry.read_text()) for entry in _entries(_folder())}


def records() -> dict[str, Path]:
    """Where the record of each cluster was written, by the cluster's id. Call with the lock held."""
    return {entry.name: Path(entry.read_text()) for entry in _entries(_records())}


def is_readable() -> bool:
    """Whether there is a register, and the caller may read it; others than root have no local clusters."""
    return os.access(_folder(), os.R_OK | os.X_OK)


def _folder() -> Path:
    return machine_root() / "clusters"


def _records() -> Path:
    return machine_root() / "records"


def _entries(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.glob("*") if entry.suffix != ".tmp")


def _is_same_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
