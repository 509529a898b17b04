"""Removes what dead runs left on somebody else's cluster: by label and UID, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from clusters import driver_pods, leftovers
from clusters.existing.presence import ServerClock, is_alive
from clusters.leftovers import Found, Leftover
from harness.errors import HarnessError
from harness.kube import NAMESPACES, KubeClient
from harness.labels import DRIVERS, RUN
from harness.waiting import NotYet, WaitTimeout, wait_until

_GONE_SECONDS = 120.0


@dataclass(frozen=True)
class Litter:
    """What runs have on a cluster."""

    dead: tuple[Leftover, ...]
    """Of runs that are no more, in the order in which it can go."""
    alive: tuple[str, ...]
    """Runs that say that they are alive; what is theirs is left alone."""
    unseen: tuple[str, ...]
    """Kinds that the user may not list: whether there is anything of them is not known."""


def look(kube: KubeClient, known_dead: Collection[str] = ()) -> Litter:
    """Tell what is left.

    Args:
        kube: of whoever cleans.
        known_dead: runs that ended on this machine without cleaning up, whatever their Lease says yet.

    Raises:
        ApiError: the API server refuses, other than to list a kind.
    """
    found: Found = leftovers.find(kube, kinds=(*leftovers.CLUSTER_SCOPED, NAMESPACES))
    drivers = leftovers.find(kube, kinds=driver_pods.KINDS, label=DRIVERS)
    found = Found((*found.objects, *drivers.objects), tuple(dict.fromkeys((*found.unseen, *drivers.unseen))))
    now = ServerClock(kube).now()
    runs = {each.run for each in found.objects}
    alive = {run for run in runs if run not in known_dead and is_alive(kube, run, now)}
    dead = tuple(each for each in found.objects if each.run not in alive)
    return Litter(dead, tuple(sorted(alive)), found.unseen)


def remove(kube: KubeClient, litter: Litter) -> None:
    """Delete what is left of dead runs, and wait until it is gone.

    Raises:
        HarnessError: something is still there after two minutes, or drivers in pods after one.
        ApiError: the API server refuses.
    """
    runs_own = [each for each in litter.dead if each.label == RUN]
    for leftover in runs_own:
        leftovers.remove(kube, leftover)
    try:
        _wait_gone(kube, runs_own)
        for run in sorted({each.run for each in litter.dead if each.label == DRIVERS}):
            driver_pods.remove_all(kube, run)
    except WaitTimeout as error:
        raise HarnessError(str(error)) from error


def _wait_gone(kube: KubeClient, removed: Sequence[Leftover]) -> None:
    uids = {each.uid for each in removed}
    kinds = {each.resource.plural: each.resource for each in removed}

    def gone() -> bool:
        left = [each for each in leftovers.find(kube, kinds=kinds.values()).objects if each.uid in uids]
        if left:
            raise NotYet(", ".join(map(str, left)))
        return True

    wait_until(gone, _GONE_SECONDS, "what dead runs left to be gone")
