from __future__ import annotations

import itertools
import random

import pytest

from harness.errors import UsageError
from suites.catalogue import Bound, Version, VersionRange

IN_ORDER = [
    "v1.36.3",
    "v1.37.0-alpha.1",
    "v1.37.0-rc.1",
    "v1.37.0",
    "v1.37.2",
    "v1.38.0-alpha.1",
    "v1.38.0-alpha.1.12+0f1e2d3c4b5a69",
    "v1.38.0-alpha.2",
    "v1.38.0-beta.0",
    "v1.38.0-rc.0",
    "v1.38.0-rc.1",
    "v1.38.0",
    "v1.100.0",
    "v2.0.0",
]


def test_versions_sort_as_semantic_versioning_says() -> None:
    shuffled = list(IN_ORDER)
    random.Random(7).shuffle(shuffled)

    assert sorted(shuffled, key=Version.parse) == IN_ORDER
    assert all(Version.parse(a) < Version.parse(b) for a, b in itertools.pairwise(IN_ORDER))


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("v1.36.3-gke.100", "v1.36.3"),
        ("v1.36.3-gke.1002000", "v1.36.3"),
        ("v1.33.1-eks-036c24b", "v1.33.1"),
        ("v1.37.2+k3s1", "v1.37.2"),
        ("v1.37.2+rke2r1", "v1.37.2"),
        ("v1.37.2-3+4f5a6b7c8d9e0f-dirty", "v1.37.2"),
        ("1.37.2", "v1.37.2"),
        (" v1.37.2\n", "v1.37.2"),
        ("v1.38.0-rc.1+vendor.5", "v1.38.0-rc.1"),
        ("v1.38.0-rc.1-gke.7", "v1.38.0-rc.1"),
        ("v1.38.0-rc.1.gke.7", "v1.38.0-rc.1"),
        ("v1.38.0-alpha.1.12+0f1e", "v1.38.0-alpha.1.12"),
    ],
)
def test_suffixes_of_builds_and_vendors_do_not_count(text: str, same_as: str) -> None:
    assert Version.parse(text) == Version.parse(same_as)
    assert str(Version.parse(text)) == same_as


def test_a_vendor_suffix_is_no_pre_release() -> None:
    assert not Version.parse("v1.36.3-gke.100").is_prerelease
    assert Version.parse("v1.36.3-rc.1").is_prerelease
    assert Version.parse("v1.38.0-rc.1").line == (1, 38)


@pytest.mark.parametrize(
    "text", ["", "v1.37", "1", "latest", "v1.37.x", "v1.37.2 beta", "v-1.2.3", "v1.37.2-"]
)
def test_what_is_no_version_is_named(text: str) -> None:
    with pytest.raises(
        UsageError, match=r"not a Kubernetes version; expected one such as v1\.37\.2"
    ) as caught:
        Version.parse(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("version", "bound", "sign"),
    [
        ("v1.35.9", "v1.36", -1),
        ("v1.36.0-alpha.1", "v1.36", 0),
        ("v1.36.3-gke.100", "1.36", 0),
        ("v1.37.0-alpha.1", "v1.36", 1),
        ("v1.37.0", "v1.37.1", -1),
        ("v1.37.1-rc.0", "v1.37.1", -1),
        ("v1.37.1+build", "v1.37.1", 0),
        ("v1.38.0-rc.1", "v1.37.1", 1),
    ],
)
def test_a_minor_release_as_bound_includes_its_candidates(version: str, bound: str, sign: int) -> None:
    assert Bound.parse(bound).compared_with(Version.parse(version)) == sign


@pytest.mark.parametrize(
    ("versions", "inside", "outside"),
    [
        (
            ">=1.36,<1.38",
            ["v1.36.0", "v1.37.2", "v1.36.0-rc.1", "v1.37.9-gke.1"],
            ["v1.35.4", "v1.38.0-alpha.1"],
        ),
        (">=1.36", ["v1.36.0", "v1.40.1", "v1.38.0-rc.1"], ["v1.35.0"]),
        ("==1.37.0", ["v1.37.0", "v1.37.0+k3s1"], ["v1.37.0-rc.1", "v1.37.1"]),
        (">=1.37.0,<1.37.1", ["v1.37.0", "v1.37.1-rc.0"], ["v1.37.0-rc.1", "v1.37.1", "v1.36.3"]),
        ("==1.37", ["v1.37.0-rc.1", "v1.37.2"], ["v1.36.3", "v1.38.0-alpha.0"]),
        (">1.36 , <= 1.37", ["v1.37.0-alpha.1", "v1.37.2"], ["v1.36.9", "v1.38.0"]),
        ("!=1.37", ["v1.36.3", "v1.38.0-rc.1"], ["v1.37.1"]),
    ],
)
def test_ranges(versions: str, inside: list[str], outside: list[str]) -> None:
    known = VersionRange.parse(versions)

    assert [text for text in inside if Version.parse(text) not in known] == []
    assert [text for text in outside if Version.parse(text) in known] == []
    assert str(known) == versions


@pytest.mark.parametrize(
    ("versions", "complaint"),
    [
        ("1.36", "not a version range; expected clauses such as '>=1.36,<1.38'"),
        ("~=1.36", "not a version range"),
        ("", "not a version range"),
        (">=1.36,", "not a version range"),
        (">=one", "'one' is not a release; expected one such as v1.36"),
        ("<1", "'1' is not a release"),
    ],
)
def test_what_is_no_range_is_named(versions: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        VersionRange.parse(versions)
