"""What a run may write on somebody else's cluster, asked of the client before anything is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clusters.existing.guard import OwnOnly
from harness.errors import EnvironmentBlocked
from harness.kube import (
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    ApiError,
    KubeClient,
    Object,
    Resource,
)
from tests.harness.api_server import status, write_config
from tests.support.api_server import serve

REVIEWS = Resource("authorization.k8s.io/v1", "selfsubjectaccessreviews", namespaced=False)


@pytest.fixture
def answers() -> dict[str, Any]:
    return {}


@pytest.fixture
def sent() -> list[str]:
    return []


@pytest.fixture
def plain(tmp_path: Path, answers: dict[str, Any], sent: list[str]) -> Iterator[KubeClient]:
    with serve(answers, otherwise={"metadata": {"uid": "u"}}, log=sent) as url:
        yield KubeClient.from_kubeconfig(write_config(tmp_path / "config", url, {"token": "t"}))


@pytest.fixture
def kube(plain: KubeClient) -> OwnOnly:
    """A run's client, which has made a class and a namespace."""
    kube = OwnOnly.of(plain, "r")
    kube.create(DEVICE_CLASSES, obj("own"))
    kube.create(NAMESPACES, obj("ours"))
    return kube


def obj(name: str, run: str = "r") -> Object:
    return {"metadata": {"name": name, "labels": {"dra-harness.dev/run": run}}}


Write = Callable[[OwnOnly], object]


@pytest.mark.parametrize(
    "write",
    [
        lambda kube: kube.create(DEVICE_CLASSES, {"metadata": {"name": "a"}}),
        lambda kube: kube.create(DEVICE_CLASSES, obj("a", run="s")),
        lambda kube: kube.create(NODES, obj("a")),
        lambda kube: kube.create(PODS, obj("a"), "default"),
        lambda kube: kube.delete(DEVICE_CLASSES, "own-of-another"),
        lambda kube: kube.delete(DEVICE_CLASSES, "own-", uid="x"),
        lambda kube: kube.delete(NAMESPACES, "default"),
        lambda kube: kube.delete(PODS, "own", "default"),
        lambda kube: kube.patch(NODES, "own", {"spec": {}}),
        lambda kube: kube.patch(NAMESPACES, "default", {}),
        lambda kube: kube.patch(NODES, "n", {}, subresource="status"),
        lambda kube: kube.replace(RESOURCE_CLAIMS, obj("a"), "default", subresource="status"),
        lambda kube: kube.request("DELETE", PODS.path("default")),
        lambda kube: kube.acting_as("system:kube-scheduler"),
    ],
)
def test_what_is_somebody_elses_is_not_written(kube: OwnOnly, sent: list[str], write: Write) -> None:
    before = list(sent)
    with pytest.raises(EnvironmentBlocked, match="somebody else's"):
        write(kube)
    assert sent == before


@pytest.mark.parametrize(
    "write",
    [
        lambda kube: kube.patch(DEVICE_CLASSES, "own", {}),
        lambda kube: kube.delete(DEVICE_CLASSES, "own"),
        lambda kube: kube.replace(DEVICE_CLASSES, obj("own"), subresource="status"),
        lambda kube: kube.patch(NAMESPACES, "ours", {}),
        lambda kube: kube.create(PODS, {"metadata": {"name": "a"}}, "ours"),
        lambda kube: kube.delete(PODS, "of-a-controller", "ours"),
        lambda kube: kube.patch(RESOURCE_CLAIMS, "a", {}, "ours", subresource="status"),
        lambda kube: kube.create(DEVICE_CLASSES, {"metadata": {"name": "a"}}, dry_run=True),
        lambda kube: kube.patch(NODES, "n", {}, query={"dryRun": "All"}),
        lambda kube: kube.create(REVIEWS, {}),
        lambda kube: kube.get(NODES, "n"),
    ],
)
def test_what_is_its_own_is_written(kube: OwnOnly, sent: list[str], write: Write) -> None:
    before = len(sent)
    write(kube)
    assert len(sent) == before + 1


def test_a_name_that_is_taken_is_in_the_way_and_does_not_become_its_own(
    kube: OwnOnly, answers: dict[str, Any]
) -> None:
    taken = status(409, "AlreadyExists", 'deviceclasses "a" already exists')
    answers[f"POST {DEVICE_CLASSES.path()}"] = (409, taken)
    with pytest.raises(EnvironmentBlocked, match=r'in the way: deviceclasses "a" already exists'):
        kube.create(DEVICE_CLASSES, obj("a"))
    with pytest.raises(EnvironmentBlocked, match="would change what is somebody else's"):
        kube.delete(DEVICE_CLASSES, "a")
    answers[f"POST {DEVICE_CLASSES.path()}"] = (409, status(409, "Conflict", "busy"))
    with pytest.raises(ApiError, match="busy"):
        kube.create(DEVICE_CLASSES, obj("b"))


def test_only_what_was_announced_is_created(plain: KubeClient) -> None:
    asked: list[str] = []

    def allows(path: str) -> bool:
        asked.append(path)
        return path.endswith("/known")

    kube = OwnOnly.of(plain, "r", allows)
    kube.create(DEVICE_CLASSES, obj("known"))
    with pytest.raises(EnvironmentBlocked, match="which `run --dry-run` doesn't show"):
        kube.create(DEVICE_CLASSES, obj("more"))
    kube.create(NAMESPACES, obj("known"))
    with pytest.raises(EnvironmentBlocked, match="namespaces/known/pods/p"):
        kube.create(PODS, {"metadata": {"name": "p"}}, "known")
    assert [path.rpartition("/v1/")[2] for path in asked] == [
        "deviceclasses/known",
        "deviceclasses/more",
        "namespaces/known",
        "namespaces/known/pods/p",
    ]
