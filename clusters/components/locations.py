"""Where the pinned modules and the programs are, and whether there is room and a platform for them."""

from __future__ import annotations

import contextlib
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

import filelock

from clusters.components.interface import Progress
from harness.errors import UsageError
from harness.settings import cache_root

MODULES = Path(__file__).parent / "modules"
"""The pinned modules: one folder with go.mod and go.sum each."""

OWN_PROGRAMS = Path(__file__).parent / "go"
"""Source of the harness's own Go programs."""

BUILT, DOWNLOADED = "programs", "downloads"
"""Folders of the cache: what was built, and what was downloaded."""

GIB = 1024**3

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def architecture(machine: str | None = None) -> str:
    """What Go and container images call an architecture.

    Args:
        machine: as `platform.machine()` says it; this machine if not given.

    Raises:
        UsageError: for a machine that is neither x86_64 nor aarch64.
    """
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        raise UsageError(f"machine {machine!r}: programs are made for {' and '.join(_ARCHITECTURES)} only")
    return _ARCHITECTURES[machine]


def origin(program: Path) -> str:
    """Where a program that a `ComponentSource` gave came from: `build`, `download` or `directory`."""
    for folder, word in ((BUILT, "build"), (DOWNLOADED, "download")):
        if program.is_relative_to(cache_root() / folder):
            return word
    return "directory"


@contextlib.contextmanager
def one_at_a_time(cache: Path, work: str, progress: Progress) -> Iterator[None]:
    """Hold the cache's lock for a kind of work; whoever comes meanwhile waits, and says so.

    Args:
        cache: made if it isn't there.
        work: the lock's name, such as `build`.
        progress: told if another run has the lock.
    """
    cache.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(cache / f"{work}.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        progress("wait", 0, 0, f"another run holds {lock.lock_file}: waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def require_space(directory: Path, needed: int, purpose: str) -> None:
    """Check the file system of a directory (which need not exist yet) for `needed` bytes.

    Raises:
        UsageError: naming the directory, what is needed and what is available.
    """
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise UsageError(
            f"{directory}: {purpose} needs {needed / GIB:.1f} GiB of disk space, "
            f"{free / GIB:.1f} GiB are available"
        )
