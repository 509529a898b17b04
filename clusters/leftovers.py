"""What runs made on a cluster, found by its label and removed, whatever became of the run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.kube import (
    ADMISSION_BINDINGS,
    ADMISSION_POLICIES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    FLOW_SCHEMAS,
    NAMESPACES,
    NODES,
    PRIORITY_LEVELS,
    RESOURCE_SLICES,
    ApiError,
    KubeClient,
    Object,
    Resource,
)
from harness.labels import RUN

CLUSTER_SCOPED = (
    FLOW_SCHEMAS,
    PRIORITY_LEVELS,
    ADMISSION_BINDINGS,
    ADMISSION_POLICIES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    RESOURCE_SLICES,
    NODES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
)
"""The kinds besides namespaces that runs make, in the order in which they can go."""


@dataclass(frozen=True)
class Leftover:
    """An object that carries the label of a run."""

    resource: Resource
    name: str
    uid: str
    run: str
    label: str = RUN

    def __str__(self) -> str:
        return f"{self.resource.plural}/{self.name}"


@dataclass(frozen=True)
class Found:
    """All that is there of some runs, as far as the user may look."""

    objects: tuple[Leftover, ...]
    """Namespaces first."""
    unseen: tuple[str, ...]
    """Kinds that the user may not list."""


def find(
    kube: KubeClient,
    run_id: str = "",
    kinds: Iterable[Resource] = (NAMESPACES, *CLUSTER_SCOPED),
    *,
    label: str = RUN,
) -> Found:
    """Look for the objects of a run, or of all runs, that are in no namespace, and for namespaces.

    `label` is the one that they carry: `RUN`, or `DRIVERS`. A kind that the release doesn't serve has none.
    """
    objects: list[Leftover] = []
    unseen: list[str] = []
    for resource in kinds:
        try:
            found: list[Object] = kube.list(resource, labels=f"{label}={run_id}" if run_id else label)
        except ApiError as error:
            if error.status == 403:
                unseen.append(resource.plural)
            elif error.status != 404:
                raise
            continue
        labelled = [obj["metadata"] for obj in found if label in obj["metadata"].get("labels", {})]
        objects += [_leftover(resource, metadata, label) for metadata in labelled]
    return Found(tuple(objects), tuple(unseen))


def _leftover(resource: Resource, metadata: Object, label: str) -> Leftover:
    return Leftover(resource, metadata["name"], metadata["uid"], metadata["labels"][label], label)


def remove(kube: KubeClient, leftover: Leftover) -> None:
    """Delete an object, and no other that may have its name by now."""
    kube.delete(leftover.resource, leftover.name, uid=leftover.uid)


def remove_cluster_scoped(kube: KubeClient, run_id: str) -> None:
    """Delete every object of the run that is in no namespace, but for the namespaces themselves."""
    for resource in CLUSTER_SCOPED:
        for leftover in find(kube, run_id, [resource]).objects:
            remove(kube, leftover)


def namespaces_of(kube: KubeClient, run_id: str) -> list[Leftover]:
    """The run's namespaces that are there, also those that are being deleted."""
    return list(find(kube, run_id, [NAMESPACES]).objects)


def remaining(kube: KubeClient, run_id: str) -> list[str]:
    """What is still there of a run, as plural/name."""
    return [str(leftover) for leftover in find(kube, run_id).objects]
