"""What containers get: CDI devices, configuration, and metadata files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_driver.client import DriverError
from fake_driver.config import Quirk
from fake_driver.node.cdi import parse_environment

from tests.fake_driver.conftest import DRIVER, NODE, Rig

Claims = Callable[..., dict[str, Any]]
ATTRIBUTES = "/var/run/kubernetes.io/dra-device-attributes"
CDI_NAME = re.compile(
    r"^[A-Za-z][\w.-]*[A-Za-z0-9]/[A-Za-z][\w.-]*[A-Za-z0-9]=[A-Za-z0-9][\w.:-]*[A-Za-z0-9]$"
)


def cdi_devices(rig: Rig) -> dict[str, dict[str, Any]]:
    """All CDI devices that a runtime would find, by fully qualified name."""
    found = {}
    for path in rig.cdi_dir().glob("*.json"):
        spec = json.loads(path.read_text())
        assert spec["cdiVersion"] == "0.6.0"
        for device in spec["devices"]:
            name = f"{spec['kind']}={device['name']}"
            assert name not in found
            found[name] = device["containerEdits"]
    return found


def container_edits(rig: Rig, answer: Any, *requests: str) -> list[dict[str, Any]]:
    """The edits for a container that uses `requests`, as the kubelet passes them on."""
    known = cdi_devices(rig)
    ids = [
        id_
        for device in answer.devices
        if set(device.request_names) & set(requests)
        for id_ in device.cdi_device_ids
    ]
    assert all(CDI_NAME.match(id_) for id_ in ids)
    return [known[id_] for id_ in ids]


def environment(edits: list[dict[str, Any]]) -> list[str]:
    return [variable for edit in edits for variable in edit.get("env", [])]


def metadata(rig: Rig, name: str, request: str = "req") -> list[dict[str, Any]]:
    """The metadata stream of a claim's request, object by object."""
    path = rig.kubelet().plugin_dir / "dra-device-metadata" / f"default_{name}" / request / "metadata.json"
    text, documents, decoder = path.read_text().strip(), [], json.JSONDecoder()
    while text:
        document, end = decoder.raw_decode(text)
        documents.append(document)
        text = text[end:].strip()
    return documents


def test_each_container_sees_its_requests_devices(rig: Rig, claim: Claims) -> None:
    one = claim(("a", "dev-0"), ("b", "dev-1"))
    uid = one["metadata"]["uid"]
    answer = rig.kubelet().prepare(one)[uid]
    edits = container_edits(rig, answer, "b")
    assert environment(edits) == [f"DRA_DEVICE_GPU_TEST_DEV_DEV_1={NODE}/dev-1;claim={uid};request=b"]
    assert edits[0]["deviceNodes"] == [
        {
            "path": f"/dev/dra-harness/{DRIVER}/dev-1",
            "type": "c",
            "major": 1,
            "minor": 3,
            "fileMode": 0o666,
            "permissions": "rw",
        }
    ]
    both = parse_environment("\n".join(environment(container_edits(rig, answer, "a", "b"))), DRIVER)
    assert [(seen.pool, seen.device, seen.claim_uid, seen.request) for seen in both] == [
        (NODE, "dev-0", uid, "a"),
        (NODE, "dev-1", uid, "b"),
    ]


def test_shares_of_one_device_dont_hide_each_other(rig: Rig, claim: Claims) -> None:
    shares = [{"request": "req", "device": "dev-0", "shareID": f"share-{n}"} for n in (1, 2)]
    one = claim(*shares)
    answer = rig.kubelet().prepare(one)[one["metadata"]["uid"]]
    seen = parse_environment("\n".join(environment(container_edits(rig, answer, "req"))))
    assert [device.variable for device in seen] == [
        "DRA_DEVICE_GPU_TEST_DEV_DEV_0_SHARE_SHARE_1",
        "DRA_DEVICE_GPU_TEST_DEV_DEV_0_SHARE_SHARE_2",
    ]


def gpu_config(source: str, env: dict[str, str], *requests: str, **more: Any) -> dict[str, Any]:
    parameters = {"apiVersion": "dra-harness.dev/v1", "kind": "GpuConfig", "env": env} | more
    return {
        "source": source,
        "requests": list(requests),
        "opaque": {"driver": DRIVER, "parameters": parameters},
    }


