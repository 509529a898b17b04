"""ResourceSlices: within the API's limits, one consistent generation, restored whoever touches them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_driver.client import DriverError
from fake_driver.config import Quirk
from fake_driver.errors import StartError
from fake_driver.inventory.base import NodeInventory
from fake_driver.kubeapi.client import ApiClient, ApiError
from fake_driver.kubeapi.kubeconfig import Access
from fake_driver.publishing.plan import Published, make_plan
from fake_driver.publishing.split import same_content, split

from harness.waiting import wait_until
from tests.fake_driver.conftest import DRIVER, NODE, Rig, node_config
from tests.fake_driver.standin import SLICES, ApiServerStandin

TAINT = {"key": "test.dev/broken", "effect": "NoExecute"}


def profile(count: int, **group: Any) -> dict[str, Any]:
    return {"devices": [{"count": count, "name": "d-{index}"} | group]}


def shape(slices: Sequence[dict[str, Any]]) -> list[tuple[int, int, int]]:
    """Generation, slice count and number of devices of each slice."""
    pools = [slice_["spec"] for slice_ in slices]
    return [
        (spec["pool"]["generation"], spec["pool"]["resourceSliceCount"], len(spec.get("devices", [])))
        for spec in pools
    ]


def test_one_slice_owned_by_its_node(rig: Rig) -> None:
    (slice_,) = rig.api.slices()
    node = rig.api.get(f"/api/v1/nodes/{NODE}")
    assert node is not None
    assert slice_["spec"]["driver"] == DRIVER
    assert slice_["spec"]["nodeName"] == NODE
    assert slice_["spec"]["pool"] == {"name": NODE, "generation": 1, "resourceSliceCount": 1}
    assert slice_["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": node["metadata"]["uid"], "controller": True}
    ]
    status = rig.client.status().node(NODE)
    assert (status.published, status.generation, status.slices) == (True, 1, [slice_["metadata"]["name"]])


@pytest.mark.parametrize(
    ("count", "group", "sizes"),
    [
        (128, {}, [128]),
        (129, {}, [128, 1]),
        (65, {"taints": [TAINT]}, [64, 1]),
        (65, {"attributes": {"numa": {"ints": [0, 1]}}}, [64, 1]),
        (65, {"attributes": {"numa": {"int": 0}}}, [65]),
    ],
)
def test_slices_keep_the_limits(
    start: Callable[..., Rig], count: int, group: dict[str, Any], sizes: list[int]
) -> None:
    rig = start(inventory=profile(count, **group))
    assert shape(rig.api.slices()) == [(1, len(sizes), size) for size in sizes]


def test_counter_sets_have_slices_of_their_own(start: Callable[..., Rig]) -> None:
    partitions = {
        "counters": {"memory": "10Gi"},
        "profiles": [{"profile": "half", "count": 2, "capacity": {"memory": "5Gi"}}],
    }
    rig = start(inventory=profile(9, partitions=partitions))
    specs = [slice_["spec"] for slice_ in rig.api.slices()]
    assert [len(spec.get("sharedCounters", [])) for spec in specs] == [8, 1, 0]
    assert [len(spec.get("devices", [])) for spec in specs] == [0, 0, 27]
    assert {spec["pool"]["resourceSliceCount"] for spec in specs} == {3}


def test_the_limit_counts_from_the_tainted_device_on() -> None:
    devices = tuple({"name": f"d-{n}", "attributes": {}} for n in range(130))
    contents = split(NodeInventory(devices), {"d-129": [TAINT]})
    assert [len(content["devices"]) for content in contents] == [128, 2]
    contents = split(NodeInventory(devices), {"d-3": [TAINT]})
    assert [len(content["devices"]) for content in contents] == [64, 66]


def test_another_inventory_is_another_generation(rig: Rig) -> None:
    rig.client.set_inventory(profile(200))
    assert shape(rig.api.slices()) == [(2, 2, 128), (2, 2, 72)]
    rig.client.set_inventory(profile(1))
    assert shape(rig.api.slices()) == [(3, 1, 1)]
    assert rig.client.status().node(NODE).devices == ["d-0"]
    rig.client.set_inventory({"devices": []})
    assert rig.api.slices() == []


def test_taints_keep_the_generation(rig: Rig) -> None:
    rig.client.set_taints("dev-1", [TAINT])
    (slice_,) = rig.api.slices()
    assert shape([slice_]) == [(1, 1, 2)]
    assert [device.get("taints") for device in slice_["spec"]["devices"]] == [None, [TAINT]]
    rig.client.set_taints("dev-1", [])
    assert shape(rig.api.slices()) == [(1, 1, 2)]
    assert "taints" not in rig.api.slices()[0]["spec"]["devices"][1]


def test_time_added_of_a_taint_is_kept(rig: Rig) -> None:
    rig.client.set_taints("dev-0", [TAINT])
    (slice_,) = rig.api.slices()
    slice_["spec"]["devices"][0]["taints"][0]["timeAdded"] = "2026-01-01T00:00:00Z"  # as the server does
    rig.api.put(f"{SLICES}/{slice_['metadata']['name']}", slice_)
    rig.client.set_taints("dev-1", [TAINT])
    devices = rig.api.slices()[0]["spec"]["devices"]
    assert devices[0]["taints"] == [TAINT | {"timeAdded": "2026-01-01T00:00:00Z"}]
    assert devices[1]["taints"] == [TAINT]


def test_unknown_device_cant_be_tainted(rig: Rig) -> None:
    with pytest.raises(DriverError, match=r"^device: node node-1 has no device 'dev-9'$"):
        rig.client.set_taints("dev-9", [TAINT])


def test_deleted_slices_come_back(start: Callable[..., Rig]) -> None:
    rig = start(inventory=profile(200))
    names = [slice_["metadata"]["name"] for slice_ in rig.api.slices()]
    rig.api.delete(f"{SLICES}/{names[1]}")
    wait_until(lambda: len(rig.api.slices()) == 2, 60, "the slice to come back", interval=0.02)
    assert shape(rig.api.slices()) == [(1, 2, 128), (1, 2, 72)]
    for slice_ in rig.api.slices():
        rig.api.delete(f"{SLICES}/{slice_['metadata']['name']}")  # as a starting kubelet does
    wait_until(lambda: len(rig.api.slices()) == 2, 60, "both slices to come back", interval=0.02)
    assert shape(rig.api.slices()) == [(1, 2, 128), (1, 2, 72)]


@pytest.mark.parametrize("edit", ["device", "count", "owner"])
def test_edited_slices_are_put_right(rig: Rig, edit: str) -> None:
    (original,) = rig.api.slices()
    edited = copy.deepcopy(original)
    if edit == "device":
        edited["spec"]["devices"][0]["attributes"]["model"] = {"string": "better"}
    elif edit == "count":
        edited["spec"]["pool"]["resourceSliceCount"] = 2
    else:
        del edited["metadata"]["ownerReferences"]
    rig.api.put(f"{SLICES}/{original['metadata']['name']}", edited)

    def restored() -> bool:
        (now,) = rig.api.slices()
        owners = now["metadata"].get("ownerReferences") == original["metadata"]["ownerReferences"]
        return bool(owners and now["spec"] == original["spec"])

    wait_until(restored, 60, "the slice to be restored", interval=0.02)


def test_a_foreign_generation_is_topped(rig: Rig) -> None:
    (slice_,) = rig.api.slices()
    slice_["spec"]["pool"]["generation"] = 41
    rig.api.put(f"{SLICES}/{slice_['metadata']['name']}", slice_)
    wait_until(lambda: shape(rig.api.slices()) == [(42, 1, 2)], 60, "generation 42", interval=0.02)


def test_a_foreign_slice_in_the_pool_is_removed(rig: Rig) -> None:
    (slice_,) = rig.api.slices()
    slice_["metadata"] = {"name": "zzz"}
    rig.api.put(f"{SLICES}/zzz", slice_)
    wait_until(lambda: len(rig.api.slices()) == 1, 60, "the foreign slice to go", interval=0.02)


def test_stop_keeps_the_slices_and_a_restart_changes_nothing(start: Callable[..., Rig]) -> None:
    rig = start(inventory=profile(200))
    before = rig.api.slices()
    rig.stop()
    assert rig.api.slices() == before
    writes = len(rig.api.writes())
    rig = start(inventory=profile(200))
    assert rig.api.slices() == before
    assert len(rig.api.writes()) == writes
    rig.stop()
    rig = start(inventory=profile(2))
    assert shape(rig.api.slices()) == [(2, 1, 2)]


def test_uninstall_deletes_slices_and_checkpoint(rig: Rig, claim: Callable[..., Any]) -> None:
    rig.kubelet().prepare(claim(("req", "dev-0")))
    checkpoint = rig.kubelet().plugin_dir / "checkpoint.json"
    assert checkpoint.exists()
    rig.client.uninstall()
    assert rig.driver.stopping.is_set()
    rig.driver.stop()
    assert rig.api.slices() == []
    assert not checkpoint.exists()


def test_refused_inventory_changes_nothing(start: Callable[..., Rig]) -> None:
    rig = start(inventory=profile(200))
    before = rig.api.slices()
    rig.api.reject = {"device": "e-150"}  # in the second slice: the first must not be written either
    with pytest.raises(DriverError, match="device e-150 is invalid"):
        rig.client.set_inventory(profile(200, name="e-{index}"))
    assert rig.api.slices() == before
    assert rig.client.status().node(NODE).devices[0] == "d-0"
    rig.client.set_inventory(profile(3))
    assert shape(rig.api.slices()) == [(2, 1, 3)]


def test_refusal_at_the_start_is_fatal(start: Callable[..., Rig], api: ApiServerStandin) -> None:
    api.reject = {"all": 403}
    with pytest.raises(
        StartError, match=r"^the API server refuses the slices of node node-1: .*refused by the"
    ):
        start()


def test_missing_node_is_waited_for(start: Callable[..., Rig], tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"^slices of node node-9 not published: GET /api/v1/nodes/node-9"):
        start(nodes=[node_config(tmp_path, "node-9")], startTimeoutSeconds=0.3)


def test_dropped_fields_are_reported_and_not_fought_over(rig: Rig) -> None:
    rig.api.drop_taints = True
    rig.client.set_taints("dev-0", [TAINT])
    assert rig.client.status().node(NODE).dropped_fields == ["devices[0].taints"]
    (slice_,) = rig.api.slices()
    writes = len(rig.api.writes())
    reads = len(rig.api.requests)
    rig.api.put(f"{SLICES}/{slice_['metadata']['name']}", slice_)  # a change of nothing
    wait_until(lambda: len(rig.api.requests) > reads, 60, "the driver to look", interval=0.02)
    rig.client.set_taints("dev-1", [])
    assert len(rig.api.writes()) == writes


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1Gi", "1024Mi", True),
        ("1000m", "1", True),
        ("1e3", "1k", True),
        ("1Gi", "1G", False),
    ],
)
def test_quantities_are_compared_by_value(one: str, other: str, same: bool) -> None:
    contents = [
        {"devices": [{"name": "d", "attributes": {}, "capacity": {"memory": {"value": value}}}]}
        for value in (one, other)
    ]
    assert same_content(*contents) is same


def test_plan_keeps_the_generation_of_what_it_restores() -> None:
    contents = [{"devices": [{"name": f"d-{n}", "attributes": {}}]} for n in range(3)]

    def stored(index: int, generation: int) -> dict[str, Any]:
        pool = {"name": NODE, "generation": generation, "resourceSliceCount": 3}
        name = f"{index:03x}-{DRIVER}-x"
        return {"metadata": {"name": name}, "spec": {"pool": pool, **contents[index]}}

    plan = make_plan(contents, [stored(0, 4), stored(2, 4)], Published(contents, 4), None)
    assert (plan.generation, plan.updates, plan.creates, plan.deletes) == (4, (), (1,), ())
    leftover = stored(1, 3)
    plan = make_plan(contents, [stored(0, 4), leftover, stored(2, 4)], None, None)
    assert (plan.generation, [index for index, _ in plan.updates], plan.creates) == (5, [0, 1, 2], ())


def test_quirks_of_taints(rig: Rig) -> None:
    rig.client.set_inventory(profile(100))
    rig.client.set_quirks([Quirk.OVERFULL_SLICES, Quirk.KEEPS_TAINTS])
    rig.client.set_taints("d-0", [TAINT])
    assert [size for _, _, size in shape(rig.api.slices())] == [100]
    rig.client.set_taints("d-0", [])
    assert rig.api.slices()[0]["spec"]["devices"][0]["taints"]


def test_a_token_that_is_not_there_is_no_answer_and_ends_no_thread(
    tmp_path: Path, api: ApiServerStandin
) -> None:
    """Threads that publish go on after an ApiError."""
    client = ApiClient(Access(server=api.url, token_file=tmp_path / "token"))
    with pytest.raises(ApiError, match=r"no token: .*No such file") as refused:
        client.get(SLICES)
    assert (refused.value.status, refused.value.rejected) == (0, False)
    (tmp_path / "token").write_text("secret")
    assert client.get(SLICES)["items"] == []
    client.close()
