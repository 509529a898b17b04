"""Which provider has a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clusters import providers
from clusters.interface import Profile
from clusters.kind.state import KindState
from clusters.local.state import ClusterState
from harness.errors import EnvironmentBlocked, UsageError
from tests.support.paper import paper_cluster


@pytest.fixture
def two(state_dir: Path) -> None:
    """A local cluster `here`, and one of kind, `boxed`."""
    common: dict[str, Any] = {"id": "abc123", "kubernetes": "v1.37.2", "profile": Profile.GA}
    ClusterState(name="here", nodes=("node-1",), slot=0, **common).save()
    KindState(name="boxed", nodes=1, node_image="i", kind=Path("/nowhere/kind"), **common).save()


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(("name", "provider"), [("here", "local"), ("boxed", "kind")])
def test_a_name_leads_to_its_provider(name: str, provider: str) -> None:
    assert providers.having(name).name == provider


@pytest.mark.usefixtures("two")
def test_a_name_that_none_has() -> None:
    with pytest.raises(UsageError) as raised:
        providers.having("x")
    assert str(raised.value) == "no cluster is named 'x'; there are: here, boxed"


@pytest.mark.usefixtures("two")
def test_a_cluster_leads_to_its_provider() -> None:
    for provider in providers.every():
        for cluster in provider.list():
            assert providers.of(cluster).name == provider.name


def test_somebody_elses_cluster_has_none() -> None:
    with pytest.raises(EnvironmentBlocked, match="components of a paper cluster can't be restarted"):
        providers.of(paper_cluster(nodes=()))
