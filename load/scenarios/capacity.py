"""Extended resources in the status of simulated nodes, as a device plugin's kubelet would report them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from harness.kube import JSON_PATCH, NODES, ApiError, KubeClient
from load.naming import Names

_THREADS = 8
_UNPROCESSABLE = 422


def plugin_resource(names: Names) -> str:
    """The extended resource of a run's pods with `via: plugin`."""
    return f"{names.token}.dra-harness.dev/plugin"


def advertise(kube: KubeClient, node: str, resource: str, count: int) -> None:
    """Have a node offer so many of an extended resource; with 0 it still knows the name."""
    patch = {"status": {"capacity": {resource: str(count)}, "allocatable": {resource: str(count)}}}
    kube.patch(NODES, node, patch, subresource="status")


def withdraw(kube: KubeClient, node: str, resource: str) -> None:
    """Take the resource out of a node's status altogether, as a kubelet does after a restart."""
    key = resource.replace("~", "~0").replace("/", "~1")
    patch = [{"op": "remove", "path": f"/status/{part}/{key}"} for part in ("capacity", "allocatable")]
    try:
        kube.patch(NODES, node, patch, subresource="status", content_type=JSON_PATCH)
    except ApiError as error:
        if error.status not in (404, _UNPROCESSABLE):  # neither the node nor the resource has to be there
            raise


def on_all(kube: KubeClient, nodes: Sequence[str], resource: str, count: int | None) -> None:
    """`advertise` on every node, or `withdraw` where `count` is None."""

    def change(node: str) -> None:
        if count is None:
            withdraw(kube, node, resource)
        else:
            advertise(kube, node, resource, count)

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="capacity") as threads:
        list(threads.map(change, nodes))
