"""Objects of a manifest, created and deleted in order."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from harness.errors import UsageError
from harness.kube import (
    ADMISSION_BINDINGS,
    ADMISSION_POLICIES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DEVICE_CLASSES,
    NAMESPACES,
    SERVICE_ACCOUNTS,
    KubeClient,
    Object,
    Resource,
)

CONFIG_MAPS = Resource("v1", "configmaps", namespaced=True)
SECRETS = Resource("v1", "secrets", namespaced=True)
DAEMON_SETS = Resource("apps/v1", "daemonsets", namespaced=True)

_KINDS = {
    "Namespace": NAMESPACES,
    "ServiceAccount": SERVICE_ACCOUNTS,
    "Secret": SECRETS,
    "ConfigMap": CONFIG_MAPS,
    "ClusterRole": CLUSTER_ROLES,
    "ClusterRoleBinding": CLUSTER_ROLE_BINDINGS,
    "ValidatingAdmissionPolicy": ADMISSION_POLICIES,
    "ValidatingAdmissionPolicyBinding": ADMISSION_BINDINGS,
    "DeviceClass": DEVICE_CLASSES,
    "DaemonSet": DAEMON_SETS,
}
"""In the order in which they are created."""


def parse(text: str) -> list[Object]:
    """The objects of YAML documents, in the order in which they are to be created.

    Raises:
        UsageError: one is of a kind that this doesn't know.
    """
    order = list(_KINDS)
    objects = [document for document in yaml.safe_load_all(text) if document]
    return sorted(objects, key=lambda each: order.index(_known(each)))


def create(client: KubeClient, objects: Sequence[Object]) -> None:
    """Create the objects.

    Raises:
        ApiError: the API server refuses one, such as one that is there already.
    """
    for each in objects:
        client.create(_resource(each), each, each["metadata"].get("namespace"))


def delete(client: KubeClient, objects: Sequence[Object]) -> None:
    """Delete the objects, the last first; those that are gone are fine."""
    for each in reversed(objects):
        client.delete(_resource(each), each["metadata"]["name"], each["metadata"].get("namespace"))


def delete_labelled(client: KubeClient, objects: Sequence[Object], label: str, value: str) -> None:
    """Delete those of the objects that carry a label, the last first; their namesakes are left alone."""
    for each in reversed(objects):
        found = find(client, each)
        if found and found["metadata"].get("labels", {}).get(label) == value:
            metadata = found["metadata"]
            client.delete(_resource(each), metadata["name"], metadata.get("namespace"), uid=metadata["uid"])


def find(client: KubeClient, each: Object) -> Object | None:
    """The object as it is stored, or None."""
    return client.find(_resource(each), each["metadata"]["name"], each["metadata"].get("namespace"))


def _resource(each: Object) -> Resource:
    return _KINDS[_known(each)]


def _known(each: Object) -> str:
    kind = str(each.get("kind"))
    if kind not in _KINDS:
        raise UsageError(f"a manifest's kind: expected one of {', '.join(_KINDS)}, got {kind}")
    return kind
