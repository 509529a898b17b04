"""Somebody who lists pods over and over in a victim's priority level, in a flow of its own."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import urllib3

from harness.kube import FLOW_SCHEMAS, PODS, PRIORITY_LEVELS, Resource
from load.books import CANCELLED, ApfFlow
from load.identity import FLOW_SCHEMA_UID, PRIORITY_LEVEL_UID
from load.scenarios.squeeze import Place, schema

_ROLE_BINDINGS = Resource("rbac.authorization.k8s.io/v1", "rolebindings", namespaced=True)
_ROLES = Resource("rbac.authorization.k8s.io/v1", "roles", namespaced=True)


class Aggressor:
    """Lists all pods of the run's namespaces in several threads, in the level that the place names.

    A list is charged by the number of objects, up to ten seats. Only requests are counted whose answers say
    that they fell under the aggressor's own FlowSchema, in that level: it takes a moment until a new one is
    in force.
    """

    def __init__(self, place: Place, threads: int) -> None:
        self.user = f"{place.name}-aggressor"
        """Also the name of its FlowSchema, so that its rejections are told apart from the victim's."""
        self._place = place
        self._client = place.kube.acting_as(self.user)
        self._left = threading.Event()
        self._threads = [
            threading.Thread(target=self._list, name=self.user, daemon=True) for _ in range(threads)
        ]
        self._mine = ("", "")
        self._lock = threading.Lock()
        self._answers: Counter[int] = Counter()

    @property
    def listed(self) -> int:
        """Lists that it got in the victim's level."""
        return self._answers[200]

    @property
    def rejected(self) -> int:
        """Answers 429 in the victim's level."""
        return self._answers[429]

    @property
    def answered(self) -> int:
        """All answers in the victim's level."""
        return self._answers.total() - self._answers[0]

    def start(self) -> None:
        """Give the user its right and its place in the level, which has to be there, and begin."""
        kube, place = self._place.kube, self._place
        for namespace in place.namespaces:
            for resource, manifest in self._rights():
                kube.create(resource, manifest, namespace)
        made = kube.create(
            FLOW_SCHEMAS, schema(self.user, place.name, [self.user], place.namespaces, place.labels)
        )
        level = kube.get(PRIORITY_LEVELS, place.name)
        self._mine = (made["metadata"]["uid"], level["metadata"]["uid"])
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End, and take right and place away."""
        self._left.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(10)
        self._place.kube.delete(FLOW_SCHEMAS, self.user)
        for namespace in self._place.namespaces:
            for resource in (_ROLE_BINDINGS, _ROLES):
                self._place.kube.delete(resource, self.user, namespace)

    def doubts(self, flows: Sequence[ApfFlow]) -> list[str]:
        """Why it can't be said that it pressed on the victim as it should, by what the server counted."""
        if not self.answered:
            return ["no request of the aggressor came into the victim's priority level"]
        place, unanswered = (self.user, self._place.name), self._answers[0]
        mine = [each for each in flows if (each.flow_schema, each.priority_level) == place]
        counted = {
            "answers 429": (self.rejected, sum(_rejected(each) for each in mine)),
            "other answers": (self.answered - self.rejected, sum(each.dispatched for each in mine)),
        }
        return [
            f"the books don't balance: the aggressor's {name}: {client}, but {server} by the API server"
            for name, (client, server) in counted.items()
            if not client <= server <= client + unanswered
        ]

    def _list(self) -> None:
        while not self._left.is_set():
            for namespace in self._place.namespaces:
                status = self._ask(namespace)
                if status != 200:
                    self._left.wait(0.05 if status else 0.5)

    def _ask(self, namespace: str) -> int:
        """The status of one list, counted if it was in the level; 0 without an answer."""
        try:
            answer = self._client.connection.send("GET", PODS.path(namespace))
        except (OSError, urllib3.exceptions.HTTPError):
            self._count(0)
            return 0
        answer.release_conn()
        if (answer.headers.get(FLOW_SCHEMA_UID), answer.headers.get(PRIORITY_LEVEL_UID)) == self._mine:
            self._count(answer.status)
        status: int = answer.status
        return status

    def _count(self, status: int) -> None:
        with self._lock:
            self._answers[status] += 1

    def _rights(self) -> list[tuple[Resource, Any]]:
        group = "rbac.authorization.k8s.io"
        metadata = {"name": self.user, "labels": dict(self._place.labels)}
        rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
        return [
            (
                _ROLES,
                {"apiVersion": _ROLES.api_version, "kind": "Role", "metadata": metadata, "rules": [rule]},
            ),
            (
                _ROLE_BINDINGS,
                {
                    "apiVersion": _ROLE_BINDINGS.api_version,
                    "kind": "RoleBinding",
                    "metadata": metadata,
                    "roleRef": {"apiGroup": group, "kind": "Role", "name": self.user},
                    "subjects": [{"apiGroup": group, "kind": "User", "name": self.user}],
                },
            ),
        ]


def _rejected(flow: ApfFlow) -> int:
    return sum(count for reason, count in flow.rejected.items() if reason != CANCELLED)
