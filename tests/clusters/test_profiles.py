from __future__ import annotations

import pytest

from clusters import profiles
from clusters.interface import Profile

# Read off pkg/features/kube_features.go of the last patch release of each minor.
IN_1_34 = {
    "DRAAdminAccess",
    "DRAConsumableCapacity",
    "DRADeviceBindingConditions",
    "DRADeviceTaints",
    "DRAExtendedResource",
    "DRAPartitionableDevices",
    "DRAPrioritizedList",
    "DRAResourceClaimDeviceStatus",
    "DRASchedulerFilterTimeout",
    "ResourceHealthStatus",
}
IN_1_35 = IN_1_34 | {"DRADeviceTaintRules", "GenericWorkload", "NodeDeclaredFeatures"}
IN_1_36 = IN_1_35 | {
    "DRAListTypeAttributes",
    "DRANodeAllocatableResources",
    "DRAResourcePoolStatus",
    "DRAWorkloadResourceClaims",
}
IN_1_37 = IN_1_36 | {
    "DRADerivedAttributes",
    "DRADeviceCompatibilityGroups",
    "DRAFractionalCapacityRange",
    "DRAOptionalNodeOperations",
    "DRAPartitionableDevicesType",
}


@pytest.mark.parametrize(
    ("version", "known"),
    [
        ("v1.34.4", IN_1_34),
        ("v1.35.0", IN_1_35),
        ("v1.36.3", IN_1_36),
        ("v1.37.0", IN_1_37),
        ("v1.37.2", IN_1_37),
        ("v1.38.0-rc.1", IN_1_37),
    ],
)
def test_alpha_turns_on_what_the_release_knows_and_nothing_else(version: str, known: set[str]) -> None:
    gates = profiles.feature_gates(Profile.ALPHA, version)
    # A component does not start with a gate that it doesn't know. More of the known is no harm.
    granular = {"DRAResourceClaimGranularStatusAuthorization"} if known >= IN_1_36 else set()
    assert known <= set(gates) <= known | granular
    assert set(gates.values()) == {True}
    assert list(gates) == sorted(gates)


@pytest.mark.parametrize("version", ["v1.34.4", "v1.37.2"])
def test_ga_leaves_the_release_as_it_is(version: str) -> None:
    assert profiles.feature_gates(Profile.GA, version) == {}
    assert profiles.runtime_config(Profile.GA) == ""


def test_alpha_serves_every_api_version() -> None:
    assert profiles.runtime_config(Profile.ALPHA) == "api/all=true"


def test_gates_as_a_flag() -> None:
    assert profiles.gates_flag({}) == []
    assert profiles.gates_flag({"A": True, "B": False}) == ["--feature-gates=A=true,B=false"]


@pytest.mark.parametrize(("version", "minor"), [("v1.37.2", 37), ("v1.38.0-rc.1", 38), ("v1.9.0", 9)])
def test_the_minor_of_a_version(version: str, minor: int) -> None:
    assert profiles.minor(version) == minor
