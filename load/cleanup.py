"""What a load run leaves on a cluster: counted before and after, and taken away."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import urllib3

from clusters import leftovers
from clusters.interface import Cluster
from harness.errors import HarnessError
from harness.kube import (
    METADATA_LIST,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    KubeClient,
    Object,
    Resource,
)
from harness.waiting import NotYet, WaitTimeout, wait_until
from load import identity
from load.model import Violation
from load.naming import Names

_SECONDS_PER_OBJECT = 0.3
"""With the default limits the claim controller lets go of some seven claims per second."""


@dataclass(frozen=True)
class Census:
    """The pods and claims in a run's namespaces at a moment."""

    at: float
    """Seconds, of time.time()."""
    claims: Mapping[str, str]
    """By UID, namespace/name."""
    deleting: Mapping[str, str]
    """Those of them that were deleted and are held by finalizers."""
    pods: Mapping[str, str]


def census(kube: KubeClient, names: Names) -> Census:
    """Count what is in the namespaces of a run, whoever made it."""
    claims = _metadata(kube, RESOURCE_CLAIMS, names)
    deleting = [each for each in claims if "deletionTimestamp" in each]
    pods = _metadata(kube, PODS, names)
    return Census(time.time(), _by_uid(claims), _by_uid(deleting), _by_uid(pods))


def leaks(before: Census, after: Census) -> list[Violation]:
    """The claims that came and did not go again, and those that finalizers hold."""
    return [
        Violation(
            invariant="leaked-finalizer" if uid in after.deleting else "leaked-claim",
            at=after.at,
            object=name,
            message="is still there after the drain"
            + (": deleted, but a finalizer holds it" if uid in after.deleting else ""),
        )
        for uid, name in after.claims.items()
        if uid not in before.claims
    ]


def settle(
    kube: KubeClient, names: Names, before: Census, seconds: float, *, each: float = 0.0
) -> list[Violation]:
    """Wait until nothing is there that wasn't before; returns what is leaked then.

    Args:
        kube: the admin's.
        names: of the run.
        before: what was there.
        seconds: how long to wait at the most, besides
        each: for every claim that is there now.
    """
    last = leaks(before, census(kube, names))
    seconds += each * len(last)

    def settled() -> bool:
        last[:] = leaks(before, census(kube, names))
        if last:
            raise NotYet(f"{len(last)} claims, such as {last[0].object}")
        return True

    try:
        wait_until(settled, seconds, "the claims of the run to be gone", interval=0.5)
    except WaitTimeout:
        return last
    return []


def counts(kube: KubeClient) -> dict[str, int]:
    """How many objects of each kind that load runs make are stored, exactly; cheap for the API server."""
    kinds = (PODS, RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_SLICES, NODES)
    found = {}
    for kind in kinds:
        first, more = kube.metadata(kind, limit=1)
        found[kind.plural] = len(first) + more
    return found


def sweep(cluster: Cluster, run_id: str, *, grace_seconds: int | None = 0, seconds: float = 120.0) -> None:
    """Take everything of a run away, also of one that was killed; what is not there is fine.

    Args:
        cluster: where.
        run_id: of the run.
        grace_seconds: of its pods; 0 for simulated nodes, None leaves real kubelets the pods' own.
        seconds: how long each step may take, besides what the claim controller needs for each claim.

    Raises:
        HarnessError: the API server can't be reached, or something was still there at the end.
    """
    kube = KubeClient.from_kubeconfig(cluster.kubeconfig)
    try:
        spaces = leftovers.namespaces_of(kube, run_id)
        for namespace in spaces:
            _empty(kube, PODS, namespace.name, grace_seconds, seconds)
            _empty(kube, RESOURCE_CLAIMS, namespace.name, None, seconds)
        leftovers.remove_cluster_scoped(kube, run_id)
        for namespace in spaces:
            leftovers.remove(kube, namespace)
        wait_until(lambda: _nothing(kube, run_id), seconds, f"everything of run {run_id} to be gone")
    except (urllib3.exceptions.HTTPError, OSError, WaitTimeout) as error:
        raise HarnessError(
            f"what run {run_id} made on cluster {cluster.name} could not be removed: {error}"
        ) from error


def clean(cluster: Cluster, run_id: str, credentials: Path, *, grace_seconds: int | None = 0) -> None:
    """End a run's identities, then `sweep`."""
    identity.forget(credentials)
    sweep(cluster, run_id, grace_seconds=grace_seconds)


def _nothing(kube: KubeClient, run_id: str) -> bool:
    if left := leftovers.remaining(kube, run_id):
        raise NotYet(", ".join(left))
    return True


def _empty(
    kube: KubeClient, kind: Resource, namespace: str, grace_seconds: int | None, seconds: float
) -> None:
    """Delete all objects of a kind in a namespace, and wait until they are gone."""
    grace = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
    first, more = kube.metadata(kind, namespace, limit=1)
    deadline = seconds + _SECONDS_PER_OBJECT * (len(first) + more)

    def empty() -> bool:
        kube.request("DELETE", kind.path(namespace), query=grace, accept=METADATA_LIST)
        first, more = kube.metadata(kind, namespace, limit=1)
        if first:
            raise NotYet(f"{1 + more}, such as {first[0]['name']}")
        return True

    wait_until(empty, deadline, f"{kind.plural} of {namespace} to be gone", interval=0.5)


def _metadata(kube: KubeClient, kind: Resource, names: Names) -> list[Object]:
    found, _ = kube.metadata(kind)
    return [each for each in found if each["namespace"].startswith(names.prefix)]


def _by_uid(found: Sequence[Object]) -> dict[str, str]:
    return {each["uid"]: f"{each['namespace']}/{each['name']}" for each in found}
