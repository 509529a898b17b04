"""Each quirk breaks exactly its promise; the metadata and health quirks are with their features' tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fake_driver.config import Quirk

from harness.waiting import wait_until
from tests.fake_driver.conftest import DRIVER, NODE, Rig
from tests.fake_driver.standin import SLICES

Claims = Callable[..., dict[str, Any]]
StartRig = Callable[..., Rig]


def uid_of(claim: dict[str, Any]) -> str:
    return str(claim["metadata"]["uid"])


def gpu_config(*requests: str, env: dict[str, str]) -> dict[str, Any]:
    parameters = {"apiVersion": "dra-harness.dev/v1", "kind": "GpuConfig", "env": env}
    opaque = {"driver": DRIVER, "parameters": parameters}
    return {"source": "FromClaim", "requests": list(requests), "opaque": opaque}


def test_quirks_can_be_changed_while_it_runs(rig: Rig) -> None:
    rig.client.set_quirks([Quirk.SHARES_DEVICES, Quirk.KEEPS_CDI_SPECS])
    assert rig.client.status().quirks == ["keeps-cdi-specs", "shares-devices"]
    rig.client.set_quirks([])
    assert rig.client.status().quirks == []


def test_prepare_moves_device(start: StartRig, claim: Claims) -> None:
    rig = start(quirks=["prepare-moves-device"])
    one = claim(("req", "dev-0"))
    names = [rig.kubelet().prepare(one)[uid_of(one)].devices[0].device_name for _ in range(2)]
    assert names == ["dev-0", "dev-0-moved"]


def test_unprepare_unknown_fails(start: StartRig, claim: Claims) -> None:
    rig = start(quirks=["unprepare-unknown-fails"])
    one = claim(("req", "dev-0"))
    rig.kubelet().prepare(one)
    assert rig.kubelet().unprepare(one)[uid_of(one)].error == ""
    assert rig.kubelet().unprepare(one)[uid_of(one)].error == f"claim with UID {uid_of(one)} is not prepared"


def test_unprepare_needs_claim(start: StartRig, claim: Claims) -> None:
    rig = start(quirks=["unprepare-needs-claim"])
    one = claim(("req", "dev-0"), name="one")
    rig.kubelet().prepare(one)
    rig.api.delete("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/one")
    assert "not found" in rig.kubelet().unprepare(one)[uid_of(one)].error


def test_unprepare_keeps_device(start: StartRig, claim: Claims) -> None:
    rig = start(quirks=["unprepare-keeps-device"])
    one, other = claim(("req", "dev-0"), name="one"), claim(("req", "dev-0"), name="other")
    rig.kubelet().prepare(one)
    assert rig.kubelet().unprepare(one)[uid_of(one)].error == ""
    assert "is in use by claim default/one" in rig.kubelet().prepare(other)[uid_of(other)].error


def test_reuses_cdi_ids(start: StartRig, claim: Claims) -> None:
    rig = start(quirks=["reuses-cdi-ids"], metadata={"enabled": False})
    ids = []
    for name in ("one", "other"):
        one = claim(("req", "dev-0"), name=name)
        (device,) = rig.kubelet().prepare(one)[uid_of(one)].devices
        rig.kubelet().unprepare(one)
        ids += device.cdi_device_ids
    assert ids == [f"{DRIVER}/gpu=req_dev-0"] * 2


def test_empty_in_v1beta1(start: StartRig, claim: Claims) -> None:
    rig = start(quirks=["empty-in-v1beta1"])
    one = claim(("req", "dev-0"))
    answers = {version: rig.kubelet().prepare(one, version=version) for version in ("v1", "v1beta1")}
    counts = {version: len(answer[uid_of(one)].devices) for version, answer in answers.items()}
    assert counts == {"v1": 1, "v1beta1": 0}


def test_keeps_old_slices(start: StartRig) -> None:
    rig = start(quirks=["keeps-old-slices"], inventory={"devices": [{"count": 200}]})
    rig.client.set_inventory({"devices": [{"count": 2}]})
    pools = [slice_["spec"]["pool"] for slice_ in rig.api.slices()]
    assert sorted((pool["generation"], pool["resourceSliceCount"]) for pool in pools) == [(1, 2), (2, 1)]


def test_no_slice_restore(start: StartRig) -> None:
    rig = start(quirks=["no-slice-restore"])
    (slice_,) = rig.api.slices()
    seen = len(rig.api.requests)
    rig.api.delete(f"{SLICES}/{slice_['metadata']['name']}")
    wait_until(
        lambda: rig.client.status().node(NODE).slices == [] and len(rig.api.requests) > seen,
        *(5, "the driver to see the deletion"),
        interval=0.02,
    )
    assert rig.api.slices() == []


@pytest.mark.parametrize(("quirks", "left"), [([], 1), (["takes-slices-along"], 0)])
def test_takes_slices_along(start: StartRig, quirks: list[str], left: int) -> None:
    rig = start(quirks=quirks)
    rig.stop()
    assert len(rig.api.slices()) == left


def test_trusts_old_slices(start: StartRig) -> None:
    rig = start(inventory={"devices": [{"count": 200}]})
    rig.stop()
    first, second = rig.api.slices()
    rig.api.delete(f"{SLICES}/{second['metadata']['name']}")
    rig = start(inventory={"devices": [{"count": 200}]}, quirks=["trusts-old-slices"])
    assert rig.api.slices() == [first]


def test_wrong_slice_count(start: StartRig) -> None:
    rig = start(quirks=["wrong-slice-count"])
    assert [slice_["spec"]["pool"]["resourceSliceCount"] for slice_ in rig.api.slices()] == [2]


def test_forgets_claims(start: StartRig, claim: Claims) -> None:
    rig = start()
    one = claim(("req", "dev-0"))
    rig.kubelet().prepare(one)
    rig.stop()
    rig = start(quirks=["forgets-claims"])
    assert rig.client.status().node(NODE).prepared_claims == []


def test_shares_devices(start: StartRig, claim: Claims) -> None:
    rig = start(quirks=["shares-devices"])
    claims = [claim(("req", "dev-0")) for _ in range(2)]
    answers = rig.kubelet().prepare(*claims)
    assert [answers[uid_of(one)].error for one in claims] == ["", ""]


def test_cdi_quirks(start: StartRig, claim: Claims) -> None:
    rig = start(
        quirks=["unqualified-cdi-ids", "duplicate-cdi-ids", "keeps-cdi-specs"], metadata={"enabled": False}
    )
    one = claim(("req", "dev-0"))
    (device,) = rig.kubelet().prepare(one)[uid_of(one)].devices
    assert list(device.cdi_device_ids) == [f"{uid_of(one)}_req_dev-0"] * 2
    rig.kubelet().unprepare(one)
    assert [path.name for path in rig.cdi_dir().iterdir()] == [f"{DRIVER}_claim_{uid_of(one)}.json"]


def test_config_for_all_requests(start: StartRig, claim: Claims) -> None:
    rig = start(quirks=["config-for-all-requests"])
    one = claim(("a", "dev-0"), ("b", "dev-1"), config=[gpu_config("a", env={"ONLY": "a"})])
    rig.kubelet().prepare(one)
    (spec,) = rig.cdi_dir().glob("*_claim_*.json")
    assert spec.read_text().count("ONLY=a") == 2


def test_refuses_extended_resources(start: StartRig, claim: Claims) -> None:
    special = {"resource.kubernetes.io/extended-resource-claim": "true"}
    one = claim(("container-0-request-0", "dev-0"), annotations=special)
    rig = start()
    assert rig.kubelet().prepare(one)[uid_of(one)].error == ""
    rig.kubelet().unprepare(one)
    rig.client.set_quirks([Quirk.REFUSES_EXTENDED_RESOURCES])
    assert "has no pod claim name" in rig.kubelet().prepare(one)[uid_of(one)].error


def test_no_request_names(start: StartRig, claim: Claims) -> None:
    rig = start(quirks=["no-request-names"])
    one = claim(("a", "dev-0"), ("b", "dev-1"))
    devices = rig.kubelet().prepare(one)[uid_of(one)].devices
    assert [(device.device_name, list(device.request_names)) for device in devices] == [
        ("dev-0", []),
        ("dev-1", []),
    ]


def test_subrequest_names(start: StartRig, claim: Claims) -> None:
    rig = start(quirks=["subrequest-names"])
    one = claim(("a/first", "dev-0"), ("b", "dev-1"))
    devices = rig.kubelet().prepare(one)[uid_of(one)].devices
    assert [list(device.request_names) for device in devices] == [["a/first"], ["b"]]


def test_no_subrequest_config(start: StartRig, claim: Claims) -> None:
    rig = start(quirks=["no-subrequest-config"])
    config = [gpu_config("a/first", env={"FIRST": "x"}), gpu_config("a", env={"REQUEST": "x"})]
    one = claim(("a/first", "dev-0"), config=config)
    rig.kubelet().prepare(one)
    (spec,) = rig.cdi_dir().glob("*_claim_*.json")
    assert ("FIRST=x" in spec.read_text(), "REQUEST=x" in spec.read_text()) == (False, True)


def test_gives_up_on_claims(start: StartRig, claim: Claims) -> None:
    rig = start(quirks=["gives-up-on-claims"])
    one, other = claim(("req", "dev-0"), name="one"), claim(("req", "dev-0"), name="other")
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/one"
    rig.api.delete(path)
    assert "get ResourceClaim default/one" in rig.kubelet().prepare(one)[uid_of(one)].error
    rig.api.put(path, one)
    assert "get ResourceClaim default/one" in rig.kubelet().prepare(one)[uid_of(one)].error
    assert rig.kubelet().prepare(other)[uid_of(other)].error == ""


def test_metadata_lifecycle_quirks(start: StartRig, claim: Claims) -> None:
    quirks = ["metadata-always", "metadata-same-generation", "metadata-keeps-files"]
    rig = start(quirks=quirks, metadata={"enabled": False})
    one = claim(("req", "dev-0"), name="one")
    (device,) = rig.kubelet().prepare(one)[uid_of(one)].devices
    assert len(device.cdi_device_ids) == 2
    assert rig.client.update_metadata(NODE, uid_of(one), "req", {}) == 1
    rig.kubelet().unprepare(one)
    assert (rig.kubelet().plugin_dir / "dra-device-metadata" / "default_one" / "req").is_dir()


def test_metadata_ignores_failure(start: StartRig, claim: Claims) -> None:
    rig = start(quirks=["metadata-ignores-failure"])
    (rig.kubelet().plugin_dir / "dra-device-metadata").write_text("in the way")
    one = claim(("req", "dev-0"))
    assert rig.kubelet().prepare(one)[uid_of(one)].error == ""


def test_metadata_path_quirks(start: StartRig, claim: Claims) -> None:
    rig = start(quirks=["metadata-direct-path-only", "metadata-subrequest-path"])
    one = claim(
        ("req/sub", "dev-0"), name="one", annotations={"resource.kubernetes.io/pod-claim-name": "gpus"}
    )
    rig.kubelet().prepare(one)
    (spec,) = rig.cdi_dir().glob("*_metadata_*.json")
    assert f"resourceclaims/one/req/sub/{DRIVER}-metadata.json" in spec.read_text()


def test_health_no_refresh(start: StartRig) -> None:
    rig = start(quirks=["health-no-refresh"], health={"refreshSeconds": 0.02})
    with rig.kubelet().watch_health() as stream:
        next(stream)
        rig.client.set_health("dev-0", "Unhealthy")
        assert next(stream).devices[0].health == 2  # not a refreshed 1
    (call,) = rig.client.calls(method="NodeWatchResources")
    assert call.response is not None
    assert call.response["reports"] == 2
