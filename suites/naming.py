"""Names that no two checks of a cluster share, the same for the same run and check."""

from __future__ import annotations

import hashlib
import re

from harness.labels import RUN as LABEL

__all__ = ["LABEL", "Names", "slug"]


class Names:
    """Unique names for one check."""

    def __init__(self, run_id: str, check: str) -> None:
        self.run_id = run_id
        self.token = hashlib.sha256(f"{run_id}/{check}".encode()).hexdigest()[:8]

    def name(self, suffix: str = "") -> str:
        """A DNS label that starts with a letter, such as `t1a2b3c4d-gpu`."""
        return f"t{self.token}" + (f"-{suffix}" if suffix else "")

    def driver(self, suffix: str = "gpu") -> str:
        """A driver name."""
        return f"{suffix}-{self.token}.dra-harness.dev"

    def extended_resource(self, suffix: str = "gpu") -> str:
        """An extended resource name."""
        return f"{self.token}.dra-harness.dev/{suffix}"


def slug(check: str) -> str:
    """A check's id as a folder name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", check.split("/")[-1]).strip("-")
