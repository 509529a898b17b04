"""Rejecting chosen requests of one component in one namespace, with API priority and fairness.

A priority level of no seats, neither its own nor borrowed, still lets one request through at a time. So a
request of the check's own takes that place and stays there: its body never ends. Whatever else a flow schema
sends to the level is rejected. A low limit alone would not do: clients repeat a rejected request up to ten
times, and in the end get through. The schema names the check's own namespace, so nobody else is touched.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import urllib3

from clusters import metrics
from clusters.interface import Cluster
from harness.kube import (
    FLOW_SCHEMAS,
    PRIORITY_LEVELS,
    RESOURCE_CLAIMS,
    ApiError,
    KubeClient,
    Object,
    Resource,
)
from harness.waiting import NotYet, wait_until
from suites.naming import LABEL, Names

MAX_ATTEMPTS = 11
"""How often client-go sends a request that is rejected with 429: once, and ten times again."""

# What every authenticated user may create, and what leaves nothing behind.
_ACCESS_REVIEWS = Resource("authorization.k8s.io/v1", "selfsubjectaccessreviews", namespaced=False)
_SELF_REVIEWS = Resource("authentication.k8s.io/v1", "selfsubjectreviews", namespaced=False)
_METHODS = {"create": "POST", "update": "PUT", "delete": "DELETE", "get": "GET"}
_PRECEDENCE = 100  # the schemas of the components come later, at 800 and 900
_HEARTBEAT_SECONDS = 0.1
_OCCUPY_SECONDS = 50.0  # the API server ends a request after 60


class Squeeze:
    """A flow schema of the check's own, and the full priority level that its requests fall into."""

    def __init__(self, cluster: Cluster, kube: KubeClient, names: Names, namespace: str) -> None:
        self.name = names.name("squeeze")
        self._cluster = cluster
        self._kube = kube
        self._namespace = namespace
        self._labels = {LABEL: names.run_id}
        self._occupant = _Occupant(kube, names.name("occupant"))
        self._clients: list[KubeClient] = []
        self._verbs: Sequence[str] = ()
        self._resources: Sequence[str] = ()
        self._at_start = 0.0

    def start(
        self,
        users: Mapping[str, KubeClient],
        verbs: Sequence[str],
        resources: Sequence[str] = ("resourceclaims",),
    ) -> None:
        """Reject requests in the check's namespace from now on.

        Args:
            users: whose, by name, each with a client that acts as it.
            verbs: which, of those on `resources`.
            resources: of the group resource.k8s.io; `resourceclaims/status` is one by itself.
        """
        self._clients, self._verbs, self._resources = list(users.values()), verbs, resources
        limits = {
            "nominalConcurrencyShares": 0,
            "lendablePercent": 0,
            "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Reject"},
        }
        rejected = _rule(users, "resource.k8s.io", resources, verbs, namespaces=[self._namespace])
        place = _rule(
            [self._occupant.user],
            "authorization.k8s.io",
            [_ACCESS_REVIEWS.plural],
            ["create"],
            clusterScope=True,
        )
        self._create(PRIORITY_LEVELS, "PriorityLevelConfiguration", {"type": "Limited", "limited": limits})
        self._create(
            FLOW_SCHEMAS,
            "FlowSchema",
            {
                "matchingPrecedence": _PRECEDENCE,
                "priorityLevelConfiguration": {"name": self.name},
                "rules": [rejected, place],
            },
        )
        self._occupant.start()
        self._wait(rejected=True)
        self._at_start = self._total()

    def _create(self, resource: Resource, kind: str, spec: Object) -> None:
        metadata = {"name": self.name, "labels": self._labels}
        manifest = {"apiVersion": resource.api_version, "kind": kind, "metadata": metadata, "spec": spec}
        self._kube.create(resource, manifest)

    def stop(self) -> None:
        """Let the requests through again."""
        self.clear()
        self._wait(rejected=False)

    def clear(self) -> None:
        """Remove whatever is there."""
        self._kube.delete(FLOW_SCHEMAS, self.name)
        self._kube.delete(PRIORITY_LEVELS, self.name)
        self._occupant.leave()

    def rejections(self) -> int:
        """How many requests the API server has rejected since the start, by its own count."""
        return int(self._total() - self._at_start)

    def _total(self) -> float:
        samples = metrics.read(self._cluster, self._kube, metrics.APISERVER)
        name = "apiserver_flowcontrol_rejected_requests_total"
        return metrics.total(samples, name, flow_schema=self.name)

    def _wait(self, *, rejected: bool) -> None:
        """Wait until such requests are rejected, or no longer: tried with an object that doesn't exist."""

        def settled() -> bool:
            seen = [
                self._rejects(client, verb, resource)
                for client in self._clients
                for verb in self._verbs
                for resource in self._resources
            ]
            if set(seen) != {rejected}:
                if rejected:
                    self._occupant.retry()
                raise NotYet(f"{seen.count(True)} of {len(seen)} kinds of requests are rejected")
            return True

        what = f"requests to be {'rejected' if rejected else 'let through'} by {self.name}"
        wait_until(settled, 30, what, interval=0.5)

    def _rejects(self, client: KubeClient, verb: str, resource: str) -> bool:
        _, _, subresource = resource.partition("/")
        path = RESOURCE_CLAIMS.path(self._namespace, None if verb == "create" else "absent", subresource)
        query = {} if verb == "get" else {"dryRun": "All"}
        body: Object | None = {} if verb in ("create", "update") else None
        try:
            client.request(_METHODS[verb], path, body=body, query=query)
        except ApiError as error:
            return error.status == 429
        return False