def test_configuration_reaches_its_requests_and_the_claim_wins(rig: Rig, claim: Claims) -> None:
    configs = [
        gpu_config("FromClaim", {"MODE": "claim", "ONLY_A": "1"}, "a"),
        gpu_config("FromClass", {"MODE": "class"}),
        gpu_config(
            "FromClaim",
            {"ONLY_SUB": "1"},
            "c/small",
            sharing={"strategy": "TimeSlicing", "timeSlice": "Long"},
        ),
    ]
    one = claim(("a", "dev-0"), ("c/small", "dev-1"), config=configs)
    answer = rig.kubelet().prepare(one)[one["metadata"]["uid"]]
    assert environment(container_edits(rig, answer, "a"))[1:] == ["MODE=claim", "ONLY_A=1"]
    assert environment(container_edits(rig, answer, "c"))[1:] == [
        "MODE=class",
        "ONLY_SUB=1",
        "DRA_SHARING_STRATEGY=TimeSlicing",
        "DRA_TIME_SLICE=Long",
    ]


def test_metadata_stream_of_a_direct_claim(rig: Rig, claim: Claims) -> None:
    one = claim(("req", "dev-0"), ("req", "dev-1"), name="one")
    uid = one["metadata"]["uid"]
    answer = rig.kubelet().prepare(one)[uid]
    newest, older = metadata(rig, "one")
    assert newest == {
        "apiVersion": "metadata.resource.k8s.io/v1beta1",
        "kind": "DeviceMetadata",
        "metadata": {"name": "one", "namespace": "default", "uid": uid, "generation": 1},
        "requests": [
            {
                "name": "req",
                "devices": [
                    {
                        "driver": DRIVER,
                        "pool": NODE,
                        "name": f"dev-{n}",
                        "attributes": {
                            "type": {"string": "gpu"},
                            "model": {"string": "small"},
                            "serial": {"string": f"{NODE}-{n}"},
                        },
                    }
                    for n in (0, 1)
                ],
            }
        ],
    }
    assert older == newest | {"apiVersion": "metadata.resource.k8s.io/v1alpha1"}
    mounts = [mount for edit in container_edits(rig, answer, "req") for mount in edit.get("mounts", [])]
    assert mounts == [
        {
            "hostPath": f"/var/lib/kubelet/plugins/{DRIVER}/dra-device-metadata/default_one/req/"
            "metadata.json",
            "containerPath": f"{ATTRIBUTES}/resourceclaims/one/req/{DRIVER}-metadata.json",
            "options": ["ro", "bind"],
        }
    ]


def test_metadata_of_a_template_claim_with_subrequest(rig: Rig, claim: Claims) -> None:
    annotations = {"resource.kubernetes.io/pod-claim-name": "gpus"}
    one = claim(("req/sub", "dev-0"), name="pod-gpus-x7k2p", annotations=annotations)
    answer = rig.kubelet().prepare(one)[one["metadata"]["uid"]]
    document = metadata(rig, "pod-gpus-x7k2p")[0]
    assert document["podClaimName"] == "gpus"
    assert document["requests"][0]["name"] == "req/sub"
    (mount,) = (mount for edit in container_edits(rig, answer, "req") for mount in edit.get("mounts", []))
    assert mount["containerPath"] == f"{ATTRIBUTES}/resourceclaimtemplates/gpus/req/{DRIVER}-metadata.json"


def test_metadata_off_on_concerns_only_new_claims(rig: Rig, claim: Claims) -> None:
    before, during = claim(("req", "dev-0")), claim(("req", "dev-1"))
    with_ids = rig.kubelet().prepare(before)[before["metadata"]["uid"]]
    rig.client.set_metadata(enabled=False)
    answer = rig.kubelet().prepare(during)[during["metadata"]["uid"]]
    assert [len(device.cdi_device_ids) for device in answer.devices] == [1]
    assert not list(rig.cdi_dir().glob(f"*_metadata_{during['metadata']['uid']}_*"))
    assert rig.kubelet().prepare(before)[before["metadata"]["uid"]] == with_ids
    rig.client.set_metadata(enabled=True)
    assert rig.kubelet().prepare(during)[during["metadata"]["uid"]] == answer


