"""Files that are written whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_atomically(path: Path, text: str) -> None:
    """Replace a file's content in one step, readable by the owner only."""
    temporary = path.with_suffix(path.suffix + ".tmp")
    with open(temporary, "w", encoding="utf-8", opener=_private) as file:
        file.write(text)
    temporary.replace(path)


def write_json(path: Path, value: Any) -> None:
    """`write_atomically` for a JSON value."""
    write_atomically(path, json.dumps(value, indent=1))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
