"""Manifests: their order, and what is refused before anything is created."""

from __future__ import annotations

import pytest

from clusters import manifests
from harness.errors import UsageError


def test_what_others_need_comes_first() -> None:
    text = "\n---\n".join(
        f"kind: {kind}\nmetadata: {{name: x}}" for kind in ("DaemonSet", "ConfigMap", "Namespace", "Secret")
    )
    assert [each["kind"] for each in manifests.parse(f"---\n{text}\n---\n")] == [
        "Namespace",
        "Secret",
        "ConfigMap",
        "DaemonSet",
    ]


def test_a_kind_that_is_not_known_is_refused() -> None:
    with pytest.raises(UsageError, match=r"expected one of Namespace, .*, got Deployment"):
        manifests.parse("kind: Deployment\nmetadata: {name: x}")
