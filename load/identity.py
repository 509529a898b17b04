"""Who a load run is to the API server: three service accounts, each with a FlowSchema and few rights.

Priority and fairness tells clients apart by who they are, so who the generator is decides what is measured:
an admin of group system:masters is exempt from all limits. Service accounts work on every cluster, and their
tokens need no key of the cluster's authority.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from harness.errors import EnvironmentBlocked, UsageError
from harness.files import write_atomically
from harness.kube import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    FLOW_SCHEMAS,
    NAMESPACES,
    PODS,
    PRIORITY_LEVELS,
    ROLE_BINDINGS,
    SERVICE_ACCOUNTS,
    KubeClient,
    Object,
    Resource,
)
from harness.waiting import NotYet, WaitTimeout, wait_until
from load.model import Flow
from load.naming import Names
from load.rights import RULES, Role

SENDER_LEVEL = "workload-low"
"""Where priority and fairness puts any service account by itself, so the generator is one of many."""
OBSERVER_LEVEL = "exempt"
"""What watches must not be held up by what it watches."""
SETUP_LEVEL = "global-default"
"""Not where the controllers and the generator are; a level of its own would take seats from all others."""

FLOW_SCHEMA_UID = "X-Kubernetes-PF-FlowSchema-UID"
PRIORITY_LEVEL_UID = "X-Kubernetes-PF-PriorityLevel-UID"

_PRECEDENCE = 300  # before `service-accounts`, which is at 9000
_SETTLE_SECONDS = 30.0
_LEAST_TOKEN_SECONDS = 600  # the API server refuses shorter ones
_ACCESS_REVIEWS = Resource("authorization.k8s.io/v1", "selfsubjectaccessreviews", namespaced=False)


@dataclass(frozen=True)
class Identity:
    """One of the run's users."""

    role: Role
    user: str
    """As the API server knows it: system:serviceaccount:<namespace>:<name>."""
    kubeconfig: Path
    """Its credentials, 0600."""
    flow_schema: str
    """Name of its FlowSchema."""
    priority_level: str
    """Name of the level that its requests are in."""
    flow: Flow
    """Where its requests are, from the headers of a real answer."""


@dataclass(frozen=True)
class Identities:
    """All users of a run."""

    sender: Identity
    observer: Identity
    setup: Identity
    exempt_uids: tuple[str, ...]
    """UIDs of the exempt levels and of the FlowSchemas that lead to them."""


def establish(
    kubeconfig: Path,
    names: Names,
    directory: Path,
    *,
    token_seconds: float,
    sender_level: str = SENDER_LEVEL,
) -> Identities:
    """Create the run's users and return them once the API server puts each where it belongs.

    Args:
        kubeconfig: of an admin, who may create roles.
        names: of the run; what is created carries its label.
        directory: where the users' kubeconfigs go; made here, 0700.
        token_seconds: how long the run may take: tokens are valid for at least that.
        sender_level: the priority level of the generator.

    Raises:
        UsageError: there is no such level, or it is exempt.
        EnvironmentBlocked: priority and fairness is off, or tokens are valid for too short a time.
    """
    admin = KubeClient.from_kubeconfig(kubeconfig)
    _require_level(admin, sender_level)
    namespace = names.name("users")
    admin.create(NAMESPACES, _namespace(names, namespace))
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    levels = {Role.SENDER: sender_level, Role.OBSERVER: OBSERVER_LEVEL, Role.SETUP: SETUP_LEVEL}
    users = {}
    for role, level in levels.items():
        _create_account(admin, names, namespace, role)
        schema = admin.create(FLOW_SCHEMAS, flow_schema(names, role, level))
        token = _token(admin, namespace, role, token_seconds)
        path = directory / f"{role}.kubeconfig"
        write_kubeconfig(path, kubeconfig, user=role.value, token=token)
        uids = Flow(
            flow_schema_uid=schema["metadata"]["uid"],
            priority_level_uid=admin.get(PRIORITY_LEVELS, level)["metadata"]["uid"],
        )
        user = f"system:serviceaccount:{namespace}:{role}"
        users[role] = Identity(role, user, path, names.name(role), level, uids)
    for identity in users.values():
        _wait_placed(identity)
    return Identities(users[Role.SENDER], users[Role.OBSERVER], users[Role.SETUP], tuple(exempt_uids(admin)))


