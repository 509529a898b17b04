"""States of clusters that are nowhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from clusters.components import BuildSource
from clusters.interface import Profile
from clusters.kind.state import KindState

MakeState = Callable[..., KindState]


@pytest.fixture
def make_state(state_dir: Path) -> MakeState:
    """The state of a cluster named `paper`, with some keys of the caller's."""

    def make(**keys: object) -> KindState:
        given = {
            "id": "abc123",
            "name": "paper",
            "kubernetes": "v1.37.2",
            "profile": Profile.GA,
            "nodes": 2,
            "node_image": "node:v1",
            "kind": "/nowhere/kind",
        }
        return KindState.model_validate(given | keys)

    return make


class NoPrograms(BuildSource):
    """For what is to be refused before it comes to programs."""

    def ensure(self, *_: object, **__: object) -> dict[str, Path]:
        """Not to be called."""
        raise AssertionError("programs were built")
