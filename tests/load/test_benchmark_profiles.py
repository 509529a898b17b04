"""The profiles of the benchmarks: they ask for more than the cluster takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from load.profiles.loader import find_profile
from load.profiles.schema import Profile
from load.request import LimitSet, Size

PROFILES = {
    path.stem: path for path in sorted((Path(__file__).parents[2] / "benchmarks" / "profiles").glob("*.yaml"))
}


def profile(name: str) -> Profile:
    return find_profile(str(PROFILES[name]))


def test_there_are_two_ways_to_a_claim_and_a_cluster_that_limits_itself() -> None:
    assert list(PROFILES) == ["extended-rate", "template-limited", "template-rate"]


@pytest.mark.parametrize("name", PROFILES)
def test_it_saturates(name: str) -> None:
    found = profile(name)
    assert found.name == name
    assert found.saturates


@pytest.mark.parametrize("name", ["extended-rate", "template-rate"])
def test_under_open_limits_it_asks_for_more_than_the_target(name: str) -> None:
    assert profile(name).sizes[Size.S].rate > 45


def test_no_pod_of_a_limited_cluster_ends_while_there_are_arrivals() -> None:
    """Else the claim controller's requests would be for the claims of both."""
    found = profile("template-limited")
    size = found.sizes[Size.S]
    assert found.limits is LimitSet.DEFAULT
    assert size.hold > size.warm_up + size.seconds
