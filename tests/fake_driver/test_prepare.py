"""Prepare and unprepare: idempotent, one answer per claim, devices never shared by accident."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.fake_driver.conftest import DRIVER, NODE, Rig

Claims = Callable[..., dict[str, Any]]


@pytest.fixture
def default_inventory() -> Any:
    """Two devices with the names that GPUs have."""
    return {"devices": [{"count": 2, "name": "gpu-{index}"}]}


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_answer_has_the_allocated_devices(rig: Rig, claim: Claims, version: str) -> None:
    one = claim(("req", "gpu-1"))
    uid = one["metadata"]["uid"]
    answer = rig.kubelet().prepare(one, version=version)[uid]
    assert answer.error == ""
    (device,) = answer.devices
    assert (list(device.request_names), device.pool_name, device.device_name) == (["req"], NODE, "gpu-1")
    assert list(device.cdi_device_ids) == [
        f"{DRIVER}/gpu={uid}_req_gpu-1",
        f"{DRIVER}/metadata={uid}_req",
    ]


def test_prepare_again_answers_the_same(rig: Rig, claim: Claims) -> None:
    one = claim(("a", "gpu-0"), ("b", "gpu-1"))
    first, second = (rig.kubelet().prepare(one)[one["metadata"]["uid"]] for _ in range(2))
    assert len(first.devices) == 2
    assert first == second


def test_a_bad_claim_doesnt_fail_the_others(rig: Rig, claim: Claims) -> None:
    good = claim(("req", "gpu-0"))
    missing = {"metadata": {"namespace": "default", "name": "gone", "uid": "uid-of-gone"}}
    unallocated = claim(status={})
    replaced = {"metadata": good["metadata"] | {"uid": "old-uid"}}
    elsewhere = claim({"request": "req", "device": "gpu-1", "pool": "node-2"})
    unknown = claim(("req", "gpu-7"))
    answers = rig.kubelet().prepare(good, missing, unallocated, replaced, elsewhere, unknown)
    assert len(answers) == 6
    assert answers[good["metadata"]["uid"]].error == ""
    assert "resourceclaims/gone not found" in answers["uid-of-gone"].error
    assert answers[unallocated["metadata"]["uid"]].error.endswith("is not allocated")
    expected = f"expected UID old-uid, found {good['metadata']['uid']}"
    assert answers["old-uid"].error.endswith(expected)
    assert answers[elsewhere["metadata"]["uid"]].error.endswith(
        f"has no device of driver {DRIVER} in pool {NODE}"
    )
    assert answers[unknown["metadata"]["uid"]].error == f"device {NODE}/gpu-7 doesn't exist"


def test_other_drivers_results_are_ignored(rig: Rig, claim: Claims) -> None:
    other = {"request": "req", "device": "gpu-0", "driver": "other.dev"}
    one = claim(other, ("req", "gpu-1"))
    answer = rig.kubelet().prepare(one)[one["metadata"]["uid"]]
    assert [device.device_name for device in answer.devices] == ["gpu-1"]


def test_a_device_in_use_is_refused_until_it_is_free(rig: Rig, claim: Claims) -> None:
    first, second = claim(("req", "gpu-0"), name="first"), claim(("req", "gpu-0"), name="second")
    uid = second["metadata"]["uid"]
    rig.kubelet().prepare(first)
    assert rig.kubelet().prepare(second)[uid].error == (
        f"device {NODE}/gpu-0 is in use by claim default/first (UID {first['metadata']['uid']})"
    )
    rig.kubelet().unprepare(first)
    assert rig.kubelet().prepare(second)[uid].error == ""


def test_admin_access_and_shares_go_together(rig: Rig, claim: Claims) -> None:
    admin = claim({"request": "req", "device": "gpu-0", "adminAccess": True})
    owner = claim(("req", "gpu-0"))
    shares = [claim({"request": "req", "device": "gpu-1", "shareID": f"share-{n}"}) for n in (1, 2)]
    greedy = claim(("req", "gpu-1"))
    answers = rig.kubelet().prepare(owner, admin, *shares, greedy)
    errors = [answers[one["metadata"]["uid"]].error for one in (owner, admin, *shares)]
    assert errors == ["", "", "", ""]
    assert [answers[one["metadata"]["uid"]].devices[0].share_id for one in shares] == ["share-1", "share-2"]
    assert "is in use by claim" in answers[greedy["metadata"]["uid"]].error


def test_subrequests_are_answered_under_the_main_request(rig: Rig, claim: Claims) -> None:
    one = claim(("req/sub", "gpu-0"))
    answer = rig.kubelet().prepare(one)[one["metadata"]["uid"]]
    assert list(answer.devices[0].request_names) == ["req"]


def test_changed_allocation_of_a_prepared_claim_is_refused(rig: Rig, claim: Claims) -> None:
    one = claim(("req", "gpu-0"), name="one")
    rig.kubelet().prepare(one)
    moved = claim(("req", "gpu-1"), name="one", metadata=one["metadata"])
    answer = rig.kubelet().prepare(moved)[one["metadata"]["uid"]]
    assert "must be unprepared first" in answer.error


def test_unprepare_is_idempotent_and_needs_no_object(rig: Rig, claim: Claims) -> None:
    one = claim(("req", "gpu-0"), name="one")
    uid = one["metadata"]["uid"]
    unknown = {"metadata": {"namespace": "default", "name": "never", "uid": "never-seen"}}
    rig.kubelet().prepare(one)
    assert rig.client.status().node(NODE).prepared_claims == [uid]
    assert rig.api.delete("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/one")
    for _ in range(2):
        answers = rig.kubelet().unprepare(one, unknown)
        assert {key: answer.error for key, answer in answers.items()} == {uid: "", "never-seen": ""}
    assert rig.client.status().node(NODE).prepared_claims == []
    assert list(rig.cdi_dir().iterdir()) == []


def config(parameters: Any, *requests: str, source: str = "FromClaim", driver: str = DRIVER) -> Any:
    return {
        "source": source,
        "requests": list(requests),
        "opaque": {"driver": driver, "parameters": parameters},
    }


def gpu_config(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "dra-harness.dev/v1", "kind": "GpuConfig"} | fields


def test_unknown_config_key_fails_that_claim_by_name(rig: Rig, claim: Claims) -> None:
    bad = claim(("req", "gpu-0"), config=[config(gpu_config(evn={"A": "b"}))])
    good = claim(("req", "gpu-1"), config=[config({"any": "thing"}, driver="other.dev")])
    answers = rig.kubelet().prepare(bad, good)
    assert answers[bad["metadata"]["uid"]].error == (
        "opaque parameters: evn: unknown key; did you mean 'env'?"
    )
    assert answers[good["metadata"]["uid"]].error == ""


def test_state_survives_a_restart(start: Callable[..., Rig], claim: Claims) -> None:
    rig = start()
    one = claim(("req", "gpu-0"), name="one")
    before = rig.kubelet().prepare(one)[one["metadata"]["uid"]]
    rig.stop()
    spec = next(rig.cdi_dir().glob("*_claim_*"))
    content = spec.read_bytes()
    for path in rig.cdi_dir().iterdir():
        path.unlink()  # as a reboot does
    rig = start()
    assert spec.read_bytes() == content
    assert rig.kubelet().prepare(one)[one["metadata"]["uid"]] == before
    rig.kubelet().unprepare(one)
    assert list(rig.cdi_dir().iterdir()) == []
