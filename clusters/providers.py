"""All providers by name, and which of them has a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from clusters.components import BuildSource, ComponentSource
from clusters.interface import Cluster, ClusterProvider
from clusters.kind.provider import KindProvider
from clusters.local.provider import LocalProvider
from harness.errors import EnvironmentBlocked, UsageError

_MAKERS: Mapping[str, Callable[[ComponentSource], ClusterProvider]] = MappingProxyType(
    {"local": LocalProvider, "kind": KindProvider}
)


def every(source: ComponentSource | None = None) -> Sequence[ClusterProvider]:
    """All providers that make clusters."""
    return [make(source or BuildSource()) for make in _MAKERS.values()]


def having(name: str) -> ClusterProvider:
    """The provider that has a cluster of this name.

    Raises:
        UsageError: none has, naming those that there are.
    """
    known = []
    for provider in every():
        names = [cluster.name for cluster in provider.list()]
        if name in names:
            return provider
        known += names
    raise UsageError(f"no cluster is named {name!r}; there are: {', '.join(known) or 'none'}")


def of(cluster: Cluster) -> ClusterProvider:
    """The provider that made a cluster.

    Raises:
        EnvironmentBlocked: it is none of ours: its components are not ours to restart, and its logs not ours
            to read.
    """
    make = _MAKERS.get(cluster.provider)
    if make is None:
        raise EnvironmentBlocked(f"components of a {cluster.provider} cluster can't be restarted from here")
    return make(BuildSource())
