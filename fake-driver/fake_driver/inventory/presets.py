"""Well-known hardware as attribute sets.

Attribute keys and types are those of the NVIDIA GPU driver (bare keys: the domain is the driver's name), so
that selectors written for it differ only by domain. Standard keys carry the `resource.kubernetes.io` domain.
"""

from __future__ import annotations

import uuid
from typing import Any

STANDARD = "resource.kubernetes.io"
_DEVICES_PER_DOMAIN = 8
_DEVICES_PER_SOCKET = 4
_FIRST_BUS = 0x1A
_BUS_STEP = 0x1A

Values = dict[str, dict[str, Any]]


def h200(node: str, index: int) -> tuple[Values, Values]:
    """Attributes and capacity of the H200 number `index` of `node`."""
    attributes: Values = {
        "type": {"string": "gpu"},
        "uuid": {"string": f"GPU-{_uuid(node, 'gpu', index)}"},
        "productName": {"string": "NVIDIA H200"},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": "Hopper"},
        "cudaComputeCapability": {"version": "9.0.0"},
        "driverVersion": {"version": "580.126.9"},
        "cudaDriverVersion": {"version": "13.0.0"},
        "addressingMode": {"string": "None"},
    }
    return attributes | topology(index, slot=1, numa="int"), {"memory": {"value": "143771Mi"}}


def nic(node: str, index: int) -> tuple[Values, Values]:
    """Attributes and capacity of the network card that shares the PCIe root with GPU `index`."""
    attributes: Values = {
        "type": {"string": "nic"},
        "uuid": {"string": f"NIC-{_uuid(node, 'nic', index)}"},
        "productName": {"string": "ConnectX-7"},
        "interfaceName": {"string": f"eth{index + 1}"},
        "linkSpeedGbps": {"int": 400},
        "rdma": {"bool": True},
    }
    return attributes | topology(index, slot=2, numa="int"), {"bandwidth": {"value": "400G"}}


def topology(index: int, *, slot: int, numa: str, pcie: bool = True) -> Values:
    """The standard topology attributes of device `index`; `slot` tells devices under one root apart."""
    domain, position = divmod(index, _DEVICES_PER_DOMAIN)
    root = _FIRST_BUS + _BUS_STEP * position
    numa_node = position // _DEVICES_PER_SOCKET
    values: Values = {}
    if pcie:
        values[f"{STANDARD}/pciBusID"] = {"string": f"{domain:04x}:{root + slot:02x}:00.0"}
        values[f"{STANDARD}/pcieRoot"] = {"string": f"pci{domain:04x}:{root:02x}"}
    if numa == "int":
        values[f"{STANDARD}/numaNode"] = {"int": numa_node}
    elif numa == "ints":
        values[f"{STANDARD}/numaNode"] = {"ints": [numa_node]}
    return values


def _uuid(node: str, kind: str, index: int) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_DNS, f"{node}/{kind}/{index}")


PRESETS = {"h200": h200, "nic": nic}
