"""Fixtures of the area."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.kube import KubeClient
from suites.naming import Names
from suites.taints.support import Rules


@pytest.fixture
def rules(kube: KubeClient, names: Names) -> Iterator[Rules]:
    """Makes DeviceTaintRules for the check."""
    made = Rules(kube, names)
    yield made
    made.clear()
