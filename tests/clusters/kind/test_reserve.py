"""A name is taken before anything is made, and by one process only."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusters.components import BuildSource
from clusters.interface import ClusterSpec
from clusters.kind.provider import KindProvider
from clusters.kind.state import KindState
from harness.errors import UsageError


def test_a_record_is_held_from_its_first_moment_on(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another command's sweep removes what nobody holds."""
    held: list[bool] = []
    save = KindState.save

    def saved(self: KindState) -> None:
        save(self)
        with self.orphaned() as orphaned:
            held.append(not orphaned)

    monkeypatch.setattr(KindState, "save", saved)
    KindProvider(BuildSource())._reserve(ClusterSpec("a"), "image", Path("/kind"))
    assert held == [True]


def test_two_commands_do_not_make_one_cluster(state_dir: Path) -> None:
    first, second = KindProvider(BuildSource()), KindProvider(BuildSource())
    mine = first._reserve(ClusterSpec("a"), "image", Path("/kind"))
    with pytest.raises(UsageError, match="a kind cluster named 'a' is just being made"):
        second._reserve(ClusterSpec("a"), "image", Path("/kind"))
    assert KindState.load("a") == mine


def test_a_cluster_that_was_made_meanwhile_is_left_alone(state_dir: Path) -> None:
    """Its maker is gone, and so is its lock: the name alone says that it is there."""
    first, second = KindProvider(BuildSource()), KindProvider(BuildSource())
    mine = first._reserve(ClusterSpec("a"), "image", Path("/kind"))
    first._locks["a"].release()

    with pytest.raises(UsageError, match="a kind cluster named 'a' exists"):
        second._reserve(ClusterSpec("a"), "image", Path("/kind"))

    assert KindState.load("a") == mine
    with mine.unused() as unused:
        assert unused, "the refused command holds the lock"
