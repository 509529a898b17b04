"""What checks start, where it can't serve."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.connection import Connection
from harness.errors import HarnessError
from harness.kube import KubeClient
from suites.drivers import Drivers
from suites.naming import Names
from tests.support.paper import NODE, paper_cluster


def test_a_device_plugin_that_has_ended_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "no-folder").touch()
    node = replace(NODE, kubelet_dir=tmp_path / "no-folder")
    cluster = paper_cluster(nodes=(node,), directory=tmp_path)
    drivers = Drivers(cluster, KubeClient(Connection(None)), Names("run", "test_x.py::test_y"))

    with pytest.raises(HarnessError, match=r"^device plugin a\.example/b ended with 1: .*can't serve there"):
        drivers.start_device_plugin("a.example/b", {node.name: 1})
