"""How tests run the command line."""

from __future__ import annotations

import subprocess
from typing import Protocol


class Command(Protocol):
    """Runs `dra-harness` with arguments, and waits for it."""

    def __call__(self, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """The finished process, with its output as text."""
        ...
