"""A priority level of the run's own, and who falls into it.

A component is squeezed by a FlowSchema that names its user and the run's namespaces, so that nobody else's
requests fall into the level. The generator is squeezed by pointing its own FlowSchema at the level: the UID
in its answers stays the same.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.kube import FLOW_SCHEMAS, PRIORITY_LEVELS, KubeClient, Object
from load.scenarios.occupant import Occupant

_PRECEDENCE = 150
"""Before the components' own schemas, which come at 800 and 900."""


class Response(enum.StrEnum):
    """What a full level does with a request."""

    REJECT = "reject"
    SHORT_QUEUE = "queue-1x5"
    """One queue of five requests."""
    LONG_QUEUES = "queue-64x50"
    """64 queues of 50 requests."""


class Victim(enum.StrEnum):
    """Whose requests go into the level."""

    GENERATOR = "generator"
    CONTROLLER_MANAGER = "kcm"
    SCHEDULER = "scheduler"
    KUBELET = "kubelet"


USERS = {
    Victim.CONTROLLER_MANAGER: (
        "system:serviceaccount:kube-system:resource-claim-controller",
        "system:kube-controller-manager",
    ),
    Victim.SCHEDULER: ("system:kube-scheduler",),
}
"""The claim controller has a user of its own where the controller manager uses service accounts."""

EVERYTHING: Mapping[str, list[str]] = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
MAKING_CLAIMS: Mapping[str, list[str]] = {
    "verbs": ["create"],
    "apiGroups": ["resource.k8s.io"],
    "resources": ["resourceclaims"],
}
"""Requests, as a FlowSchema's rule names them."""

_QUEUING = {
    Response.SHORT_QUEUE: {"queues": 1, "queueLengthLimit": 5, "handSize": 1},
    Response.LONG_QUEUES: {"queues": 64, "queueLengthLimit": 50, "handSize": 6},
}


def level(name: str, shares: int, response: Response, labels: Mapping[str, str]) -> Object:
    """A PriorityLevelConfiguration that neither lends seats nor borrows any."""
    limit: Object = {"type": "Reject"}
    if response is not Response.REJECT:
        limit = {"type": "Queue", "queuing": _QUEUING[response]}
    limited = {
        "nominalConcurrencyShares": shares,
        "lendablePercent": 0,
        "borrowingLimitPercent": 0,
        "limitResponse": limit,
    }
    return {
        "apiVersion": PRIORITY_LEVELS.api_version,
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {"type": "Limited", "limited": limited},
    }


def schema(
    name: str,
    level_name: str,
    users: Sequence[str],
    namespaces: Sequence[str],
    labels: Mapping[str, str],
    *more: Object,
    requests: Mapping[str, list[str]] = EVERYTHING,
) -> Object:
    """A FlowSchema for such requests of these users in these namespaces; `more` are further rules."""
    rule = {
        "subjects": [{"kind": "User", "user": {"name": user}} for user in users],
        "resourceRules": [{**requests, "namespaces": list(namespaces)}],
    }
    return {
        "apiVersion": FLOW_SCHEMAS.api_version,
        "kind": "FlowSchema",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {
            "matchingPrecedence": _PRECEDENCE,
            "priorityLevelConfiguration": {"name": level_name},
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [rule, *more],
        },
    }


@dataclass(frozen=True)
class Place:
    """Where a squeeze applies."""

    kube: KubeClient
    name: str
    """Of the level and of the schema."""
    labels: Mapping[str, str]
    namespaces: Sequence[str]
    sender_schema: str
    """Name of the generator's own FlowSchema."""


class Squeeze:
    """One victim in one level, for as long as it is on.

    With an `occupant`, who has the level's one place, it is shut for the claims that the victim makes; all
    else that the victim does isn't touched.
    """

    def __init__(
        self, place: Place, victim: Victim, users: Sequence[str], *, occupant: Occupant | None = None
    ) -> None:
        self._place = place
        self._victim = victim
        self._users = users
        self._occupant = occupant
        self._sender_level: str | None = None

    @property
    def schema(self) -> str:
        """Name of the FlowSchema whose requests are squeezed."""
        return self._place.sender_schema if self._victim is Victim.GENERATOR else self._place.name

    def create_level(self, shares: int, response: Response) -> None:
        """Make the level, with nobody in it yet: it begins to count from nothing before anyone comes."""
        self._place.kube.create(
            PRIORITY_LEVELS, level(self._place.name, shares, response, self._place.labels)
        )

    def on(self) -> None:
        """Let the victim fall into the level."""
        kube, place = self._place.kube, self._place
        if self._victim is Victim.GENERATOR:
            stored = kube.get(FLOW_SCHEMAS, place.sender_schema)
            self._sender_level = stored["spec"]["priorityLevelConfiguration"]["name"]
            self._point(place.name)
        else:
            kube.create(FLOW_SCHEMAS, self._schema())
        if self._occupant:
            self._occupant.start()

    def _schema(self) -> Object:
        place = self._place
        names = (place.name, place.name, self._users, place.namespaces, place.labels)
        if self._occupant is None:
            return schema(*names)
        return schema(*names, self._occupant.rule(), requests=MAKING_CLAIMS)

    def off(self) -> None:
        """Give the victim its own place back. The level stays, so that its counters can be read."""
        if self._occupant:
            self._occupant.leave()
        if self._victim is Victim.GENERATOR:
            if self._sender_level is not None:
                self._point(self._sender_level)
                self._sender_level = None
        else:
            self._place.kube.delete(FLOW_SCHEMAS, self._place.name)

    def remove(self) -> None:
        """Take everything away."""
        self.off()
        self._place.kube.delete(PRIORITY_LEVELS, self._place.name)

    def _point(self, level_name: str) -> None:
        patch = {"spec": {"priorityLevelConfiguration": {"name": level_name}}}
        self._place.kube.patch(FLOW_SCHEMAS, self._place.sender_schema, patch)
