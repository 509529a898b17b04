"""What metadata says: MD-04, MD-05, MD-06, MD-08 and MD-16."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from fake_driver.client import DriverError

from clusters.interface import Cluster
from harness.errors import RequirementFailed
from harness.kube import Object
from suites.claims import create_claim, create_template, from_claim, get_claim, pod_with_claim, request
from suites.drivers import Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal
from suites.marks import requirement
from suites.metadata import rig, stream
from suites.workload import Container, Workloads, pod_manifest

_SECRET_KEY = re.compile(r"token|secret|passw|credential|private.?key|api.?key|access.?key|bearer", re.I)
_SECRET_VALUE = re.compile(r"-----BEGIN |\beyJ[\w-]{10,}\.")
"""PEM blocks and JSON web tokens."""


def _only(found: dict[str, str]) -> str:
    expect_equal("the number of metadata files", len(found), 1)
    return next(iter(found.values()))


@requirement("MD-04")
def test_one_object_per_version(drivers: Drivers, workloads: Workloads, evidence: Observations) -> None:
    """Newest first, v1beta1 among them, all saying the same; a reader of one version finds its own."""
    create_template(workloads, "gpus", [request("one", drivers.device_class(drivers.start()))])
    workloads.run(pod_with_claim("pod", template="gpus"))

    text = _only(rig.files(workloads.report("pod")))
    documents = stream.objects(text)
    versions = [stream.version_of(document) for document in documents]

    evidence("the file", text)
    expect("v1beta1 is one of the versions", "v1beta1" in versions, versions)
    expect(
        "versions from newest to oldest",
        all(stream.age(newer) > stream.age(older) for newer, older in pairwise(versions)),
        versions,
    )
    for version in versions:
        document = stream.read(text, [version])
        expect_equal("what a reader of one version finds", stream.version_of(document), version)
        same = {**document, "apiVersion": documents[0]["apiVersion"]}
        expect_equal(f"{version} says what {versions[0]} says", same, documents[0])


_ATTRIBUTES: dict[str, Object] = {
    "model": {"string": 'H200 \u2014 "SXM"'},
    "lanes": {"int": 16},
    "zero": {"int": 0},
    "ecc": {"bool": False},
    "firmware": {"version": "1.2.3-rc.1+build.5"},
    "example.com/rack": {"string": "7"},
}
_LISTS: dict[str, Object] = {
    "modes": {"strings": ["a", "b"]},
    "nodes": {"ints": [0, 1]},
    "flags": {"bools": [True, False]},
    "drivers": {"versions": ["1.0.0", "2.0.0"]},
}


@requirement("MD-05")
@pytest.mark.parametrize("source", ["claim", "template"])
def test_the_content_is_the_allocation(
    source: str, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """Names, UID and devices are the claim's; values have the types that the driver published."""
    devices = [{"name": "gpu-7", "attributes": _ATTRIBUTES}]
    driver = drivers.start(inventory={"devices": devices})
    gpu = drivers.device_class(driver)
    if source == "claim":
        create_claim(workloads, "a-claim", [request("one", gpu)])
        manifest = pod_with_claim("pod", "a-claim")
    else:
        create_template(workloads, "gpus", [request("one", gpu)])
        manifest = pod_with_claim("pod", template="gpus")

    pod = workloads.run(manifest)

    (claim,) = workloads.claims()
    text = _only(rig.files(workloads.report("pod")))
    evidence.claim("claim", claim)
    evidence("the file", text)
    expected_device = {
        "driver": driver.name,
        "pool": pod["spec"]["nodeName"],
        "name": "gpu-7",
        "attributes": _ATTRIBUTES,
    }
    for document in stream.objects(text):
        metadata = {key: document["metadata"].get(key) for key in ("name", "namespace", "uid")}
        expected_metadata = {key: claim["metadata"][key] for key in metadata}
        expect_equal("the kind", document.get("kind"), "DeviceMetadata")
        expect_equal("name, namespace and UID of the claim", metadata, expected_metadata)
        expect_equal(
            "the pod's name for a claim from a template, none for others",
            document.get("podClaimName"),
            "device" if source == "template" else None,
        )
        expect_equal("requests", document["requests"], [{"name": "one", "devices": [expected_device]}])


@requirement("MD-05")
def test_lists_keep_their_types(drivers: Drivers, workloads: Workloads, evidence: Observations) -> None:
    """Lists of each type, given by an update since ResourceSlices of this release may not take them."""
    driver = drivers.start()
    claim = create_claim(workloads, "a-claim", [request("one", drivers.device_class(driver))])
    first = workloads.run(pod_with_claim("first", "a-claim"))
    node = first["spec"]["nodeName"]

    driver.client.update_metadata(
        node, claim["metadata"]["uid"], "one", {"gpu-0": {"attributes": {**_ATTRIBUTES, **_LISTS}}}
    )

    workloads.run(pod_with_claim("second", "a-claim", node=node))
    document = stream.read(_only(rig.files(workloads.report("second"))))
    evidence("metadata", document)
    (device,) = document["requests"][0]["devices"]
    expect_equal("attributes", device["attributes"], {**_ATTRIBUTES, **_LISTS})


