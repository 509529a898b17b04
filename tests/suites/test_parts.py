"""Names, manifests, devices, evidence and the target: what checks are made of."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clusters.interface import Cluster, Node, Profile
from harness.connection import Connection
from harness.errors import EnvironmentBlocked, RequirementFailed
from harness.kube import KubeClient
from suites import devices, target
from suites.evidence import Observations, tidy
from suites.naming import Names, slug
from suites.workload import Container, Workloads, owner_names, pod_manifest, require_image

CLUSTER = Cluster(
    name="c",
    provider="local",
    kubernetes="v1.37.2",
    profile=Profile.ALPHA,
    kubeconfig=Path("/s/admin.kubeconfig"),
    nodes=(Node("node-1", Path("/s/k"), "/var/lib/kubelet", Path("/s/cdi")),),
    directory=Path("/s"),
    gates={"DRAFoo": False},
    id="0a1b2c",
    driver_kubeconfig=Path("/s/driver.kubeconfig"),
    seconds=9.5,
    phases={"API server ready": 2.0, "nodes Ready": 9.0},
)


def test_a_cluster_is_found_again_as_it_was(tmp_path: Path) -> None:
    path = target.write_cluster(tmp_path, CLUSTER)
    assert target.read_cluster(path) == CLUSTER
    assert json.loads((tmp_path / "cluster-c.json").read_text())["kubeconfig"] == "/s/admin.kubeconfig"


def test_names_are_the_same_for_the_same_check_of_the_same_run() -> None:
    one, again = Names("run-1", "a.py::b[x]"), Names("run-1", "a.py::b[x]")
    assert (one.name("gpu"), one.driver(), one.extended_resource()) == (
        again.name("gpu"),
        again.driver(),
        again.extended_resource(),
    )


def test_names_differ_between_runs_checks_and_suffixes() -> None:
    names = [Names(run, check) for run in ("r1", "r2") for check in ("a", "b")]
    made = [
        make(suffix)
        for n in names
        for suffix in ("x", "y")
        for make in (n.name, n.driver, n.extended_resource)
    ]
    assert len(set(made)) == 2 * 2 * 2 * 3


def test_names_are_what_kubernetes_takes() -> None:
    for check in range(50):
        names = Names("r", str(check))
        assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", names.name())
        assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", names.name("gpu"))
        assert names.name().startswith("t")
        assert re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", names.driver("nic"))
        assert len(names.driver("nic")) <= 63
        domain, name = names.extended_resource("nic").split("/")
        assert (domain, name) == (f"{names.token}.dra-harness.dev", "nic")


@pytest.mark.parametrize(
    ("check", "folder"),
    [
        ("quota/test_q.py::test_a[explicit]", "test_q.py-test_a-explicit".replace("_", "-")),
        ("test_q.py::TestX::test_a", "test-q.py-TestX-test-a"),
        ("test_q.py::test_a[../../x]", "x"),
    ],
)
def test_a_slug_is_one_harmless_folder_name(check: str, folder: str) -> None:
    assert slug(check) == folder
    assert "/" not in slug(check)


def test_a_pod_of_our_image() -> None:
    pod = pod_manifest("p", [Container(resources={"a.example/gpu": 2, "cpu": "10m"})])
    assert pod == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [
                {
                    "name": "main",
                    "image": pod["spec"]["containers"][0]["image"],
                    "imagePullPolicy": "Never",
                    "resources": {"limits": {"a.example/gpu": "2", "cpu": "10m"}},
                }
            ],
        },
    }


def test_init_containers_sidecars_arguments_and_node() -> None:
    pod = pod_manifest(
        "p",
        [Container("a"), Container("b", args=["--exit", "1"])],
        init=[Container("i"), Container("s", sidecar=True)],
        node="node-2",
        restartPolicy="Always",
        resourceClaims=[],
    )
    spec = pod["spec"]
    assert [each["name"] for each in spec["containers"]] == ["a", "b"]
    assert [each.get("args") for each in spec["containers"]] == [None, ["--exit", "1"]]
    assert [each["resources"] for each in spec["containers"]] == [{}, {}]
    assert [each.get("restartPolicy") for each in spec["initContainers"]] == [None, "Always"]
    assert spec["nodeSelector"] == {"kubernetes.io/hostname": "node-2"}
    assert (spec["restartPolicy"], spec["resourceClaims"]) == ("Always", [])


def test_a_pod_of_an_image_that_nodes_pull(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRA_HARNESS_POD_IMAGE", "registry.example.com/pod:v1")
    (container,) = pod_manifest("p", [Container()])["spec"]["containers"]
    assert (container["image"], container["imagePullPolicy"]) == (
        "registry.example.com/pod:v1",
        "IfNotPresent",
    )


@pytest.mark.parametrize("statuses", ["containerStatuses", "initContainerStatuses"])
def test_a_node_without_the_image_blocks_a_check_and_fails_none(statuses: str) -> None:
    """As the kubelet says it of a pod whose image nobody brought to the node."""
    said = {"reason": "ErrImageNeverPull", "message": "is not present with pull policy of Never"}
    container = {"name": "main", "image": "dra-harness.dev/pod:v1", "state": {"waiting": said}}
    pod = {"spec": {"nodeName": "n"}, "status": {"phase": "Pending", statuses: [container]}}
    with pytest.raises(EnvironmentBlocked, match=r"^node n has no image dra-harness.dev/pod:v1: Err"):
        require_image(pod)

    creating = {**container, "state": {"waiting": {"reason": "ContainerCreating"}}}
    require_image({"spec": {}, "status": {statuses: [creating]}})


def test_a_pod_that_was_rejected_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "n"}, "status": {"phase": "Failed"}}
    workloads = Workloads(KubeClient(Connection(None)), "ns")
    monkeypatch.setattr(workloads, "get", lambda name: pod)
    monkeypatch.setattr(workloads, "events", lambda name: ["UnexpectedAdmissionError: no device"])
    with pytest.raises(RequirementFailed, match=r"pod p runs\nobserved: phase Failed.*no device"):
        workloads.wait_running("p")


def test_owners_of_an_object() -> None:
    assert owner_names({"metadata": {}}) == []
    assert owner_names({"metadata": {"ownerReferences": [{"name": "p"}, {"name": "q"}]}}) == ["p", "q"]


@pytest.mark.parametrize(
    ("claim", "names"),
    [
        ({}, []),
        ({"status": {}}, []),
        ({"status": {"allocation": {}}}, []),
        (
            {"status": {"allocation": {"devices": {"results": [{"device": "b"}, {"device": "a"}]}}}},
            ["a", "b"],
        ),
        (
            {"status": {"allocation": {"devices": {"results": [{"device": "a"}, {"device": "a"}]}}}},
            ["a", "a"],
        ),
    ],
)
def test_allocated_devices_of_a_claim(claim: dict[str, Any], names: list[str]) -> None:
    assert devices.allocated(claim) == names


def test_given_devices_are_the_drivers_own() -> None:
    report = {
        "devices": ["/dev/null", "/dev/dra-harness/d.example/gpu-1", "/dev/dra-harness/d.example/gpu-0"]
    }
    assert devices.given(report) == ["gpu-0", "gpu-1"]
    assert devices.given({"devices": ["/dev/zero"]}) == []


def test_requests_of_a_claim_count_one_by_default() -> None:
    requests = [{"name": "a", "exactly": {"count": 3}}, {"name": "b", "exactly": {}}]
    assert devices.requests_of({"spec": {"devices": {"requests": requests}}}) == {"a": 3, "b": 1}


def test_classes_of_a_claims_requests() -> None:
    requests = [
        {"name": "a", "exactly": {"deviceClassName": "x"}},
        {"name": "b", "exactly": {"deviceClassName": "y"}},
    ]
    assert devices.classes_of({"spec": {"devices": {"requests": requests}}}) == {"a": "x", "b": "y"}


@pytest.mark.parametrize("read", [devices.requests_of, devices.classes_of])
@pytest.mark.parametrize(
    "claim",
    [
        {},
        {"spec": {"devices": {}}},
        {"spec": {"devices": {"requests": [{"name": "a", "firstAvailable": []}]}}},
    ],
)
def test_a_claim_without_requests_for_a_number_breaks_a_promise(
    claim: dict[str, Any], read: Callable[[dict[str, Any]], object]
) -> None:
    with pytest.raises(RequirementFailed):
        read(claim)


def test_devices_of_some_of_a_claims_requests() -> None:
    results = [
        {"request": request, "device": device} for request, device in (("b", "3"), ("a", "2"), ("a", "1"))
    ]
    claim = {"status": {"allocation": {"devices": {"results": results}}}}
    assert devices.allocated_to(claim, ["a"]) == ["1", "2"]
    assert devices.allocated_to(claim, {"a", "b"}) == ["1", "2", "3"]
    assert devices.allocated_to(claim, ["c"]) == []
    assert devices.allocated_to({}, ["a"]) == []
    assert devices.by_request(claim) == {"a": ["1", "2"], "b": ["3"]}
    assert devices.by_request({}) == {}


def test_evidence_of_an_object_is_without_bookkeeping() -> None:
    metadata = {
        "name": "c",
        "labels": {"a": "b"},
        "managedFields": [],
        "uid": "u",
        "resourceVersion": "1",
        "generation": 2,
    }
    claim = {"metadata": metadata, "status": {"uid": "stays"}}
    assert tidy(claim) == {"metadata": {"name": "c", "labels": {"a": "b"}}, "status": {"uid": "stays"}}
    assert claim["metadata"] is metadata
    assert "uid" in metadata
    assert tidy({"spec": 1}) == {"spec": 1, "metadata": {}}


def test_observations_keep_their_order() -> None:
    seen = Observations()
    seen("one", 1)
    seen.claim("two", {"metadata": {"name": "c", "uid": "u"}})
    assert [(item.title, item.value) for item in seen.items] == [
        ("one", 1),
        ("two", {"metadata": {"name": "c"}}),
    ]
