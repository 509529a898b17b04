"""Each quirk of what is published breaks exactly its promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fake_driver.client import DriverError
from fake_driver.config import Quirk
from fake_driver.errors import StartError

from harness.waiting import wait_until
from tests.fake_driver.conftest import NODE, Rig
from tests.fake_driver.standin import SLICES, ApiServerStandin

StartRig = Callable[..., Rig]

NUMA = "resource.kubernetes.io/numaNode"
BUS_ID = "resource.kubernetes.io/pciBusID"

INVENTORY: dict[str, Any] = {
    "devices": [
        {"name": "one", "attributes": {NUMA: {"int": 5}, BUS_ID: {"string": "0000:1b:00.0"}}},
        {"name": "list", "attributes": {NUMA: {"ints": [2, 3]}}},
        {"name": "none", "attributes": {"model": {"string": "x"}}},
    ]
}
AS_ASKED: list[dict[str, Any]] = [
    {NUMA: {"int": 5}, BUS_ID: {"string": "0000:1b:00.0"}},
    {NUMA: {"ints": [2, 3]}},
    {"model": {"string": "x"}},
]


def published(rig: Rig) -> list[dict[str, Any]]:
    """The attributes of each device, as the API server has them."""
    return [device["attributes"] for slice_ in rig.api.slices() for device in slice_["spec"]["devices"]]


def test_without_quirks(start: StartRig) -> None:
    assert published(start(inventory=INVENTORY)) == AS_ASKED


@pytest.mark.parametrize(
    ("quirk", "expected"),
    [
        ("numa-own-name", ({"numaNode": {"int": 5}}, {"numaNode": {"ints": [2, 3]}}, {})),
        ("numa-as-text", ({NUMA: {"string": "5"}}, {NUMA: {"string": "2"}}, {})),
        ("numa-off-by-one", ({NUMA: {"int": 6}}, {NUMA: {"ints": [3, 4]}}, {})),
        ("numa-zero-for-none", ({NUMA: {"int": 5}}, {NUMA: {"ints": [2, 3]}}, {NUMA: {"int": 0}})),
        ("numa-eight-nodes", ({NUMA: {"int": 5}}, {NUMA: {"ints": [2, 0, 1, 3, 4, 5, 6, 7]}}, {})),
        ("lists-by-default", ({NUMA: {"ints": [5]}}, {NUMA: {"ints": [2, 3]}}, {})),
    ],
)
def test_numa_quirks(start: StartRig, quirk: str, expected: tuple[dict[str, Any], ...]) -> None:
    rig = start(inventory=INVENTORY, quirks=[quirk])

    others: list[dict[str, Any]] = [{BUS_ID: {"string": "0000:1b:00.0"}}, {}, {"model": {"string": "x"}}]
    wanted = [numa | other for numa, other in zip(expected, others, strict=True)]
    assert published(rig) == wanted
    rig.client.set_inventory({"devices": [{"name": "other"}]})
    rig.client.set_inventory(INVENTORY)
    assert published(rig) == wanted


def test_pci_short_address(start: StartRig) -> None:
    rig = start(inventory=INVENTORY, quirks=["pci-short-address"])
    assert published(rig) == [AS_ASKED[0] | {BUS_ID: {"string": "1b:00.0"}}, *AS_ASKED[1:]]


RENUMBERED: list[dict[str, Any]] = [AS_ASKED[0] | {NUMA: {"int": 6}}, {NUMA: {"ints": [3, 4]}}, AS_ASKED[2]]


def test_numa_renumbers_what_was_taken_away(start: StartRig) -> None:
    rig = start(inventory=INVENTORY, quirks=["numa-renumbers"])
    rig.client.set_taints("one", [{"key": "k", "effect": "NoSchedule"}])
    assert published(rig) == AS_ASKED
    (slice_,) = rig.api.slices()
    rig.api.delete(f"{SLICES}/{slice_['metadata']['name']}")
    wait_until(lambda: published(rig) == RENUMBERED, 60, "the slice to come back", interval=0.02)


def test_numa_renumbers_what_another_process_published(start: StartRig) -> None:
    for expected in (AS_ASKED, RENUMBERED):
        rig = start(inventory=INVENTORY, quirks=["numa-renumbers"])
        assert published(rig) == expected
        rig.stop()


def test_hides_refusals(start: StartRig) -> None:
    rig = start()
    before = published(rig)
    rig.api.reject["device"] = "bad"
    bad = {"devices": [{"name": "bad"}]}
    with pytest.raises(DriverError, match="device bad is invalid"):
        rig.client.set_inventory(bad)
    rig.client.set_quirks([Quirk.HIDES_REFUSALS])
    rig.client.set_inventory(bad)
    assert published(rig) == before
    assert rig.client.status().node(NODE).publish_error == ""


def test_hides_refusals_at_its_start(start: StartRig, api: ApiServerStandin) -> None:
    api.reject["all"] = 422
    with pytest.raises(StartError, match="refused by the test"):
        start()
    assert start(quirks=["hides-refusals"]).client.status().node(NODE).published
