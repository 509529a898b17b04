"""The schema of a synthetic inventory profile (YAML). Kubernetes names where Kubernetes has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from fake_driver.quantity import parse_quantity
from fake_driver.strict import Strict

Effect = Literal["None", "NoSchedule", "NoExecute"]


def _quantity(text: str) -> str:
    parse_quantity(text)
    return text


class Attribute(Strict):
    """One attribute value: exactly one of the types of the ResourceSlice API."""

    int_: int | None = Field(default=None, alias="int")
    bool_: bool | None = Field(default=None, alias="bool")
    string: str | None = None
    version: str | None = None
    ints: list[int] | None = None
    bools: list[bool] | None = None
    strings: list[str] | None = None
    versions: list[str] | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if len(self.api()) != 1:
            raise ValueError(
                "expected exactly one of int, bool, string, version, ints, bools, strings, versions"
            )
        return self

    def api(self) -> dict[str, Any]:
        """The value as the ResourceSlice API writes it."""
        return self.model_dump(by_alias=True, exclude_none=True)


class ValidRange(Strict):
    """Amounts of a shared capacity that a request may ask for."""

    min: str
    max: str | None = None
    step: str | None = None

    @field_validator("min", "max", "step")
    @classmethod
    def _is_quantity(cls, value: str | None) -> str | None:
        return value if value is None else _quantity(value)


class RequestPolicy(Strict):
    """How a shared capacity may be consumed (KEP-5075)."""

    default: str | None = None
    valid_values: list[str] | None = None
    valid_range: ValidRange | None = None

    @field_validator("default", "valid_values")
    @classmethod
    def _are_quantities(cls, value: str | list[str] | None) -> str | list[str] | None:
        for text in [value] if isinstance(value, str) else value or []:
            _quantity(text)
        return value


class Capacity(Strict):
    """One capacity of a device."""

    value: str
    request_policy: RequestPolicy | None = None

    _checked = field_validator("value")(_quantity)


class Taint(Strict):
    """A taint on a device."""

    key: str
    value: str | None = None
    effect: Effect
    time_added: str | None = None

    def api(self) -> dict[str, Any]:
        """The taint as the ResourceSlice API writes it."""
        return self.model_dump(by_alias=True, exclude_none=True)


class CounterConsumption(Strict):
    """What a device takes from a counter set (KEP-4815). `{index}` stands for the device's index."""

    counter_set: str
    counters: dict[str, str]
    compatibility_groups: list[str] | None = None

    @field_validator("counters")
    @classmethod
    def _are_quantities(cls, value: dict[str, str]) -> dict[str, str]:
        for text in value.values():
            _quantity(text)
        return value


class CounterSet(Strict):
    """Counters that several devices share; with `count`, `{index}` in the name runs from 0."""

    name: str
    count: int = Field(default=1, ge=1)
    counters: dict[str, str]

    @field_validator("counters")
    @classmethod
    def _are_quantities(cls, value: dict[str, str]) -> dict[str, str]:
        for text in value.values():
            _quantity(text)
        return value


class PartitionProfile(Strict):
    """One way to cut a device, like a MIG profile: `count` partitions that each take `capacity`."""

    profile: str
    count: int = Field(ge=1)
    capacity: dict[str, str] = Field(min_length=1)


class Partitions(Strict):
    """Makes each device of a group partitionable: a counter set for it, and partitions that draw on it."""

    counters: dict[str, str] = Field(min_length=1)
    profiles: list[PartitionProfile] = Field(min_length=1)

    @model_validator(mode="after")
    def _capacities_are_counters(self) -> Self:
        for profile in self.profiles:
            if unknown := sorted(set(profile.capacity) - set(self.counters)):
                raise ValueError(
                    f"profile {profile.profile!r}: expected capacities among the counters "
                    f"{', '.join(sorted(self.counters))}, got {unknown[0]!r}"
                )
            for name, amount in profile.capacity.items():
                if parse_quantity(amount) > parse_quantity(self.counters[name]):
                    raise ValueError(f"profile {profile.profile!r}: {name} {amount} is more than there is")
        return self


class Topology(Strict):
    """Where the group's devices sit: NUMA node and PCIe root by index, eight devices to a machine domain.

    With `sysfs` (its folder) they are what that says of the device at each PCI address instead.
    """

    numa: Literal["int", "ints", "none"] = "int"
    pcie: bool = True
    sysfs: Path | None = None
    addresses: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _sysfs_needs_addresses(self) -> Self:
        if bool(self.sysfs) != bool(self.addresses):
            raise ValueError("expected sysfs and addresses together")
        return self


class DeviceGroup(Strict):
    """Devices alike but for their index. `{index}` and `{node}` are replaced in names and strings."""

    preset: Literal["h200", "nic"] | None = None
    count: int = Field(default=1, ge=0, le=4096)
    first_index: int = Field(default=0, ge=0)
    name: str = "gpu-{index}"
    attributes: dict[str, Attribute] = Field(default_factory=dict)
    capacity: dict[str, Capacity] = Field(default_factory=dict)
    taints: list[Taint] = Field(default_factory=list)
    topology: Topology | None = None
    allow_multiple_allocations: bool = False
    consumes_counters: list[CounterConsumption] = Field(default_factory=list)
    partitions: Partitions | None = None
    binds_to_node: bool = False
    binding_conditions: list[str] = Field(default_factory=list)
    binding_failure_conditions: list[str] = Field(default_factory=list)
    node_allocatable_resources: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        if self.count > 1 and "{index}" not in self.name:
            raise ValueError("name: expected {index} in it, since count is more than 1")
        return self

    @model_validator(mode="after")
    def _one_address_each(self) -> Self:
        addresses = self.topology.addresses if self.topology else []
        if addresses and len(addresses) != self.count:
            raise ValueError(f"topology.addresses: expected one for each device, {self.count} in all")
        return self


class Profile(Strict):
    """A whole inventory: the devices of one node, the same for every node but for what names it."""

    devices: list[DeviceGroup]
    shared_counters: list[CounterSet] = Field(default_factory=list)
    skip_node_operations: list[str] = Field(default_factory=list)
    partition_type_attribute: str | None = None