def test_metadata_update_grows_the_generation(rig: Rig, claim: Claims) -> None:
    one = claim(("req", "dev-0"), name="one")
    uid = one["metadata"]["uid"]
    rig.kubelet().prepare(one)
    network = {"interfaceName": "eth7", "ips": ["10.0.0.7/24"]}
    assert rig.client.update_metadata(NODE, uid, "req", {"dev-0": {"networkData": network}}) == 2
    for document in metadata(rig, "one"):
        assert document["metadata"]["generation"] == 2
        assert document["requests"][0]["devices"][0]["networkData"] == network
        assert document["requests"][0]["devices"][0]["attributes"]["model"] == {"string": "small"}
    with pytest.raises(DriverError, match="request 'other' has no metadata in claim default/one"):
        rig.client.update_metadata(NODE, uid, "other", {})
    with pytest.raises(DriverError, match="claim with UID nobody is not prepared"):
        rig.client.update_metadata(NODE, "nobody", "req", {})


def test_metadata_update_takes_any_text(rig: Rig, claim: Claims) -> None:
    one = claim(("req", "dev-0"), name="one")
    rig.kubelet().prepare(one)
    attributes = {"model": {"string": "naïve — 模型"}}
    rig.client.update_metadata(NODE, one["metadata"]["uid"], "req", {"dev-0": {"attributes": attributes}})
    assert metadata(rig, "one")[0]["requests"][0]["devices"][0]["attributes"] == attributes


def test_metadata_write_failure_fails_prepare_and_leaves_nothing(rig: Rig, claim: Claims) -> None:
    one = claim(("req", "dev-0"))
    uid = one["metadata"]["uid"]
    blocker = rig.kubelet().plugin_dir / "dra-device-metadata"
    blocker.write_text("a file where a directory has to be")
    assert re.match("can't write .*dra-device-metadata", rig.kubelet().prepare(one)[uid].error)
    assert list(rig.cdi_dir().iterdir()) == []
    blocker.unlink()
    assert rig.kubelet().prepare(one)[uid].error == ""


def test_what_hinders_the_clean_up_too_fails_the_claim_and_not_the_call(rig: Rig, claim: Claims) -> None:
    """A directory where the CDI spec has to be can neither be replaced nor unlinked."""
    one, two = claim(("req", "dev-0"), name="one"), claim(("req", "dev-1"), name="two")
    kubelet = rig.kubelet()
    kubelet.prepare(one)
    (spec,) = (path for path in rig.cdi_dir().iterdir() if "metadata" not in path.name)
    kubelet.unprepare(one)
    spec.mkdir()

    answer = kubelet.prepare(one, two)

    assert re.match("can't write .*: Is a directory", answer[one["metadata"]["uid"]].error)
    assert answer[two["metadata"]["uid"]].error == ""
    spec.rmdir()
    assert kubelet.prepare(one)[one["metadata"]["uid"]].error == ""


def test_same_name_with_another_uid_waits_for_its_predecessor(rig: Rig, claim: Claims) -> None:
    old = claim(("req", "dev-0"), name="one")
    rig.kubelet().prepare(old)
    new = claim(("req", "dev-1"), name="one")
    uid = new["metadata"]["uid"]
    assert f"belongs to the claim with UID {old['metadata']['uid']}" in rig.kubelet().prepare(new)[uid].error
    assert metadata(rig, "one")[0]["metadata"]["uid"] == old["metadata"]["uid"]
    rig.kubelet().unprepare(old)
    rig.kubelet().prepare(new)
    rig.kubelet().unprepare(old)  # late: must not take the successor's files
    assert metadata(rig, "one")[0]["metadata"]["uid"] == uid


def test_nothing_is_left_after_many_claims(rig: Rig, claim: Claims) -> None:
    for _ in range(5):
        one = claim(("a", "dev-0"), ("b", "dev-1"))
        assert rig.kubelet().prepare(one)[one["metadata"]["uid"]].error == ""
        rig.kubelet().unprepare(one)
    assert list(rig.cdi_dir().iterdir()) == []
    assert list((rig.kubelet().plugin_dir / "dra-device-metadata").iterdir()) == []


