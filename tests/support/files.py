"""Files that come and go while they are looked at."""

from __future__ import annotations

import os
from pathlib import Path


def tree(folder: Path) -> list[Path]:
    """All that is below a folder; unlike `Path.rglob` it goes on where a folder vanishes meanwhile."""
    return [Path(parent, name) for parent, folders, files in os.walk(folder) for name in (*folders, *files)]
