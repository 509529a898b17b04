"""The profiles that `benchmarks.load` runs: they ask for more than the machine takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from load.profiles.loader import find_profile
from load.request import Size

PROFILES = sorted((Path(__file__).parents[2] / "benchmarks" / "profiles").glob("*.yaml"))


def test_there_is_one_for_each_way_to_a_claim() -> None:
    assert [path.stem for path in PROFILES] == ["extended-rate", "template-rate"]


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_it_saturates(path: Path) -> None:
    profile = find_profile(str(path))
    assert profile.name == path.stem
    assert profile.saturates
    assert profile.sizes[Size.S].rate > 45