def admit(setup: KubeClient, names: Names, namespace: str) -> None:
    """Let the generator make pods in one of the run's namespaces."""
    role = names.name(Role.SENDER)
    subject = {"kind": "ServiceAccount", "name": Role.SENDER.value, "namespace": names.name("users")}
    binding = _rbac("RoleBinding", role, names, roleRef=_role_ref(role), subjects=[subject])
    setup.create(ROLE_BINDINGS, binding, namespace)


def wait_admitted(sender: Identity, namespaces: Sequence[str]) -> None:
    """Wait until the generator may do its work in all of the namespaces: rights come a little later.

    Raises:
        WaitTimeout: it may not after 30 s.
    """
    client = KubeClient.from_kubeconfig(sender.kubeconfig)

    def admitted() -> bool:
        for namespace in namespaces:
            attributes = {"namespace": namespace, "verb": "create", "resource": "pods"}
            review = {
                "apiVersion": _ACCESS_REVIEWS.api_version,
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            }
            if not client.create(_ACCESS_REVIEWS, review)["status"]["allowed"]:
                raise NotYet(f"no right to create pods in {namespace}")
        return True

    wait_until(admitted, _SETTLE_SECONDS, "the generator's rights")


def move(client: KubeClient, identity: Identity, level: str) -> Identity:
    """Point an identity's FlowSchema at another priority level, and wait until answers say so.

    Args:
        client: who may change FlowSchemas, such as the set-up.
        identity: whose.
        level: name of the priority level, which exists.

    Raises:
        WaitTimeout: its requests are not there after 30 s.
    """
    patch = {"spec": {"priorityLevelConfiguration": {"name": level}}}
    client.patch(FLOW_SCHEMAS, identity.flow_schema, patch)
    uid = client.get(PRIORITY_LEVELS, level)["metadata"]["uid"]
    flow = identity.flow.model_copy(update={"priority_level_uid": uid})
    moved = replace(identity, priority_level=level, flow=flow)
    _wait_placed(moved)
    return moved


def placement(client: KubeClient) -> Flow:
    """Where priority and fairness puts a client's requests, from the headers of a real answer.

    Raises:
        EnvironmentBlocked: the answer has no such headers: priority and fairness is off.
    """
    # What is asked doesn't matter, nor whether it is allowed: requests are placed before they are authorized.
    headers = {key.lower(): value for key, value in client.headers(PODS.path("default", "none")).items()}
    try:
        return Flow(
            flow_schema_uid=headers[FLOW_SCHEMA_UID.lower()],
            priority_level_uid=headers[PRIORITY_LEVEL_UID.lower()],
        )
    except KeyError:
        raise EnvironmentBlocked(
            "the API server says nothing of priority and fairness; is it started with"
            " --enable-priority-and-fairness=false?"
        ) from None


def exempt_uids(client: KubeClient) -> list[str]:
    """UIDs of the exempt priority levels, and of the FlowSchemas that lead to them."""
    levels = {
        level["metadata"]["name"]: level["metadata"]["uid"]
        for level in client.list(PRIORITY_LEVELS)
        if level["spec"]["type"] == "Exempt"
    }
    schemas = [
        schema["metadata"]["uid"]
        for schema in client.list(FLOW_SCHEMAS)
        if schema["spec"]["priorityLevelConfiguration"]["name"] in levels
    ]
    return [*levels.values(), *schemas]


def flow_schema(names: Names, role: Role, level: str) -> Object:
    """The FlowSchema of one of the run's users: all of its requests, and nobody else's."""
    subject = {"name": role.value, "namespace": names.name("users")}
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}
    rule = {
        "subjects": [{"kind": "ServiceAccount", "serviceAccount": subject}],
        "resourceRules": [everything | {"clusterScope": True}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }
    return {
        "apiVersion": FLOW_SCHEMAS.api_version,
        "kind": "FlowSchema",
        "metadata": {"name": names.name(role), "labels": names.labels},
        "spec": {
            "priorityLevelConfiguration": {"name": level},
            "matchingPrecedence": _PRECEDENCE,
            "distinguisherMethod": {"type": "ByUser"},  # as `service-accounts` has it
            "rules": [rule],
        },
    }


def write_kubeconfig(path: Path, admin: Path, *, user: str, token: str) -> None:
    """Write a kubeconfig for a token, 0600, for the cluster that the admin's kubeconfig is for.

    Raises:
        UsageError: the admin's kubeconfig has no current context, or not the cluster that it names.
    """
    config = yaml.safe_load(admin.read_text())
    try:
        (context,) = [each for each in config["contexts"] if each["name"] == config["current-context"]]
        (entry,) = [each for each in config["clusters"] if each["name"] == context["context"]["cluster"]]
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{admin}: current-context: expected one of its contexts ({error})") from error
    cluster = dict(entry["cluster"])
    if authority := cluster.get("certificate-authority"):
        cluster["certificate-authority"] = str((admin.parent / authority).absolute())
    name = "load"
    written = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }
    write_atomically(path, yaml.safe_dump(written, sort_keys=False))


