"""Reading topology attributes: both forms alike, and absence as "unknown"."""

from __future__ import annotations

from typing import Any

import pytest

from suites.topology import NUMA_NODE, Coverage, coverage, numa_nodes, values


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({NUMA_NODE: {"int": 0}}, (0,)),
        ({NUMA_NODE: {"ints": [6, 4]}}, (6, 4)),
        ({"numaNode": {"int": 1}}, None),
        ({}, None),
    ],
)
def test_numa_nodes(attributes: dict[str, Any], expected: tuple[int, ...] | None) -> None:
    assert numa_nodes({"name": "d", "attributes": attributes}) == expected


def test_values_of_a_device_without_attributes() -> None:
    assert values({"name": "d"}, "model") == ()


def test_coverage_by_node() -> None:
    known = {"name": "a", "attributes": {NUMA_NODE: {"int": 0}}}
    slices: list[dict[str, Any]] = [
        {"spec": {"nodeName": "one", "devices": [known, {"name": "b"}]}},
        {"spec": {"nodeName": "one", "devices": [{"name": "c"}]}},
        {"spec": {"perDeviceNodeSelection": True, "devices": [known | {"nodeName": "two"}]}},
        {"spec": {"allNodes": True, "devices": [{"name": "d"}]}},
        {"spec": {"nodeName": "three", "sharedCounters": []}},
    ]

    assert coverage(slices) == {"one": Coverage(3, 2), "two": Coverage(1, 0), "": Coverage(1, 1)}
