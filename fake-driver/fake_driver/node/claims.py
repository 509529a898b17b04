"""What a ResourceClaim says about this driver's devices on one node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fake_driver.errors import ClaimError
from fake_driver.node.opaque import GpuConfig, parse_gpu_config

POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"


@dataclass(frozen=True)
class ClaimRef:
    """How the kubelet names a claim."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True)
class AllocatedDevice:
    """One allocation result of this driver, with the configuration that applies to it."""

    request: str  # "main" or "main/sub"
    pool: str
    device: str
    admin_access: bool = False
    share_id: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    network_data: dict[str, Any] | None = None
    edits: dict[str, Any] = field(default_factory=dict)  # CDI container edits of the hardware

    @property
    def main_request(self) -> str:
        """The request name that pods use: without the chosen subrequest."""
        return self.request.partition("/")[0]

    @property
    def exclusive(self) -> bool:
        """Whether no other claim may hold the device at the same time."""
        return not self.admin_access and self.share_id is None


@dataclass(frozen=True)
class PreparedClaim:
    """A claim whose devices are ready, as the checkpoint keeps it."""

    namespace: str
    name: str
    uid: str
    pod_claim_name: str | None
    devices: tuple[AllocatedDevice, ...]
    metadata: bool  # whether it has metadata files
    generations: dict[str, int] = field(default_factory=dict)  # metadata generation by main request

    def requests(self) -> dict[str, list[AllocatedDevice]]:
        """Its devices by main request, in allocation order."""
        grouped: dict[str, list[AllocatedDevice]] = {}
        for device in self.devices:
            grouped.setdefault(device.main_request, []).append(device)
        return grouped

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the checkpoint."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PreparedClaim:
        """The reverse of `to_dict`.

        Raises:
            TypeError, KeyError: `data` isn't one.
        """
        devices = tuple(AllocatedDevice(**device) for device in data["devices"])
        return cls(**(data | {"devices": devices}))


Applies = Callable[[AllocatedDevice, Sequence[str]], bool]
"""Whether configuration for some requests or alternatives, or for all if it names none, is for a device."""


def applies(device: AllocatedDevice, requests: Sequence[str]) -> bool:
    """Configuration is for a device if it names its request, or the alternative that was chosen."""
    return not requests or device.request in requests or device.main_request in requests


def applies_always(device: AllocatedDevice, requests: Sequence[str]) -> bool:
    """A quirk: every configuration is for every device."""
    return True


def applies_by_request(device: AllocatedDevice, requests: Sequence[str]) -> bool:
    """A quirk: configuration is never for an alternative."""
    return not requests or device.main_request in requests


def read_claim(
    claim: dict[str, Any], ref: ClaimRef, driver: str, pool: str, applies: Applies = applies
) -> PreparedClaim:
    """Take this driver's part of an allocated claim.

    Args:
        claim: the ResourceClaim object.
        ref: what the kubelet asked for.
        driver: the driver's name.
        pool: the node's pool; results in other pools belong to other nodes.
        applies: which configuration is for which device.

    Raises:
        ClaimError: another claim has taken the name, nothing here is allocated, or a configuration is wrong.
    """
    metadata = claim["metadata"]
    if metadata["uid"] != ref.uid:
        raise ClaimError(
            f"ResourceClaim {ref.namespace}/{ref.name} was replaced: expected UID {ref.uid}, "
            f"found {metadata['uid']}"
        )
    allocation = (claim.get("status") or {}).get("allocation")
    if not allocation:
        raise ClaimError(f"ResourceClaim {ref.namespace}/{ref.name} is not allocated")
    allocated = allocation.get("devices") or {}
    devices = _devices(allocated, driver, pool, applies)
    if not devices:
        raise ClaimError(
            f"ResourceClaim {ref.namespace}/{ref.name} has no device of driver {driver} in pool {pool}"
        )
    return PreparedClaim(
        namespace=ref.namespace,
        name=ref.name,
        uid=ref.uid,
        pod_claim_name=(metadata.get("annotations") or {}).get(POD_CLAIM_ANNOTATION) or None,
        devices=tuple(devices),
        metadata=False,
    )


def _devices(allocated: dict[str, Any], driver: str, pool: str, applies: Applies) -> list[AllocatedDevice]:
    configs = _configs(allocated.get("config") or [], driver)
    return [
        _configured(_device(result), configs, applies)
        for result in allocated.get("results") or []
        if result["driver"] == driver and result["pool"] == pool
    ]


def _device(result: dict[str, Any]) -> AllocatedDevice:
    return AllocatedDevice(
        request=result["request"],
        pool=result["pool"],
        device=result["device"],
        admin_access=bool(result.get("adminAccess")),
        share_id=result.get("shareID"),
    )


def _configs(entries: list[dict[str, Any]], driver: str) -> list[tuple[list[str], GpuConfig]]:
    """This driver's configurations, the class's first: a later one wins, and the claim's come last."""
    ordered = sorted(entries, key=lambda entry: entry.get("source") != "FromClass")
    return [
        (entry.get("requests") or [], parse_gpu_config(entry["opaque"].get("parameters")))
        for entry in ordered
        if (entry.get("opaque") or {}).get("driver") == driver
    ]


def _configured(
    device: AllocatedDevice, configs: list[tuple[list[str], GpuConfig]], applies: Applies
) -> AllocatedDevice:
    env: dict[str, str] = {}
    for requests, config in configs:
        if applies(device, requests):
            env |= config.environment()
    return replace(device, env=env)
