"""Removes what a run's checks left on a cluster that stays: after an interrupt, or the death of a worker.

Only what carries the run's id is touched: its drivers' processes, and objects with its label.
"""

from __future__ import annotations

from collections.abc import Sequence

import urllib3

from clusters import driver_host, leftovers
from clusters.interface import Cluster
from harness.errors import HarnessError
from harness.kube import PODS, RESOURCE_SLICES, ApiError, KubeClient
from harness.waiting import WaitTimeout, wait_until

_GONE_SECONDS = 60.0
_TROUBLE = (ApiError, OSError, urllib3.exceptions.HTTPError, WaitTimeout)
"""What a cluster can do to a sweep: it doesn't answer, refuses, or keeps what is to go for too long."""


def sweep(cluster: Cluster, run_id: str) -> None:
    """Remove everything of a run; what is not there is fine.

    Pods go first, while their drivers can still unprepare them. A pod that hangs is left to its namespace.

    Raises:
        HarnessError: the API server can't be reached or refuses, or drivers in pods stay; those of this
            machine have been ended.
    """
    kube = KubeClient.from_kubeconfig(cluster.kubeconfig)
    try:
        try:
            _remove_objects(kube, run_id)
        finally:
            drivers = driver_host.kill_all(cluster, run_id)
        _remove_slices(kube, drivers)
    except _TROUBLE as error:
        message = f"what run {run_id} left on cluster {cluster.name} could not be removed: {error}"
        raise HarnessError(message) from error


def _remove_objects(kube: KubeClient, run_id: str) -> None:
    leftovers.remove_cluster_scoped(kube, run_id)
    namespaces = leftovers.namespaces_of(kube, run_id)
    for namespace in namespaces:
        leftovers.remove(kube, namespace)
    _wait_no_pods(kube, [namespace.name for namespace in namespaces])


def _remove_slices(kube: KubeClient, drivers: Sequence[str]) -> None:
    for driver in drivers:
        for slice_ in kube.list(RESOURCE_SLICES, fields=f"spec.driver={driver}"):
            kube.delete(RESOURCE_SLICES, slice_["metadata"]["name"], uid=slice_["metadata"]["uid"])


def _wait_no_pods(kube: KubeClient, namespaces: list[str]) -> None:
    def none() -> bool:
        return not any(kube.list(PODS, namespace) for namespace in namespaces)

    try:
        wait_until(none, _GONE_SECONDS, "the pods of the run to be gone")
    except WaitTimeout:
        return
