"""CEL expressions over lists: LST-04."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.interface import Cluster
from harness.kube import RESOURCE_CLAIMS, ApiError, KubeClient
from suites.claims import NO_FIT, allocated_to, claim_manifest, create_pod, request
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal
from suites.list_attributes.values import Groups, device_names, has, of_device, pod_name, start
from suites.marks import requirement
from suites.workload import Workloads

WITH_VALUE: Groups = {
    "strings": [{"strings": ["b", "a"]}, {"string": "a"}, {"strings": ["b"]}, {"string": "ab"}],
    "integers": [{"ints": [6, 4]}, {"int": 4}, {"ints": [6, 44]}, {"int": 6}],
    "truth_values": [{"bools": [False, True]}, {"bool": True}, {"bools": [False]}, {"bool": False}],
    "versions": [
        {"versions": ["2.0.0", "1.2.0"]},
        {"version": "1.2.0"},
        {"versions": ["1.2.1"]},
        {"version": "2.0.0"},
    ],
}
"""In each group the first device has the wanted value in a list, the second singly, and others don't."""

WANTED = {"strings": '"a"', "integers": "4", "truth_values": "true", "versions": 'semver("1.2.0")'}


@requirement("LST-04")
@pytest.mark.parametrize("where", ["request", "class"])
def test_includes_works_on_both_forms(
    where: str,
    cluster: Cluster,
    drivers: Drivers,
    workloads: Workloads,
    evidence: Observations,
) -> None:
    """A request for all devices that include a value gets the list that has it and the single value."""
    driver, every = start(drivers, cluster, WITH_VALUE)

    for group, wanted in WANTED.items():
        expression = f"{has(driver, group)} && {of_device(driver, group)}.includes({wanted})"
        if where == "class":
            name = pod_name(group)
            device_class = drivers.device_class(driver, suffix=name, extended_resource="", cel=expression)
            devices = request("all", device_class, everything=True)
        else:
            devices = request("all", every, everything=True, cel=expression)
        create_pod(workloads, pod_name(group), [devices])

    for group, wanted in WANTED.items():
        workloads.wait_running(pod_name(group))
        selected = allocated_to(workloads, pod_name(group))
        evidence(f"includes({wanted})", {"values": WITH_VALUE[group], "devices selected": selected})
        expect_equal(f"devices that include {wanted}", selected, device_names(group, 2))


LISTS_OF_ONE: Groups = {
    "strings": [{"strings": ["a"]}],
    "integers": [{"ints": [4]}],
    "truth_values": [{"bools": [True]}],
    "versions": [{"versions": ["1.2.0"]}],
}


@requirement("LST-04")
def test_a_list_never_equals_its_only_value(
    cluster: Cluster, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """`==` with the one value of a list doesn't select the device, or ends in an error; includes() does."""
    driver, device_class = start(drivers, cluster, LISTS_OF_ONE)

    for group, wanted in WANTED.items():
        equal = f"{has(driver, group)} && {of_device(driver, group)} == {wanted}"
        create_pod(workloads, f"equal-{pod_name(group)}", [request("one", device_class, cel=equal)])
    for group, wanted in WANTED.items():
        pod = f"equal-{pod_name(group)}"
        evidence(f"== {wanted}", workloads.wait_unschedulable(pod, NO_FIT, "CEL runtime error"))
        expect_equal(f"devices that equal {wanted}", allocated_to(workloads, pod), [])

    for group, wanted in WANTED.items():
        includes = f"{has(driver, group)} && {of_device(driver, group)}.includes({wanted})"
        create_pod(workloads, pod_name(group), [request("one", device_class, cel=includes)])
    for group, wanted in WANTED.items():
        workloads.wait_running(pod_name(group))
        selected = allocated_to(workloads, pod_name(group))
        evidence(f"includes({wanted})", selected)
        expect_equal(f"devices that include {wanted}", selected, device_names(group, 1))


@requirement("LST-04")
def test_the_api_server_checks_calls_of_includes(
    workloads: Workloads, drivers: Drivers, cluster: Cluster, kube: KubeClient, evidence: Observations
) -> None:
    """A call of includes() with a value is accepted; one without any, or a slip in the name, is refused."""
    driver, device_class = start(drivers, cluster, {"one": [{"ints": [1]}]})
    attribute = of_device(driver, "one")

    def create(expression: str) -> Any:
        manifest = claim_manifest("probe", [request("one", device_class, cel=expression)])
        return kube.create(RESOURCE_CLAIMS, manifest, workloads.namespace, dry_run=True)

    create(f"{attribute}.includes(1)")
    for expression, text in {
        f"{attribute}.includes()": "no matching overload for 'includes'",
        f"{attribute}.include(1)": "undeclared reference to 'include'",
    }.items():
        with pytest.raises(ApiError) as refused:
            create(expression)
        evidence(expression, refused.value.message)
        expect_equal("status of the refusal", refused.value.status, 422)
        expect(f"the refusal says {text}", text in refused.value.message, refused.value.message)
