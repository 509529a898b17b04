"""What the users of a load run are for, and the few rights that each has."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

_RESOURCE_API = "resource.k8s.io"


class Role(enum.StrEnum):
    """What an identity is for."""

    SENDER = "sender"
    """Creates and deletes the pods that are measured."""
    OBSERVER = "observer"
    """Watches what becomes of them."""
    SETUP = "setup"
    """Makes what the run needs, and does what happens beside the churn."""


_EDIT = ["create", "get", "list", "watch", "update", "patch", "delete", "deletecollection"]

RULES: Mapping[Role, list[dict[str, Any]]] = {
    Role.SENDER: [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "delete", "get", "list"]}],
    Role.OBSERVER: [
        {"apiGroups": [""], "resources": ["pods", "nodes", "namespaces"], "verbs": ["get", "list", "watch"]},
        {
            "apiGroups": [_RESOURCE_API],
            "resources": ["resourceclaims", "resourceslices", "devicetaintrules"],
            "verbs": ["get", "list", "watch"],
        },
    ],
    Role.SETUP: [
        {"apiGroups": [""], "resources": ["namespaces", "resourcequotas", "pods"], "verbs": _EDIT},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "list"]},
        {
            "apiGroups": [_RESOURCE_API],
            "resources": [
                "deviceclasses",
                "resourceclaimtemplates",
                "resourceclaims",
                "devicetaintrules",
                "resourceslices",
            ],
            "verbs": _EDIT,
        },
        {
            "apiGroups": ["flowcontrol.apiserver.k8s.io"],
            "resources": ["flowschemas", "prioritylevelconfigurations"],
            "verbs": _EDIT,
        },
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings"], "verbs": ["create"]},
    ],
}
"""What each may do, besides letting the generator into the namespaces that the set-up makes."""
