"""What runs left: found by the label, removed by UID, and no further."""

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
        self.refused = {"devicetaintrules": 404}

    def list(self, resource: Resource, *, labels: str) -> list[Object]:
        if resource.plural in self.refused:
            raise ApiError("GET", resource.path(), self.refused[resource.plural], "no")
        key, _, run = labels.partition("=")
        assert key == "dra-harness.dev/run"
        found = self.objects.get(resource.plural, {})
        return [
            {"metadata": {"name": name, "uid": f"uid of {name}", "labels": {key: made_by}}}
            for name, made_by in found.items()
            if made_by and run in ("", made_by)
        ]

    def delete(self, resource: Resource, name: str, *, uid: str) -> None:
        assert uid == f"uid of {name}"
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
    assert [each.name for each in leftovers.namespaces_of(kube, "r")] == ["a", "b"]
    before = ["namespaces/a", "namespaces/b", "flowschemas/ours", "deviceclasses/gpu", "clusterroles/sender"]
    assert leftovers.remaining(kube, "r") == before
    leftovers.remove_cluster_scoped(kube, "r")
    assert sorted(store.deleted) == ["clusterroles/sender", "deviceclasses/gpu", "flowschemas/ours"]
    assert leftovers.remaining(kube, "r") == ["namespaces/a", "namespaces/b"]
    assert leftovers.remaining(kube, "s") == ["flowschemas/theirs"]


def test_all_runs_are_told_apart() -> None:
    store = Store(deviceclasses={"a": "r", "b": "s", "c": ""}, namespaces={"n": "s"})
    found = leftovers.find(cast("KubeClient", store))
    assert [(str(each), each.run) for each in found.objects] == [
        ("namespaces/n", "s"),
        ("deviceclasses/a", "r"),
        ("deviceclasses/b", "s"),
    ]


def test_kinds_that_are_not_served_are_none_those_not_to_be_seen_are_said_and_trouble_is_not_hidden() -> None:
    store = Store(clusterroles={"ours": "r"}, deviceclasses={"gpu": "r"})
    store.refused |= {"clusterroles": 403, "flowschemas": 403}
    found = leftovers.find(cast("KubeClient", store), "r")
    assert (list(map(str, found.objects)), found.unseen) == (
        ["deviceclasses/gpu"],
        ("flowschemas", "clusterroles"),
    )
    store.refused["namespaces"] = 500
    with pytest.raises(ApiError):
        leftovers.remaining(cast("KubeClient", store), "r")


def test_bindings_go_before_their_roles() -> None:
    order = [resource.plural for resource in leftovers.CLUSTER_SCOPED]
    assert order.index(CLUSTER_ROLE_BINDINGS.plural) < order.index(CLUSTER_ROLES.plural)
    assert {FLOW_SCHEMAS.plural, DEVICE_CLASSES.plural} <= set(order)
    assert NAMESPACES.plural not in order