def forget(directory: Path) -> None:
    """Remove the kubeconfigs; the tokens in them end with their service accounts."""
    for role in Role:
        (directory / f"{role}.kubeconfig").unlink(missing_ok=True)
    if directory.exists() and not any(directory.iterdir()):
        directory.rmdir()


def _require_level(admin: KubeClient, level: str) -> None:
    found = admin.find(PRIORITY_LEVELS, level)
    if found is None:
        known = ", ".join(sorted(each["metadata"]["name"] for each in admin.list(PRIORITY_LEVELS)))
        raise UsageError(f"priority level {level!r}: the cluster has none of that name; there are: {known}")
    if found["spec"]["type"] == "Exempt":
        raise UsageError(f"priority level {level!r}: exempt from all limits; nothing measured there counts")


def _namespace(names: Names, namespace: str) -> Object:
    metadata = {"name": namespace, "labels": names.labels}
    return {"apiVersion": NAMESPACES.api_version, "kind": "Namespace", "metadata": metadata}


def _create_account(admin: KubeClient, names: Names, namespace: str, role: Role) -> None:
    account = {
        "apiVersion": SERVICE_ACCOUNTS.api_version,
        "kind": "ServiceAccount",
        "metadata": {"name": role.value, "labels": names.labels},
    }
    admin.create(SERVICE_ACCOUNTS, account, namespace)
    name = names.name(role)
    rules = list(RULES[role])
    if role is Role.SETUP:
        # It lets the generator into the namespaces that it makes, and gives nobody any other right.
        rules.append(
            {
                "apiGroups": ["rbac.authorization.k8s.io"],
                "resources": ["clusterroles"],
                "resourceNames": [names.name(Role.SENDER)],
                "verbs": ["bind"],
            }
        )
    admin.create(CLUSTER_ROLES, _rbac("ClusterRole", name, names, rules=rules))
    if role is not Role.SENDER:
        subject = {"kind": "ServiceAccount", "name": role.value, "namespace": namespace}
        binding = _rbac("ClusterRoleBinding", name, names, roleRef=_role_ref(name), subjects=[subject])
        admin.create(CLUSTER_ROLE_BINDINGS, binding)


def _rbac(kind: str, name: str, names: Names, **content: Any) -> Object:
    metadata = {"name": name, "labels": names.labels}
    return {"apiVersion": CLUSTER_ROLES.api_version, "kind": kind, "metadata": metadata, **content}


def _role_ref(name: str) -> Object:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}


def _token(admin: KubeClient, namespace: str, role: Role, seconds: float) -> str:
    wanted = max(_LEAST_TOKEN_SECONDS, int(seconds) + 1)
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": wanted},
    }
    path = SERVICE_ACCOUNTS.path(namespace, role, "token")
    status = json.loads(admin.request("POST", path, body=request))["status"]
    expires = datetime.datetime.fromisoformat(status["expirationTimestamp"])
    left = (expires - datetime.datetime.now(datetime.UTC)).total_seconds()
    if left < seconds - 60:
        raise EnvironmentBlocked(
            f"the cluster's tokens are valid for {left:.0f} s, and the run may take {seconds:.0f} s"
        )
    token: str = status["token"]
    return token


def _wait_placed(identity: Identity) -> None:
    client = KubeClient.from_kubeconfig(identity.kubeconfig)

    def placed() -> bool:
        found = placement(client)
        if found != identity.flow:
            raise NotYet(f"{identity.user} is in {found}, expected {identity.flow}")
        return True

    try:
        wait_until(placed, _SETTLE_SECONDS, f"the requests of {identity.user} to be in their level")
    except WaitTimeout as error:
        raise EnvironmentBlocked(str(error)) from error
