"""Where the pinned modules are, and where what is built from them is kept."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import platformdirs

from harness.errors import UsageError

MODULES = Path(__file__).parent / "modules"
"""The pinned modules: one folder with go.mod and go.sum each."""

OWN_PROGRAMS = Path(__file__).parent / "go"
"""Source of the harness's own Go programs."""

GIB = 1024**3


def cache_dir() -> Path:
    """The user's cache for built programs: `DRA_HARNESS_CACHE`, or the platform's usual place."""
    override = os.environ.get("DRA_HARNESS_CACHE")
    return Path(override).absolute() if override else Path(platformdirs.user_cache_dir("dra-harness"))


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
