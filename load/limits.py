"""Client-side limits of kube-controller-manager and kube-scheduler: the requests/s they allow themselves.

On a default cluster these, not the API server, are what limits the churn of claims, so each run says which it
was under. Where components can be restarted they get the flags of the set; elsewhere they must have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clusters.interface import Cluster, ClusterProvider
from clusters.metrics import CONTROLLER_MANAGER, SCHEDULER
from harness.errors import EnvironmentBlocked
from harness.kube import KubeClient
from load import commandline
from load.request import LimitSet

COMPONENTS = (CONTROLLER_MANAGER, SCHEDULER)


@dataclass(frozen=True)
class Limits:
    """The limits of one component's client."""

    qps: int
    burst: int

    def __str__(self) -> str:
        return f"{self.qps}/{self.burst}"

    @property
    def flags(self) -> dict[str, str]:
        """As flags of its command line."""
        return {"kube-api-qps": str(self.qps), "kube-api-burst": str(self.burst)}


SETS: Mapping[LimitSet, Mapping[str, Limits]] = {
    # cmd/kube-controller-manager/app/options, pkg/scheduler/apis/config/v1/defaults.go
    LimitSet.DEFAULT: {CONTROLLER_MANAGER: Limits(20, 30), SCHEDULER: Limits(50, 100)},
    LimitSet.TUNED: {CONTROLLER_MANAGER: Limits(100, 200), SCHEDULER: Limits(200, 400)},
    LimitSet.OPEN: {CONTROLLER_MANAGER: Limits(1000, 2000), SCHEDULER: Limits(1000, 2000)},
}
"""What each component of a set gets."""

_CALLS_PER_CLAIM = 3
"""Of the claim controller, to make a claim or to let go of one."""


def seconds_per_claim(limits: LimitSet) -> float:
    """What the claim controller may take for each of the claims that wait for it: twice its limit."""
    return 2 * _CALLS_PER_CLAIM / SETS[limits][CONTROLLER_MANAGER].qps


def flags(limits: LimitSet, component: str) -> dict[str, str]:
    """The flags that a component is restarted with under a set; none under `default`, or without a limit."""
    chosen = SETS[limits].get(component)
    return {} if limits is LimitSet.DEFAULT or chosen is None else chosen.flags


def observed(cluster: Cluster, kube: KubeClient) -> dict[str, Limits | None]:
    """The limits that the components run with, from their command lines; None where that can't be told."""
    return {
        component: _observed(commandline.flags(cluster, kube, component), component)
        for component in COMPONENTS
    }


def apply(
    provider: ClusterProvider, cluster: Cluster, kube: KubeClient, limits: LimitSet
) -> dict[str, Limits | None]:
    """Bring a cluster's components under a set of limits, and return those that they run with.

    A component that has them already is left alone. On a cluster that the harness can't restart nothing is
    changed: `default` is then recorded as it is found.

    Raises:
        EnvironmentBlocked: a component has other limits, or unknown ones, and can't be restarted.
    """
    found = observed(cluster, kube)
    for component, wanted in SETS[limits].items():
        if found[component] == wanted:
            continue
        try:
            provider.restart(cluster.name, component, flags=flags(limits, component))
        except EnvironmentBlocked as error:
            if cluster.provider in {"local", "kind"}:
                raise
            if limits is LimitSet.DEFAULT and found[component] is None:
                continue
            asked = " ".join(f"--{flag}={value}" for flag, value in wanted.flags.items())
            has = found[component] or "unknown limits"
            raise EnvironmentBlocked(
                f"{component} has {has}, the limit set {limits} needs {asked}, and {error}"
            ) from error
    return observed(cluster, kube)


def revive(
    provider: ClusterProvider, cluster: Cluster, kube: KubeClient, component: str, had: Limits
) -> None:
    """Start a component that somebody ended, under the limits that it had: without it nothing goes away.

    Raises:
        EnvironmentBlocked: it can't be started.
    """
    if observed(cluster, kube)[component] is None:
        provider.restart(cluster.name, component, flags=had.flags)


def give_back(
    provider: ClusterProvider, cluster: Cluster, kube: KubeClient, component: str, had: Limits
) -> None:
    """Bring a component back under the limits that it had.

    Raises:
        EnvironmentBlocked: it can't be restarted.
    """
    if observed(cluster, kube)[component] != had:
        default = had == SETS[LimitSet.DEFAULT][component]
        provider.restart(cluster.name, component, flags={} if default else had.flags)


def _observed(given: Mapping[str, str] | None, component: str) -> Limits | None:
    if given is None or (component == SCHEDULER and "config" in given):
        return None  # with --config the scheduler takes them from that file
    own = SETS[LimitSet.DEFAULT][component]
    try:
        qps, burst = (float(given.get(flag, value)) for flag, value in own.flags.items())
    except ValueError:
        return None
    return Limits(round(qps), round(burst))
