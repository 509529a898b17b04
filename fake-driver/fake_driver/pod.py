"""What a pod tells its containers through the downward API, so that one configuration serves every node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NODE_NAME = "NODE_NAME"
"""Variable with `spec.nodeName`: the name of the one node that is configured without one."""

POD_IP = "POD_IP"
"""Variable with `status.podIP`: where the control endpoint's port is, unless configured."""


def fill_in(config: Any, environment: Mapping[str, str]) -> Any:
    """The configuration with what the environment knows and it leaves out; of any shape, also a wrong one."""
    if not isinstance(config, dict):
        return config
    filled = dict(config)
    nodes, control = filled.get("nodes"), filled.get("control")
    name, address = environment.get(NODE_NAME), environment.get(POD_IP)
    if name and isinstance(nodes, list) and len(nodes) == 1 and isinstance(nodes[0], dict):
        filled["nodes"] = [{"name": name, **nodes[0]}]
    if address and isinstance(control, dict) and "port" in control:
        filled["control"] = {"address": address, **control}
    return filled
