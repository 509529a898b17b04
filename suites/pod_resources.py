"""Asks a kubelet what containers were given: the PodResources API (KEP-3695)."""

from __future__ import annotations

from typing import Any

from fake_driver.api import pod_resources_v1_pb2, pod_resources_v1_pb2_grpc
from fake_driver.channels import unix_channel

from clusters.interface import Node
from harness.errors import EnvironmentBlocked
from harness.kube import Object

_SECONDS = 10.0


def cdi_ids(node: Node, pod: Object, container: str) -> dict[str, list[str]]:
    """The CDI IDs of a container's devices, by claim, in the kubelet's order.

    Args:
        node: where the pod is.
        pod: the pod, which runs.
        container: one of its containers.

    Raises:
        EnvironmentBlocked: the kubelet's socket is not on this machine.
    """
    node.require_here()
    socket = node.kubelet_dir / "pod-resources" / "kubelet.sock"
    if not socket.exists():
        raise EnvironmentBlocked(f"needs the PodResources socket of {node.name}'s kubelet on this machine")
    metadata = pod["metadata"]
    request = pod_resources_v1_pb2.GetPodResourcesRequest(
        pod_name=metadata["name"], pod_namespace=metadata["namespace"]
    )
    stub: Any = pod_resources_v1_pb2_grpc.PodResourcesListerStub
    with unix_channel(socket) as channel:
        answer = stub(channel).Get(request, timeout=_SECONDS)
    (found,) = [each for each in answer.pod_resources.containers if each.name == container]
    return {
        claim.claim_name: [cdi.name for device in claim.claim_resources for cdi in device.cdi_devices]
        for claim in found.dynamic_resources
    }
