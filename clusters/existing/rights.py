"""The rights that a run needs on somebody else's cluster: as data, as a manifest, and who has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from clusters.existing.reach import explained
from harness.kube import KubeClient, Object, Resource

_ACCESS_REVIEWS = Resource("authorization.k8s.io/v1", "selfsubjectaccessreviews", namespaced=False)
_RBAC = "rbac.authorization.k8s.io"
_DRA = "resource.k8s.io"

RULES: tuple[dict[str, Any], ...] = (
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create", "delete", "get", "list", "patch"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "delete", "list"]},
    {"apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["create", "delete", "get", "patch"]},
    {"apiGroups": [""], "resources": ["resourcequotas/status"], "verbs": ["patch"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "get", "patch"]},
    {"apiGroups": [_DRA], "resources": ["deviceclasses"], "verbs": ["create", "delete", "list"]},
    {"apiGroups": [_DRA], "resources": ["devicetaintrules"], "verbs": ["create", "delete", "list", "patch"]},
    {"apiGroups": [_DRA], "resources": ["devicetaintrules/status"], "verbs": ["patch"]},
    {"apiGroups": [_DRA], "resources": ["resourceclaims", "resourceclaimtemplates"], "verbs": ["create"]},
    {"apiGroups": [_DRA], "resources": ["resourceslices"], "verbs": ["create", "list"]},
)
"""What the checks that run on such a cluster do, and nothing else. Namespaces are the run's own and not known
before, so no right can be held to one. ResourceSlices are created on trial only (`dryRun`)."""

EVERYTHING = "*"
"""Drivers in pods need roles of their own, and who gives a right has to have it."""

METRICS: dict[str, Any] = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
"""To know the API server's feature gates; a run does without."""


@dataclass(frozen=True)
class Right:
    """One verb on one kind of object, in all namespaces."""

    verb: str
    resource: str
    """With its subresource, such as `resourcequotas/status`."""
    group: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f".{self.group}" if self.group else "")


def needed() -> list[Right]:
    """Every right of the rules."""
    return [
        Right(verb, resource, rule["apiGroups"][0])
        for rule in RULES
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def missing(kube: KubeClient) -> list[Right]:
    """The rights that the client's user lacks, by the API server's word."""
    return [right for right in needed() if not _allowed(kube, right)]


def is_admin(kube: KubeClient) -> bool:
    """Whether the client's user may do everything, by the API server's word.

    Raises:
        EnvironmentBlocked: it doesn't say.
    """
    with explained(kube.server):
        return _allowed(kube, Right(EVERYTHING, EVERYTHING, EVERYTHING))


def _allowed(kube: KubeClient, right: Right) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": subresource}
    review = {
        "apiVersion": _ACCESS_REVIEWS.api_version,
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return bool(kube.create(_ACCESS_REVIEWS, review)["status"]["allowed"])


def manifest(name: str, namespace: str) -> Iterator[Object]:
    """A user with these rights: ServiceAccount, ClusterRole and ClusterRoleBinding.

    Args:
        name: of all three.
        namespace: of the ServiceAccount; it has to be there.
    """
    yield _object("v1", "ServiceAccount", name, namespace=namespace)
    yield {**_object(f"{_RBAC}/v1", "ClusterRole", name), "rules": [*RULES, METRICS]}
    yield {
        **_object(f"{_RBAC}/v1", "ClusterRoleBinding", name),
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }


def _object(api_version: str, kind: str, name: str, **metadata: str) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **metadata}}
