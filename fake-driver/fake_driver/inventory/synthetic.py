"""The `synthetic` inventory: devices made from a YAML profile, the same on every run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from fake_driver.config import DNS_LABEL
from fake_driver.errors import ConfigError
from fake_driver.inventory import presets, sysfs
from fake_driver.inventory.base import NodeInventory
from fake_driver.inventory.model import DeviceGroup, Profile, Topology
from fake_driver.strict import read_yaml, validate

BUNDLED = Path(__file__).parent.parent / "profiles"
_INHERITED = ("productName", "brand", "architecture", "cudaComputeCapability", "driverVersion")
_INHERITED_PREFIXES = ("cudaDriverVersion", "resource.kubernetes.io/")

Device = dict[str, Any]


class SyntheticInventory:
    """Expands a profile for any node."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile

    def for_node(self, node: str) -> NodeInventory:
        """The devices of `node`: group by group, each in order of its index."""
        devices: list[Device] = []
        counters = [
            {"name": _fill(entry.name, node, index), "counters": _amounts(entry.counters)}
            for entry in self._profile.shared_counters
            for index in range(entry.count)
        ]
        for group in self._profile.devices:
            for index in range(group.first_index, group.first_index + group.count):
                device = _device(group, node, index)
                devices.append(device)
                if group.partitions:
                    counters.append(_cut(group, device))
                    devices.extend(_partitions(group, device))
        slice_fields: dict[str, Any] = {}
        if self._profile.skip_node_operations:
            slice_fields["skipNodeOperations"] = list(self._profile.skip_node_operations)
        if self._profile.partition_type_attribute:
            slice_fields["partitionTypeAttribute"] = self._profile.partition_type_attribute
        return NodeInventory(tuple(devices), tuple(counters), slice_fields)


def load_inventory(value: Any, source: Path, key: str = "inventory") -> SyntheticInventory:
    """Make an inventory of an inline profile, the name of a bundled one, or a path beside `source`.

    Raises:
        ConfigError: names the file, the dotted key and what was expected.
    """
    if isinstance(value, dict):
        return _checked(validate(Profile, value, str(source), key), f"{source}: {key}")
    if not isinstance(value, str):
        raise ConfigError(
            f"{source}: {key}: expected a profile (a mapping), a path or a bundled profile's name"
        )
    bundled = BUNDLED / f"{value}.yaml"
    path = bundled if "/" not in value and bundled.is_file() else source.parent / value
    if not path.is_file():
        names = ", ".join(sorted(file.stem for file in BUNDLED.glob("*.yaml")))
        raise ConfigError(f"{source}: {key}: no file {path}, and the bundled profiles are {names}")
    return _checked(validate(Profile, read_yaml(path), str(path)), str(path))


def _checked(profile: Profile, where: str) -> SyntheticInventory:
    inventory = SyntheticInventory(profile)
    seen: set[str] = set()
    for device in inventory.for_node("node").devices:
        name = device["name"]
        if not re.fullmatch(DNS_LABEL, name) or len(name) > 63:
            raise ConfigError(f"{where}: devices: expected a DNS label as device name, got {name!r}")
        if name in seen:
            raise ConfigError(f"{where}: devices: expected each device name once, {name!r} is repeated")
        seen.add(name)
    return inventory


def _device(group: DeviceGroup, node: str, index: int) -> Device:
    attributes: dict[str, Any] = {}
    capacity: dict[str, Any] = {}
    if group.preset:
        attributes, capacity = presets.PRESETS[group.preset](node, index)
    if group.topology:
        attributes = {name: value for name, value in attributes.items() if "/" not in name}
        attributes |= _topology(group, group.topology, index)
    for name, attribute in group.attributes.items():
        attributes[name] = _fill(attribute.api(), node, index)
    for name, amount in group.capacity.items():
        capacity[name] = amount.model_dump(by_alias=True, exclude_none=True)
    device: Device = {"name": _fill(group.name, node, index), "attributes": attributes, "capacity": capacity}
    consumed = [
        _fill(entry.model_dump(by_alias=True, exclude_none=True, exclude={"counters"}), node, index)
        | {"counters": _amounts(entry.counters)}
        for entry in group.consumes_counters
    ]
    optional = {
        "taints": [taint.api() for taint in group.taints],
        "allowMultipleAllocations": group.allow_multiple_allocations,
        "consumesCounters": consumed,
        "bindsToNode": group.binds_to_node,
        "bindingConditions": list(group.binding_conditions),
        "bindingFailureConditions": list(group.binding_failure_conditions),
        "nodeAllocatableResources": group.node_allocatable_resources,
    }
    return device | {key: value for key, value in optional.items() if value}


def _topology(group: DeviceGroup, wanted: Topology, index: int) -> dict[str, Any]:
    if wanted.sysfs:
        address = wanted.addresses[index - group.first_index]
        return sysfs.topology(wanted.sysfs, address, numa=wanted.numa, pcie=wanted.pcie)
    slot = 2 if group.preset == "nic" else 1
    return presets.topology(index, slot=slot, numa=wanted.numa, pcie=wanted.pcie)


def _cut(group: DeviceGroup, device: Device) -> dict[str, Any]:
    """Make `device` draw on a counter set of its own, and return that set."""
    assert group.partitions
    name = f"{device['name']}-counter-set"
    amounts = _amounts(group.partitions.counters)
    device["consumesCounters"] = [
        *device.get("consumesCounters", []),
        {"counterSet": name, "counters": amounts},
    ]
    return {"name": name, "counters": amounts}


def _partitions(group: DeviceGroup, parent: Device) -> list[Device]:
    assert group.partitions
    inherited = {
        key: value
        for key, value in parent["attributes"].items()
        if key in _INHERITED or key.startswith(_INHERITED_PREFIXES)
    }
    own = {"type": {"string": "mig"}} | inherited
    if "uuid" in parent["attributes"]:
        own["parentUUID"] = parent["attributes"]["uuid"]
    return [
        {
            "name": f"{parent['name']}-mig-{re.sub(r'[^a-z0-9]', '', profile.profile.lower())}-{number}",
            "attributes": own | {"profile": {"string": profile.profile}},
            "capacity": _amounts(profile.capacity),
            "consumesCounters": [
                {"counterSet": f"{parent['name']}-counter-set", "counters": _amounts(profile.capacity)}
            ],
        }
        for profile in group.partitions.profiles
        for number in range(profile.count)
    ]


def _amounts(values: dict[str, str]) -> dict[str, Any]:
    return {name: {"value": value} for name, value in values.items()}


def _fill(value: Any, node: str, index: int) -> Any:
    if isinstance(value, str):
        return value.replace("{index}", str(index)).replace("{node}", node)
    if isinstance(value, dict):
        return {key: _fill(entry, node, index) for key, entry in value.items()}
    if isinstance(value, list):
        return [_fill(entry, node, index) for entry in value]
    return value
