"""Reads device metadata as a container's program has to: a stream of JSON objects, one per format version.

The format is that of k8s.io/dynamic-resource-allocation/api/metadata: the objects follow one another without
anything between them but white space, the newest version first, each saying the same in its own version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from harness.errors import RequirementFailed
from harness.kube import Object

GROUP = "metadata.resource.k8s.io"
KNOWN = ("v1beta1", "v1alpha1")
"""The versions that this reader knows."""

_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")
_STAGES = {"alpha": 0, "beta": 1, None: 2}


def objects(text: str) -> list[Object]:
    """All objects of a stream, in its order.

    Raises:
        RequirementFailed: something in it is no JSON object.
    """
    decoder = json.JSONDecoder()
    found: list[Object] = []
    rest = text.lstrip()
    while rest:
        try:
            value, end = decoder.raw_decode(rest)
        except ValueError as error:
            raise RequirementFailed("metadata is a stream of JSON objects", f"{error}: {rest!r}") from error
        if not isinstance(value, dict):
            raise RequirementFailed("metadata is a stream of JSON objects", f"it holds {value!r}")
        found.append(value)
        rest = rest[end:].lstrip()
    return found


def version_of(document: Object) -> str:
    """The version of an object, such as v1beta1; the whole apiVersion if its group is another."""
    api_version = str(document.get("apiVersion", ""))
    group, _, version = api_version.partition("/")
    return version if group == GROUP else api_version


def read(text: str, known: Sequence[str] = KNOWN) -> Object:
    """The first object of a stream in a version that the reader knows; others are passed over.

    Raises:
        RequirementFailed: there is none, or something before it is no JSON object.
    """
    found = objects(text)
    for document in found:
        if version_of(document) in known:
            return document
    versions = [version_of(document) for document in found]
    raise RequirementFailed(
        f"metadata in one of the versions {', '.join(known)}", f"its versions: {versions}"
    )


def age(version: str) -> tuple[int, int, int]:
    """A key that sorts versions from the oldest to the newest: alpha, beta, then stable ones.

    Raises:
        RequirementFailed: it is no Kubernetes API version.
    """
    match = _VERSION.fullmatch(version)
    if not match:
        raise RequirementFailed("a Kubernetes API version, such as v1beta1", repr(version))
    return _STAGES[match[2]], int(match[1]), int(match[3] or 0)
