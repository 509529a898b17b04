"""What a cluster says of itself to whoever has credentials for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from clusters import metrics
from clusters.existing import reach
from clusters.interface import Profile
from clusters.local.simulated import SIMULATED
from clusters.node_ready import keeps_pods_away, not_ready
from clusters.profiles import feature_gates
from harness.kube import NODES, RESOURCE_SLICES, ApiError, KubeClient, Object

_GATE_METRIC = "kubernetes_feature_enabled"
_GROUP = "/apis/resource.k8s.io"


@dataclass(frozen=True)
class Facts:
    """One look at a cluster."""

    user: str
    kubernetes: str
    """The API server's version."""
    gates: Mapping[str, bool] | None
    """Of the API server, by its own metric; None if that can't be read. Other components may differ."""
    api_versions: tuple[str, ...]
    """Of resource.k8s.io, the preferred one first; none if the group isn't served."""
    nodes: tuple[str, ...]
    """Real nodes that are Ready and take any pod, by name."""
    nodes_not_ready: tuple[str, ...]
    nodes_tainted: tuple[str, ...]
    """Ready, and keeping pods away: cordoned, or with a taint, as those of control planes have."""
    simulated_nodes: int
    """Nodes that exist only in the API: ours, and anybody's of kwok."""
    drivers: Mapping[str, int] | None
    """Driver -> how many ResourceSlices it has published; None if they can't be listed."""

    @property
    def serves_claims(self) -> bool:
        """Whether there is the API that everything here is about."""
        return "v1" in self.api_versions

    @property
    def profile(self) -> Profile:
        """`alpha` if every DRA gate that the release knows is on, as far as can be seen."""
        wanted = feature_gates(Profile.ALPHA, self.kubernetes)
        return Profile.ALPHA if self.gates and wanted.items() <= self.gates.items() else Profile.GA


def look(kube: KubeClient) -> Facts:
    """Ask the API server.

    Raises:
        EnvironmentBlocked: its version is none of those that are supported, or there are no credentials.
        ApiError: it refuses the credentials, or to list nodes.
    """
    kubernetes = reach.version(kube)  # first: how a user is asked for differs in old releases
    user = reach.user(kube)
    nodes = kube.list(NODES)
    simulated = [node for node in nodes if _is_simulated(node)]
    real = [node for node in nodes if not _is_simulated(node)]
    ready = [node for node in real if not not_ready(node)]
    return Facts(
        user=user,
        kubernetes=kubernetes,
        gates=_gates(kube),
        api_versions=_api_versions(kube),
        nodes=_names(node for node in ready if not keeps_pods_away(node)),
        nodes_not_ready=_names(node for node in real if not_ready(node)),
        nodes_tainted=_names(node for node in ready if keeps_pods_away(node)),
        simulated_nodes=len(simulated),
        drivers=_drivers(kube),
    )


def _names(nodes: Iterable[Object]) -> tuple[str, ...]:
    return tuple(sorted(node["metadata"]["name"] for node in nodes))


def _is_simulated(node: Object) -> bool:
    metadata = node["metadata"]
    ours = metadata.get("labels", {}).get(SIMULATED) == "true"
    return ours or "kwok.x-k8s.io/node" in metadata.get("annotations", {})


def _gates(kube: KubeClient) -> dict[str, bool] | None:
    try:
        samples = metrics.parse(kube.metrics(), prefixes=[_GATE_METRIC])
    except ApiError:
        return None
    return {sample.labels["name"]: sample.value == 1.0 for sample in samples} or None


def _api_versions(kube: KubeClient) -> tuple[str, ...]:
    group = kube.read(_GROUP)
    if group is None:
        return ()
    found = [each["version"] for each in group["versions"]]
    preferred = group["preferredVersion"]["version"]
    return (preferred, *(each for each in found if each != preferred))


def _drivers(kube: KubeClient) -> dict[str, int] | None:
    try:
        slices = kube.list(RESOURCE_SLICES)
    except ApiError:
        return None
    names = [slice_["spec"]["driver"] for slice_ in slices]
    return {name: names.count(name) for name in sorted(set(names))}
