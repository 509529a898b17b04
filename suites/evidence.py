"""What a check saw, kept for the report whether it passes or fails."""

from __future__ import annotations

from typing import Any

import pytest

from harness.events import Evidence
from harness.kube import Object
from suites import allure_labels

EVIDENCE: pytest.StashKey[Observations] = pytest.StashKey()

_NOISE = ("managedFields", "uid", "resourceVersion", "generation", "selfLink")


class Observations:
    """Collects evidence; one per check. Call it with a title and any JSON value."""

    def __init__(self) -> None:
        self.items: list[Evidence] = []

    def __call__(self, title: str, value: Any) -> None:
        """Keep one observation."""
        self.items.append(Evidence(title=title, value=value))
        allure_labels.attach(title, value)

    def claim(self, title: str, claim: Object) -> None:
        """Keep what matters of a ResourceClaim (or another object): no bookkeeping."""
        self(title, tidy(claim))


def tidy(obj: Object) -> Object:
    """An object without the bookkeeping that hides what matters; identity by name stays."""
    metadata = {key: value for key, value in obj.get("metadata", {}).items() if key not in _NOISE}
    return {**obj, "metadata": metadata}


@pytest.fixture
def evidence(request: pytest.FixtureRequest) -> Observations:
    """Records what the check observes, for the report."""
    observations = Observations()
    request.node.stash[EVIDENCE] = observations
    return observations
