"""The fixture of the apf checks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clusters.interface import Cluster
from harness.kube import KubeClient
from suites.apf.squeeze import Squeeze
from suites.naming import Names


@pytest.fixture
def squeeze(cluster: Cluster, kube: KubeClient, names: Names, namespace: str) -> Iterator[Squeeze]:
    """Rejects requests in the check's namespace, until the check ends at the latest."""
    made = Squeeze(cluster, kube, names, namespace)
    yield made
    made.clear()
