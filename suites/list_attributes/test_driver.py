"""What drivers do about lists: LST-08. That a refused list ends them is in `test_gates`."""

from __future__ import annotations

import pytest
from fake_driver.client import DriverError

from clusters.interface import Cluster
from harness.errors import RequirementFailed
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal
from suites.list_attributes.values import profile
from suites.marks import requirement

_LISTS = {"bools", "ints", "strings", "versions"}
_TOO_LONG = profile({"text": [{"string": "x" * 65}]})
"""No API server takes it, whatever its gates."""


@requirement("LST-08")
@pytest.mark.parametrize("preset", ["h200", "nic"])
def test_no_lists_unless_asked_for(
    preset: str, cluster: Cluster, drivers: Drivers, evidence: Observations
) -> None:
    """A driver that isn't told to publish lists publishes single values only, numaNode included."""
    inventory = {"devices": [{"preset": preset, "count": 8}]}

    driver = drivers.start(nodes=cluster.nodes[:1], inventory=inventory)

    devices = [device for slice_ in drivers.slices(driver) for device in slice_["spec"]["devices"]]
    forms = {form for device in devices for value in device["attributes"].values() for form in value}
    evidence("forms of its attributes", sorted(forms))
    expect_equal("devices", len(devices), 8)
    expect_equal("lists among the forms", forms & _LISTS, set())


@requirement("LST-08")
def test_a_refused_start_is_seen(cluster: Cluster, drivers: Drivers, evidence: Observations) -> None:
    """A driver whose slices are refused ends as failed, and its log has the API server's words."""
    with pytest.raises(RequirementFailed) as ended:
        drivers.start(nodes=cluster.nodes[:1], inventory=_TOO_LONG)

    message = ended.value.observed
    evidence("what the driver says", message)
    expect("it has the API server's reason", "may not be more than 64 bytes" in message, message)


@requirement("LST-08")
def test_a_refused_change_is_seen(cluster: Cluster, drivers: Drivers, evidence: Observations) -> None:
    """A driver whose new slices are refused says so, and what it had published stays as it was."""
    driver = drivers.start(nodes=cluster.nodes[:1], inventory=profile({"text": [{"string": "a"}]}))
    before = [slice_["spec"] for slice_ in drivers.slices(driver)]

    with pytest.raises(DriverError) as refused:
        driver.client.set_inventory(_TOO_LONG)

    evidence("what the driver says", str(refused.value))
    expect("it has the API server's reason", "may not be more than 64 bytes" in str(refused.value), refused)
    after = [slice_["spec"] for slice_ in drivers.slices(driver)]
    evidence("published afterwards", after)
    expect_equal("what was published stays", after, before)
