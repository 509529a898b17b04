"""Cluster profiles: which feature gates and API versions each component gets."""

from __future__ import annotations

from collections.abc import Mapping

from clusters.interface import Profile

_DRA_GATES = {
    "DRAAdminAccess": 32,
    "DRAConsumableCapacity": 34,
    "DRADeviceBindingConditions": 34,
    "DRADeviceTaints": 33,
    "DRADeviceTaintRules": 35,
    "DRAExtendedResource": 34,
    "DRAFractionalCapacityRange": 37,
    "DRAListTypeAttributes": 36,
    "DRANodeAllocatableResources": 36,
    "DRAPartitionableDevices": 33,
    "DRAPrioritizedList": 33,
    "DRAResourceClaimDeviceStatus": 32,
    "DRAResourcePoolStatus": 36,
    "DRASchedulerFilterTimeout": 34,
    "DRAWorkloadResourceClaims": 36,
    "DRADerivedAttributes": 37,
    "DRADeviceCompatibilityGroups": 37,
    "DRAOptionalNodeOperations": 37,
    "DRAPartitionableDevicesType": 37,
    "GenericWorkload": 35,
    "NodeDeclaredFeatures": 35,
    "ResourceHealthStatus": 31,
}
"""Gate -> first minor release of Kubernetes 1 that knows it (pkg/features/kube_features.go)."""


def minor(kubernetes: str) -> int:
    """The minor number of a version such as v1.37.2."""
    return int(kubernetes.split(".")[1])


def feature_gates(profile: Profile, kubernetes: str) -> dict[str, bool]:
    """Gates to set on every component; empty for `ga`, which is the release's own defaults."""
    if profile is Profile.GA:
        return {}
    return {gate: True for gate, since in sorted(_DRA_GATES.items()) if since <= minor(kubernetes)}


def runtime_config(profile: Profile) -> str:
    """The API server's --runtime-config, empty for the release's defaults."""
    return "" if profile is Profile.GA else "api/all=true"


def gates_value(gates: Mapping[str, bool]) -> str:
    """The value of `--feature-gates`."""
    return ",".join(f"{gate}={str(on).lower()}" for gate, on in gates.items())


def gates_flag(gates: Mapping[str, bool]) -> list[str]:
    """`--feature-gates` as an argument list, empty without gates."""
    return [f"--feature-gates={gates_value(gates)}"] if gates else []
