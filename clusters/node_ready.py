"""Whether nodes are Ready and take pods, by what the API server has of them."""

from __future__ import annotations

from collections.abc import Collection

from harness.kube import NODES, KubeClient, Object
from harness.waiting import NotYet


def not_ready(node: Object) -> str:
    """Why a node is not Ready; empty if it is."""
    conditions = node.get("status", {}).get("conditions", ())
    ready: Object = next((each for each in conditions if each["type"] == "Ready"), {})
    if ready.get("status") == "True":
        return ""
    message: str = ready.get("message", "")
    return message or "its kubelet has not said that it is Ready"


def keeps_pods_away(node: Object) -> str:
    """What keeps pods that tolerate nothing off a node: taints or a cordon; empty if it takes any."""
    spec = node.get("spec", {})
    taints = [each["key"] for each in spec.get("taints", ()) if each["effect"] in {"NoSchedule", "NoExecute"}]
    if taints:
        return f"tainted {taints}"
    return "cordoned" if spec.get("unschedulable") else ""


def all_take_pods(client: KubeClient, names: Collection[str]) -> bool:
    """Whether some nodes are Ready and take any pod, for `wait_until`.

    Raises:
        NotYet: one is not, and why.
    """
    nodes = {node["metadata"]["name"]: node for node in client.list(NODES)}
    for name in names:
        if name not in nodes:
            raise NotYet(f"{name} is not registered")
        if reason := not_ready(nodes[name]) or keeps_pods_away(nodes[name]):
            raise NotYet(f"{name}: {reason}")
    return True
