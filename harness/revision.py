"""Which commit of the harness is running: results say by what they were made."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Revision:
    """A commit, and whether the checkout differs from it."""

    commit: str | None
    """None outside a git checkout."""
    dirty: bool


def revision() -> Revision:
    """The commit that the harness is run from."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=here, capture_output=True, text=True, check=True, timeout=10
        )
        return done.stdout.strip()

    try:
        return Revision(git("rev-parse", "HEAD"), bool(git("status", "--porcelain")))
    except (OSError, subprocess.SubprocessError):
        return Revision(None, False)
