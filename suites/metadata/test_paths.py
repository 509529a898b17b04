"""Where containers find metadata, and whose: MD-01, MD-02, MD-03, MD-07, MD-13 and MD-15."""

from __future__ import annotations

from clusters.interface import Cluster
from suites.catalogue import Form
from suites.claims import (
    create_claim,
    create_template,
    first_available,
    from_claim,
    get_claim,
    pod_with_claim,
    request,
)
from suites.drivers import DeviceClass, Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal
from suites.marks import requirement
from suites.metadata import rig, stream
from suites.naming import Names
from suites.workload import Container, Workloads, pod_manifest


@requirement("MD-01")
def test_a_claim_that_the_pod_names(drivers: Drivers, workloads: Workloads, evidence: Observations) -> None:
    """The path has the claim's own name, whatever the pod calls it."""
    driver = drivers.start()
    create_claim(workloads, "a-claim", [request("one", drivers.device_class(driver))])

    workloads.run(pod_with_claim("pod", "a-claim"))

    found = sorted(rig.files(workloads.report("pod")))
    evidence("metadata files", found)
    expect_equal("the metadata files", found, [rig.direct_path("a-claim", "one", driver.name)])


@requirement("MD-02")
def test_a_claim_from_a_template(drivers: Drivers, workloads: Workloads, evidence: Observations) -> None:
    """The path has the pod's name for the claim, not the generated one."""
    driver = drivers.start()
    create_template(workloads, "a-template", [request("one", drivers.device_class(driver))])

    workloads.run(pod_with_claim("pod", template="a-template"))

    found = sorted(rig.files(workloads.report("pod")))
    (claim,) = workloads.claims("pod")
    evidence("generated name of the claim", claim["metadata"]["name"])
    evidence("metadata files", found)
    expect_equal("the metadata files", found, [rig.template_path("device", "one", driver.name)])


@requirement("MD-03")
def test_containers_see_only_their_requests(
    drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """By the paths and by what the files say; a reference to the whole claim brings all its requests."""
    driver = drivers.start(devices=3)
    gpu = drivers.device_class(driver)
    create_claim(workloads, "a-claim", [request(name, gpu) for name in ("x", "y", "z")])
    seen_by = {
        "only-x": (["gpu/x"], {"x"}),
        "only-y": (["gpu/y"], {"y"}),
        "x-and-z": (["gpu/x", "gpu/z"], {"x", "z"}),
        "whole": (["gpu"], {"x", "y", "z"}),
        "none": ([], set()),
    }
    containers = [Container(name, claims=claims) for name, (claims, _) in seen_by.items()]

    workloads.run(pod_manifest("pod", containers, resourceClaims=[from_claim("gpu", "a-claim")]))

    found = {name: rig.files(workloads.report("pod", name)) for name in seen_by}
    evidence("metadata files per container", {name: sorted(paths) for name, paths in found.items()})
    for name, (_, requests) in seen_by.items():
        expected = {rig.direct_path("a-claim", each, driver.name): {each} for each in requests}
        observed = {path: set(rig.listed(stream.read(text))) for path, text in found[name].items()}
        expect_equal(f"the files of container {name} and the requests in them", observed, expected)


@requirement("MD-07")
def test_two_drivers_on_one_request(
    cluster: Cluster, drivers: Drivers, names: Names, workloads: Workloads, evidence: Observations
) -> None:
    """Two devices, of which each driver has one: two files, each with its driver's device."""
    both = [drivers.start(suffix=suffix, nodes=cluster.nodes[:1]) for suffix in ("one", "two")]
    name = names.name("both")
    expression = f"device.driver in {[driver.name for driver in both]}"
    drivers.create_class(
        {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
    )
    create_claim(workloads, "a-claim", [request("pair", DeviceClass(name), count=2)])

    workloads.run(pod_with_claim("pod", "a-claim"))

    claim = get_claim(workloads, "a-claim")
    found = rig.files(workloads.report("pod"))
    evidence("allocated", rig.results(claim))
    evidence("metadata files", found)
    expected = {
        rig.direct_path("a-claim", "pair", driver.name): {
            "pair": [(driver.name, pool, device) for _, pool, device in rig.results(claim, driver.name)]
        }
        for driver in both
    }
    observed = {path: rig.listed(stream.read(text)) for path, text in found.items()}
    expect_equal("the files and the devices in them", observed, expected)
    expect("each driver has one of the two devices", len(rig.results(claim, both[0].name)) == 1, claim)


@requirement("MD-13")
def test_the_chosen_alternative(drivers: Drivers, workloads: Workloads, evidence: Observations) -> None:
    """The path has the request's name, the content the alternative's: here the second of two."""
    driver = drivers.start()
    none = drivers.device_class(driver, suffix="none", cel="false")
    some = drivers.device_class(driver, suffix="some")
    alternatives = [request("best", none), request("good", some)]
    create_claim(workloads, "a-claim", [first_available("any", alternatives)])
    reference = from_claim("gpu", "a-claim")

    workloads.run(pod_manifest("pod", [Container(claims=["gpu/any"])], resourceClaims=[reference]))

    found = rig.files(workloads.report("pod"))
    evidence("allocated", rig.results(get_claim(workloads, "a-claim")))
    evidence("metadata files", found)
    expect_equal("the metadata files", sorted(found), [rig.direct_path("a-claim", "any", driver.name)])
    (text,) = found.values()
    expect_equal("the request in the file", list(rig.listed(stream.read(text))), ["any/good"])


@requirement("MD-15")
def test_extended_resources(drivers: Drivers, workloads: Workloads, evidence: Observations) -> None:
    """Records the path for a pod without claims of its own; the file is about the pod's special claim."""
    resource = drivers.device_class(drivers.start()).resource(Form.EXPLICIT)

    workloads.run(pod_manifest("pod", [Container(resources={resource: 1})]))

    claim = workloads.special_claim("pod")["metadata"]["name"]
    found = rig.files(workloads.report("pod"))
    evidence("generated name of the claim", claim)
    evidence("metadata files", sorted(found))
    evidence("the path has the generated name", [f"/{claim}/" in path for path in found])
    about = [stream.read(text)["metadata"]["name"] for text in found.values()]
    expect_equal("the claims that the files are about", about, [claim])