@requirement("MD-06")
def test_every_device_of_a_request(drivers: Drivers, workloads: Workloads, evidence: Observations) -> None:
    """A request for three devices and one for one: each file lists its own, all of them, once."""
    driver = drivers.start(devices=4)
    gpu = drivers.device_class(driver)
    create_claim(workloads, "a-claim", [request("three", gpu, count=3), request("one", gpu)])

    workloads.run(pod_with_claim("pod", "a-claim"))

    allocated = rig.results(get_claim(workloads, "a-claim"))
    found = {path: rig.listed(stream.read(text)) for path, text in rig.files(workloads.report("pod")).items()}
    evidence("allocated", allocated)
    evidence("devices in the files", found)
    expected = {
        rig.direct_path("a-claim", name, driver.name): {
            name: [(driver.name, pool, device) for each, pool, device in allocated if each == name]
        }
        for name in ("three", "one")
    }
    expect_equal("devices in the files", found, expected)
    expect_equal("devices allocated", len({device for _, _, device in allocated}), 4)


@requirement("MD-08")
def test_updates_raise_the_generation(drivers: Drivers, workloads: Workloads, evidence: Observations) -> None:
    """1 at first, more after each update, as pods see that start one after another and share the claim."""
    driver = drivers.start()
    claim = create_claim(workloads, "a-claim", [request("one", drivers.device_class(driver))])
    seen: list[tuple[int, Any]] = []
    node = ""
    for number in range(3):
        if number:
            network = {"networkData": {"interfaceName": f"eth{number}", "ips": [f"10.0.0.{number}/24"]}}
            driver.client.update_metadata(node, claim["metadata"]["uid"], "one", {"gpu-0": network})
        name = f"pod-{number}"
        node = workloads.run(pod_with_claim(name, "a-claim", node=node))["spec"]["nodeName"]
        document = stream.read(_only(rig.files(workloads.report(name))))
        interface = document["requests"][0]["devices"][0].get("networkData", {}).get("interfaceName")
        seen.append((document["metadata"]["generation"], interface))

    evidence("generation and interface that each pod sees", seen)
    again = stream.read(_only(rig.files(rig.read_again(workloads, "pod-0"))))
    evidence("what the first pod sees in the end", again["metadata"]["generation"])
    generations = [generation for generation, _ in seen]
    expect_equal("the first generation", generations[0], 1)
    expect("a greater one after each update", generations == sorted(set(generations)), generations)
    expect_equal("what the pods see is up to date", [each for _, each in seen], [None, "eth1", "eth2"])


@requirement("MD-08")
def test_updates_of_others_metadata_fail(
    cluster: Cluster, drivers: Drivers, workloads: Workloads, evidence: Observations
) -> None:
    """A claim or request of another driver, an unprepared claim: each an error, and nothing changes."""
    node = cluster.nodes[0]
    owner = drivers.start(suffix="owner", nodes=[node], devices=2)
    other = drivers.start(suffix="other", nodes=[node])
    owned, others = (drivers.device_class(each, suffix=each.name[:5]) for each in (owner, other))
    shared = create_claim(workloads, "shared", [request("mine", owned), request("theirs", others)])
    unprepared = create_claim(workloads, "unprepared", [request("mine", owned)])
    alone = create_claim(workloads, "alone", [request("mine", owned)])
    user = Container(claims=["shared", "alone"])
    references = [from_claim(name, name) for name in user.claims]
    workloads.run(pod_manifest("first", [user], resourceClaims=references))
    changes = {"gpu-0": {"attributes": {"stolen": {"bool": True}}}}
    attempts = {
        "a request of another driver": (other, shared, "mine"),
        "a request that the claim hasn't": (owner, shared, "nobodys"),
        "a claim that isn't prepared": (owner, unprepared, "mine"),
        "a claim of another driver": (other, alone, "mine"),
    }

    errors = {}
    for what, (driver, claim, name) in attempts.items():
        try:
            generation = driver.client.update_metadata(node.name, claim["metadata"]["uid"], name, changes)
        except DriverError as error:
            errors[what] = str(error)
        else:
            raise RequirementFailed(f"updating {what} ends in an error", f"generation {generation}")

    workloads.run(pod_manifest("second", [user], resourceClaims=references))
    before, after = (rig.files(workloads.report(pod)) for pod in ("first", "second"))
    evidence("errors", errors)
    evidence("metadata afterwards", after)
    expect_equal("the number of files", len(after), 3)
    expect_equal("metadata after the attempts", after, before)


@requirement("MD-16")
def test_what_is_published(drivers: Drivers, workloads: Workloads, evidence: Observations) -> None:
    """Lists keys and values for people; fails for what has a secret's look, or is another claim's."""
    driver = drivers.start(devices=2)
    create_template(workloads, "gpus", [request("one", drivers.device_class(driver))])
    pods = [workloads.run(pod_with_claim(name, template="gpus")) for name in ("tenant-a", "tenant-b")]

    texts = [_only(rig.files(workloads.report(pod["metadata"]["name"]))) for pod in pods]
    (device,) = stream.read(texts[0])["requests"][0]["devices"]
    published = {
        key
        for slice_ in drivers.slices(driver)
        for each in slice_["spec"].get("devices", ())
        for key in each.get("attributes", ())
    }
    attributes: Object = device.get("attributes", {})
    evidence("attributes in metadata", attributes)
    evidence("of these in no ResourceSlice", sorted(set(attributes) - published))
    evidence("other data", {key: value for key, value in device.items() if key != "attributes"})
    suspicious = [
        key
        for key, value in attributes.items()
        if _SECRET_KEY.search(key) or _SECRET_VALUE.search(str(value))
    ]
    expect_equal("attributes that have a secret's look", suspicious, [])
    (claim,) = workloads.claims("tenant-b")
    identity = [pods[1]["metadata"]["uid"], "tenant-b", claim["metadata"]["uid"], claim["metadata"]["name"]]
    expect_equal("marks of another tenant", [mark for mark in identity if mark in texts[0]], [])
