"""What the API server takes as an attribute, and what it refuses: LST-01."""

from __future__ import annotations

from typing import Any

import pytest

from harness.kube import RESOURCE_SLICES, ApiError, KubeClient, Object
from suites.evidence import Observations
from suites.expect import expect, expect_equal
from suites.marks import requirement, without_driver
from suites.naming import Names

Attributes = dict[str, dict[str, Any]]

_SINGLE = {f"single{index}": {"int": index} for index in range(8)}

ACCEPTED: dict[str, list[Attributes]] = {
    "each single form": [
        {"a": {"int": 1}, "b": {"bool": True}, "c": {"string": "x"}, "d": {"version": "1.0.0"}}
    ],
    "each list form": [
        {
            "a": {"ints": [1, 1, 2]},
            "b": {"bools": [True, False]},
            "c": {"strings": ["x"]},
            "d": {"versions": ["1.0.0", "2.0.0-rc.1"]},
        }
    ],
    "48 values in lists and single": [{"a": {"ints": list(range(40))}, **_SINGLE}],
    "64 devices, one with a list": [{"a": {"ints": [1]}}, *[{"a": {"int": 1}}] * 63],
    "65 devices without lists": [{"a": {"int": 1}}] * 65,
    "a string of 64 bytes": [{"a": {"strings": ["x" * 64]}}],
    "32 characters of two bytes each": [{"a": {"strings": ["é" * 32]}}],
}

_NONE = ("must specify one of", "exactly one value must be specified")
_SEVERAL = ("must specify exactly one of", "exactly one value must be specified")
_TOO_LONG = ("spec.devices[0].attributes[a].strings[1]: Too long", "may not be more than 64 bytes")

REFUSED: dict[str, tuple[list[Attributes], int, tuple[str, ...]]] = {
    "no value": ([{"a": {}}], 422, _NONE),
    "a single value and a list": ([{"a": {"int": 1, "ints": [1]}}], 422, _SEVERAL),
    "lists of two types": ([{"a": {"ints": [1], "strings": ["x"]}}], 422, _SEVERAL),
    "an empty list": ([{"a": {"ints": []}}], 422, ("must not be empty", *_NONE)),
    "a list of mixed types": ([{"a": {"ints": [1, "2"]}}], 400, ("cannot unmarshal string",)),
    "49 values in one list": ([{"a": {"ints": list(range(49))}}], 422, ("must not exceed 48",)),
    "49 values in lists and single": (
        [{"a": {"ints": list(range(41))}, **_SINGLE}],
        422,
        ("must not exceed 48",),
    ),
    "65 devices, one with a list": (
        [{"a": {"ints": [1]}}, *[{"a": {"int": 1}}] * 64],
        422,
        ("spec.devices: Too many: 65: must have at most 64",),
    ),
    "a string of 65 bytes": ([{"a": {"strings": ["ok", "x" * 65]}}], 422, _TOO_LONG),
    "33 characters of two bytes each": ([{"a": {"strings": ["ok", "é" * 33]}}], 422, _TOO_LONG),
    "a version that is none": ([{"a": {"versions": ["1.0.0", "one"]}}], 422, ("semver",)),
}


def _slice(names: Names, devices: list[Attributes]) -> Object:
    return {
        "apiVersion": RESOURCE_SLICES.api_version,
        "kind": "ResourceSlice",
        "metadata": {"name": names.name("probe")},
        "spec": {
            "driver": names.driver("probe"),
            "allNodes": True,
            "pool": {"name": "probe", "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {"name": f"d{index}", "attributes": attributes} for index, attributes in enumerate(devices)
            ],
        },
    }


@requirement("LST-01")
@without_driver
@pytest.mark.parametrize("devices", ACCEPTED.values(), ids=ACCEPTED)
def test_accepted(devices: list[Attributes], kube: KubeClient, names: Names, evidence: Observations) -> None:
    """Every form, and as much as the limits allow, comes back as it was written."""
    answer = kube.create(RESOURCE_SLICES, _slice(names, devices), dry_run=True)

    stored = [device["attributes"] for device in answer["spec"]["devices"]]
    evidence("first device, as stored", stored[0])
    evidence("devices", len(stored))
    expect_equal("the attributes come back as written", stored, devices, answer)


@requirement("LST-01")
@without_driver
@pytest.mark.parametrize(("devices", "status", "texts"), REFUSED.values(), ids=REFUSED)
def test_refused(
    devices: list[Attributes],
    status: int,
    texts: tuple[str, ...],
    kube: KubeClient,
    names: Names,
    evidence: Observations,
) -> None:
    """No value or two, an empty or mixed list, and one over each limit are refused, each for its reason."""
    with pytest.raises(ApiError) as refused:
        kube.create(RESOURCE_SLICES, _slice(names, devices), dry_run=True)

    evidence("what the API server says", refused.value.message)
    expect_equal("status of the refusal", refused.value.status, status)
    message = refused.value.message
    expect(f"the refusal says {' or '.join(texts)}", any(text in message for text in texts), message)
