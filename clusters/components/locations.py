"""Where the pinned modules are, and whether there is room to build them."""

from __future__ import annotations

import shutil
from pathlib import Path

from harness.errors import UsageError

MODULES = Path(__file__).parent / "modules"
"""The pinned modules: one folder with go.mod and go.sum each."""

OWN_PROGRAMS = Path(__file__).parent / "go"
"""Source of the harness's own Go programs."""

GIB = 1024**3


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
