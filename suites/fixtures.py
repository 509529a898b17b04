"""The fixtures of the checks: cluster, client, names, namespace, drivers, workloads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters.existing.guard import OwnOnly
from clusters.existing.provider import PROVIDER
from clusters.interface import Cluster
from harness.kube import NAMESPACES, SERVICE_ACCOUNTS, KubeClient
from harness.waiting import wait_until
from suites import footprint, target
from suites.control import control
from suites.drivers import Drivers
from suites.evidence import evidence
from suites.naming import LABEL, Names
from suites.workload import Workloads

__all__ = [
    "cluster",
    "connection",
    "control",
    "drivers",
    "evidence",
    "kube",
    "names",
    "namespace",
    "workloads",
]


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config) -> Cluster:
    """The cluster that the run is against."""
    file: Path | None = pytestconfig.getoption("--cluster-file")
    if file is None:
        raise pytest.UsageError("checks run through `dra-harness run`, which passes --cluster-file")
    return target.read_cluster(file)


@pytest.fixture(scope="session")
def connection(cluster: Cluster) -> KubeClient:
    """A connection to the cluster's API that checks share."""
    return KubeClient.from_kubeconfig(cluster.kubeconfig)


@pytest.fixture
def kube(
    request: pytest.FixtureRequest, cluster: Cluster, connection: KubeClient, names: Names
) -> KubeClient:
    """The cluster's API, as admin; on somebody else's cluster it writes to what is the check's own alone."""
    if cluster.provider == PROVIDER and cluster.driver_image:
        return OwnOnly.of(connection, names.run_id)  # the list has no checks that start drivers
    if cluster.provider == PROVIDER:
        return OwnOnly.of(
            connection, names.run_id, lambda path: footprint.allows(request.node.nodeid, names, path)
        )
    return connection.sharing()


@pytest.fixture
def names(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Names:
    """Names of this check's own."""
    return Names(pytestconfig.getoption("--run-dir").name, request.node.nodeid)


@pytest.fixture
def namespace(kube: KubeClient, names: Names) -> Iterator[str]:
    """A namespace of this check's own, ready to take pods."""
    name = names.name()
    manifest = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {LABEL: names.run_id}},
    }
    kube.create(NAMESPACES, manifest)
    # Pods are refused until the service account controller has made the namespace's default account.
    wait_until(
        lambda: kube.find(SERVICE_ACCOUNTS, "default", name), 60, f"the default service account of {name}"
    )
    yield name
    kube.delete(NAMESPACES, name)


@pytest.fixture
def drivers(
    cluster: Cluster, kube: KubeClient, names: Names, pytestconfig: pytest.Config
) -> Iterator[Drivers]:
    """Makes drivers and classes for the check."""
    made = Drivers(cluster, kube, names, pytestconfig.getoption("--quirk"))
    yield made
    made.clear()


@pytest.fixture
def workloads(kube: KubeClient, namespace: str, drivers: Drivers) -> Iterator[Workloads]:
    """Makes pods for the check. They go before the drivers, which have to unprepare them."""
    made = Workloads(kube, namespace)
    yield made
    made.clear()
