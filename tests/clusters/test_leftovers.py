"""What a run made is found by its label."""

from __future__ import annotations

from typing import cast

import pytest

from clusters import leftovers
from harness.kube import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DEVICE_CLASSES,
    FLOW_SCHEMAS,
    NAMESPACES,
    ApiError,
    KubeClient,
    Object,
    Resource,
)


class Store:
    """A cluster's objects by kind and name, with the run that made them."""

    def __init__(self, **objects: dict[str, str]) -> None:
        self.objects = objects
        self.deleted: list[str] = []
        self.unserved = "devicetaintrules"

    def list(self, resource: Resource, *, labels: str) -> list[Object]:
        if resource.plural == self.unserved:
            raise ApiError("GET", resource.path(), 404, "not found")
        key, _, run = labels.partition("=")
        assert key == "dra-harness.dev/run"
        found = self.objects.get(resource.plural, {})
        return [{"metadata": {"name": name}} for name, made_by in found.items() if made_by == run]

    def delete(self, resource: Resource, name: str) -> None:
        self.deleted.append(f"{resource.plural}/{name}")
        del self.objects[resource.plural][name]


def test_only_what_the_run_made_goes() -> None:
    store = Store(
        flowschemas={"ours": "r", "theirs": "s"},
        deviceclasses={"gpu": "r"},
        clusterroles={"sender": "r", "system": ""},
        namespaces={"a": "r", "b": "r", "default": ""},
    )
    kube = cast("KubeClient", store)
    assert leftovers.namespaces_of(kube, "r") == ["a", "b"]
    before = ["namespaces/a", "namespaces/b", "flowschemas/ours", "deviceclasses/gpu", "clusterroles/sender"]
    assert leftovers.remaining(kube, "r") == before
    leftovers.remove_cluster_scoped(kube, "r")
    assert sorted(store.deleted) == ["clusterroles/sender", "deviceclasses/gpu", "flowschemas/ours"]
    assert leftovers.remaining(kube, "r") == ["namespaces/a", "namespaces/b"]
    assert leftovers.remaining(kube, "s") == ["flowschemas/theirs"]


def test_a_kind_that_is_not_served_is_none_and_other_refusals_are_not_hidden() -> None:
    store = Store()
    assert leftovers.remaining(cast("KubeClient", store), "r") == []

    def refuse(resource: Resource, *, labels: str) -> list[Object]:
        raise ApiError("GET", resource.path(), 403, "no")

    store.list = refuse  # type: ignore[method-assign]
    with pytest.raises(ApiError):
        leftovers.remaining(cast("KubeClient", store), "r")


def test_bindings_go_before_their_roles() -> None:
    order = [resource.plural for resource in leftovers.CLUSTER_SCOPED]
    assert order.index(CLUSTER_ROLE_BINDINGS.plural) < order.index(CLUSTER_ROLES.plural)
    assert {FLOW_SCHEMAS.plural, DEVICE_CLASSES.plural} <= set(order)
    assert NAMESPACES.plural not in order