def test_orphans_of_a_crash_are_removed_at_the_start(start: Callable[..., Rig], tmp_path: Path) -> None:
    cdi = tmp_path / NODE / "cdi"
    cdi.mkdir(parents=True)
    for name in (f"{DRIVER}_claim_dead.json", f"{DRIVER}_metadata_dead_req.json", "other.dev_claim_x.json"):
        (cdi / name).write_text("{}")
    start()
    assert [path.name for path in cdi.iterdir()] == ["other.dev_claim_x.json"]


QUIRKS: list[tuple[Quirk, Callable[[list[dict[str, Any]], dict[str, Any]], bool]]] = [
    (Quirk.METADATA_OLDEST_FIRST, lambda documents, mount: documents[0]["apiVersion"].endswith("/v1alpha1")),
    (Quirk.METADATA_WRONG_UID, lambda documents, mount: documents[0]["metadata"]["uid"] == "fixed-uid"[::-1]),
    (
        Quirk.METADATA_FIRST_DEVICE_ONLY,
        lambda documents, mount: len(documents[0]["requests"][0]["devices"]) == 1,
    ),
    (Quirk.METADATA_ALL_REQUESTS, lambda documents, mount: len(documents[0]["requests"]) == 2),
    (Quirk.METADATA_WRITABLE, lambda documents, mount: mount["options"] == ["rw", "bind"]),
    (
        Quirk.METADATA_NO_DRIVER_NAME,
        lambda documents, mount: mount["containerPath"].endswith("/a/metadata.json"),
    ),
    (
        Quirk.METADATA_NO_DIRECT_CLAIMS,
        lambda documents, mount: "/resourceclaims/" not in mount["containerPath"],
    ),
    (Quirk.METADATA_WRONG_NAME, lambda documents, mount: documents[0]["metadata"]["name"] == "fixed-uid"),
    (
        Quirk.METADATA_LEAK,
        lambda documents, mount: "apiToken" in documents[0]["requests"][0]["devices"][0]["attributes"],
    ),
]


@pytest.mark.parametrize(("quirk", "shows"), QUIRKS)
def test_metadata_quirks(
    start: Callable[..., Rig],
    claim: Claims,
    quirk: Quirk,
    shows: Callable[[list[dict[str, Any]], dict[str, Any]], bool],
) -> None:
    rig = start(inventory={"devices": [{"count": 3, "name": "d-{index}"}]}, quirks=[quirk.value])
    one = claim(
        *(("a", "d-0"), ("a", "d-1"), ("b", "d-2")),
        metadata={"name": "one", "namespace": "default", "uid": "fixed-uid"},
        name="one",
    )
    answer = rig.kubelet().prepare(one)["fixed-uid"]
    edits = container_edits(rig, answer, "a")
    mounts = [mount for edit in edits for mount in edit.get("mounts", [])]
    documents = metadata(rig, "one", "a")
    assert shows(documents, mounts[0])


def test_metadata_as_text(start: Callable[..., Rig], claim: Claims) -> None:
    device = {"name": "d", "attributes": {"lanes": {"int": 16}, "nodes": {"ints": [1, 0]}}}
    rig = start(inventory={"devices": [device]}, quirks=["metadata-as-text"])
    rig.kubelet().prepare(claim(("req", "d"), name="one"))
    (shown,) = metadata(rig, "one")[0]["requests"][0]["devices"]
    assert shown["attributes"] == {"lanes": {"string": "16"}, "nodes": {"string": "1"}}


def test_metadata_updates_anything(start: Callable[..., Rig], claim: Claims) -> None:
    rig = start(quirks=["metadata-updates-anything"])
    one = claim(("req", "dev-0"), name="one")
    rig.kubelet().prepare(one)
    assert rig.client.update_metadata(NODE, "nobody", "req", {}) == 1
    assert rig.client.update_metadata(NODE, one["metadata"]["uid"], "other", {}) == 1
    assert rig.client.update_metadata(NODE, one["metadata"]["uid"], "req", {}) == 2


def test_metadata_slow(start: Callable[..., Rig], claim: Claims) -> None:
    rig = start(quirks=["metadata-slow"])
    rig.kubelet().prepare(claim(("req", "dev-0")))
    (call,) = rig.client.calls(method="NodePrepareResources")
    assert call.seconds is not None
    assert call.seconds >= 0.02
