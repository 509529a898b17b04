"""Metrics of the cluster's components, read as values.

Names differ between releases (see `requirements` of the catalogue), so sums go over a choice of names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import urllib3
from prometheus_client.parser import text_string_to_metric_families

from clusters.interface import Cluster
from harness.errors import EnvironmentBlocked
from harness.kube import ApiError, KubeClient

APISERVER = "kube-apiserver"
SCHEDULER = "kube-scheduler"
CONTROLLER_MANAGER = "kube-controller-manager"


@dataclass(frozen=True)
class Sample:
    """One value of one metric."""

    name: str
    labels: dict[str, str] = field(default_factory=dict)
    value: float = 0.0


def read(cluster: Cluster, kube: KubeClient, component: str, *, prefixes: Sequence[str] = ()) -> list[Sample]:
    """The samples of a component: the API server, the scheduler, the controller manager or kubelet/<node>.

    Args:
        cluster: where.
        kube: the admin's.
        component: whose.
        prefixes: only samples whose names start with one of these; all if there are none. A busy API server
            has a hundred thousand samples, which take seconds to parse.

    Raises:
        EnvironmentBlocked: the cluster doesn't say where the component serves its metrics.
        ApiError: it answers with a status of 400 and above; what it says then are no metrics.
    """
    return parse(_text(cluster, kube, component), prefixes=prefixes)


def parse(text: str, *, prefixes: Sequence[str] = ()) -> list[Sample]:
    """The samples in a text of metrics, of those names only that start with one of the prefixes, if any."""
    if prefixes:
        text = "".join(line for line in text.splitlines(keepends=True) if line.startswith(tuple(prefixes)))
    families = text_string_to_metric_families(text)
    return [
        Sample(sample.name, dict(sample.labels), sample.value)
        for family in families
        for sample in family.samples
    ]


def total(samples: Sequence[Sample], *names: str, **labels: str) -> float:
    """The sum over all samples that have one of the names and all of the labels; 0 if there is none."""
    return sum(
        sample.value for sample in samples if sample.name in names and labels.items() <= sample.labels.items()
    )


def _text(cluster: Cluster, kube: KubeClient, component: str) -> str:
    if component == APISERVER:
        return kube.metrics()
    program, _, node = component.partition("/")
    if program == "kubelet" and component not in cluster.endpoints:
        return kube.request("GET", f"/api/v1/nodes/{node}/proxy/metrics", accept="*/*")
    if component not in cluster.endpoints:
        raise EnvironmentBlocked(f"the cluster doesn't say where {component} serves its metrics")
    pki = cluster.directory / "pki"
    with urllib3.PoolManager(
        ca_certs=str(pki / "ca.crt"),
        cert_file=str(pki / "admin.crt"),
        key_file=str(pki / "admin.key"),
        retries=False,
    ) as pool:
        address = f"{cluster.endpoints[component]}/metrics"
        answer = pool.request("GET", address, timeout=10.0)
        text = answer.data.decode(errors="replace")
        if answer.status >= 400:
            raise ApiError("GET", address, answer.status, text)
        return text
