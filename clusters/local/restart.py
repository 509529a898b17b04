"""Restarts one component of a cluster that is up, perhaps with other gates and flags; workloads stay."""

from __future__ import annotations

from clusters import processes
from clusters.local import bootstrap, control_plane
from clusters.local.layout import Layout
from clusters.local.node import nodes_of
from harness.errors import UsageError
from harness.kube import KubeClient

_STOP_SECONDS = 4.0
"""Watches keep an API server from ending sooner than its longest grace; nobody is served meanwhile."""
_START_SECONDS = 60.0


def restart(layout: Layout, component: str) -> None:
    """Stop a component as an upgrade does, start it again, and wait until it is healthy.

    Raises:
        UsageError: the cluster has no such component, or it can't be restarted.
        EnvironmentBlocked: it did not come back; the end of its log is in the message.
    """
    program, _, node = component.partition("/")
    if program == "kubelet" and node in layout.state.nodes:
        _restart_kubelet(layout, node)
    elif component in (control_plane.APISERVER, *control_plane.CONTROLLERS):
        _restart_control_plane(layout, component)
    else:
        raise UsageError(f"{component!r}: no component that can be restarted")


def _restart_kubelet(layout: Layout, node: str) -> None:
    (local,) = [each for each in nodes_of(layout) if each.name == node]
    kubelet = local.restart_kubelet()
    client = KubeClient.from_kubeconfig(layout.kubeconfig("admin"))
    bootstrap.wait_for_nodes(client, {node: kubelet}, layout)


def _restart_control_plane(layout: Layout, component: str) -> None:
    processes.kill(layout.state.id, component, grace=_STOP_SECONDS)
    started = control_plane.start(layout, component)
    if component == control_plane.APISERVER:
        control_plane.wait_for_apiserver(layout, {component: started}, _START_SECONDS)
    which = (component,) if component in control_plane.CONTROLLERS else control_plane.CONTROLLERS
    control_plane.wait_for_controllers(layout, {component: started}, _START_SECONDS, which=which)