class _Occupant:
    """A request that takes the one place of a priority level and does not end: it is always about to."""

    def __init__(self, kube: KubeClient, user: str) -> None:
        self.user = user
        self._client = kube.acting_as(user)
        self._left = threading.Event()
        self._again = threading.Event()
        self._thread = threading.Thread(target=self._occupy, name=user, daemon=True)

    def start(self) -> None:
        """Ask for the place."""
        self._thread.start()

    def retry(self) -> None:
        """Ask again: the place was taken, which a request that is still being sent doesn't notice."""
        self._again.set()

    def leave(self) -> None:
        """Free the place."""
        self._left.set()
        self._again.set()
        if self._thread.is_alive():
            self._thread.join()

    def _occupy(self) -> None:
        while not self._left.is_set():
            self._again.clear()
            try:
                self._client.request("POST", _ACCESS_REVIEWS.path(), body=self._incomplete())
            except (ApiError, OSError, urllib3.exceptions.HTTPError):
                continue  # rejected, or taken at its word when the body ends

    def _incomplete(self) -> Iterator[bytes]:
        """The spaces before a JSON object that never comes."""
        deadline = time.monotonic() + _OCCUPY_SECONDS
        while not self._left.is_set() and not self._again.wait(_HEARTBEAT_SECONDS):
            if time.monotonic() > deadline:
                return
            yield b" "


def _rule(
    users: Mapping[str, Any] | Sequence[str],
    group: str,
    resources: Sequence[str],
    verbs: Sequence[str],
    **where: Any,
) -> Object:
    requests = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs), **where}
    subjects = [{"kind": "User", "user": {"name": user}} for user in users]
    return {"subjects": subjects, "resourceRules": [requests]}


def scheduler(kube: KubeClient) -> dict[str, KubeClient]:
    """The scheduler's user."""
    return {"system:kube-scheduler": kube.acting_as("system:kube-scheduler")}


def claim_controller(kube: KubeClient) -> dict[str, KubeClient]:
    """The users that the controller of claims may have: its own, or the controller manager's."""
    users = ("system:serviceaccount:kube-system:resource-claim-controller", "system:kube-controller-manager")
    return {user: kube.acting_as(user) for user in users}


def kubelet(kube: KubeClient, node: str) -> dict[str, KubeClient]:
    """The user of a node's kubelet."""
    user = f"system:node:{node}"
    return {user: kube.acting_as(user, group="system:nodes")}


def driver(cluster: Cluster) -> dict[str, KubeClient]:
    """The user of the bundled driver, as the API server knows it."""
    client = KubeClient.from_kubeconfig(cluster.driver_kubeconfig)
    review = {"apiVersion": _SELF_REVIEWS.api_version, "kind": "SelfSubjectReview"}
    return {client.create(_SELF_REVIEWS, review)["status"]["userInfo"]["username"]: client}
