"""The reader of metadata streams, on streams written by hand."""

from __future__ import annotations

import json

import pytest

from harness.errors import RequirementFailed
from suites.metadata import stream


def document(api_version: str, name: str = "claim") -> str:
    return json.dumps({"apiVersion": api_version, "kind": "DeviceMetadata", "metadata": {"name": name}})


BETA = document("metadata.resource.k8s.io/v1beta1", "beta")
ALPHA = document("metadata.resource.k8s.io/v1alpha1", "alpha")
FUTURE = document("metadata.resource.k8s.io/v9", "future")


@pytest.mark.parametrize("between", ["", "\n", " \n\t"])
def test_objects_follow_one_another(between: str) -> None:
    found = stream.objects(between + between.join([FUTURE, BETA, ALPHA]) + between)

    assert [each["metadata"]["name"] for each in found] == ["future", "beta", "alpha"]


def test_unknown_versions_are_passed_over() -> None:
    foreign = document("example.com/v1beta1", "foreign")

    assert stream.read(foreign + FUTURE + BETA + ALPHA)["metadata"]["name"] == "beta"
    assert stream.read(FUTURE + BETA + ALPHA, ["v1alpha1"])["metadata"]["name"] == "alpha"


def test_the_first_known_version_is_taken_whatever_its_age() -> None:
    assert stream.read(ALPHA + BETA)["metadata"]["name"] == "alpha"


def test_a_stream_without_a_known_version() -> None:
    with pytest.raises(RequirementFailed, match=r"v1beta1, v1alpha1\nobserved: its versions: \['v9'\]"):
        stream.read(FUTURE)


@pytest.mark.parametrize("text", [BETA + "{", BETA + "oops", BETA + "[]", BETA + "7"])
def test_what_is_no_object(text: str) -> None:
    with pytest.raises(RequirementFailed, match="a stream of JSON objects"):
        stream.objects(text)


def test_an_empty_file_has_no_objects() -> None:
    assert stream.objects(" \n") == []
    with pytest.raises(RequirementFailed, match=r"its versions: \[\]"):
        stream.read("")


def test_versions_sort_by_stage_first() -> None:
    mixed = ["v2", "v1beta10", "v1alpha1", "v10", "v2beta1", "v1", "v2alpha1", "v1beta1", "v1beta2"]

    oldest_first = ["v1alpha1", "v2alpha1", "v1beta1", "v1beta2", "v1beta10", "v2beta1", "v1", "v2", "v10"]
    assert sorted(mixed, key=stream.age) == oldest_first


@pytest.mark.parametrize("version", ["", "1", "v1gamma1", "v1beta", "example.com/v1"])
def test_what_is_no_version(version: str) -> None:
    with pytest.raises(RequirementFailed, match="a Kubernetes API version"):
        stream.age(version)
