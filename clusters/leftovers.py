"""What a run made on a cluster, found by its label and removed, whatever became of the run."""

from __future__ import annotations

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


def remove_cluster_scoped(kube: KubeClient, run_id: str) -> None:
    """Delete every object of the run that is in no namespace, but for the namespaces themselves."""
    for resource in CLUSTER_SCOPED:
        for name in _names(kube, resource, run_id):
            kube.delete(resource, name)


def namespaces_of(kube: KubeClient, run_id: str) -> list[str]:
    """The run's namespaces that are there, also those that are being deleted."""
    return _names(kube, NAMESPACES, run_id)


def remaining(kube: KubeClient, run_id: str) -> list[str]:
    """What is still there of a run, as plural/name."""
    return [
        f"{resource.plural}/{name}"
        for resource in (NAMESPACES, *CLUSTER_SCOPED)
        for name in _names(kube, resource, run_id)
    ]


def _names(kube: KubeClient, resource: Resource, run_id: str) -> list[str]:
    try:
        found: list[Object] = kube.list(resource, labels=f"{RUN}={run_id}")
    except ApiError as error:
        if error.status == 404:  # a kind that the release doesn't serve
            return []
        raise
    return [obj["metadata"]["name"] for obj in found]
