"""The record of a kind cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusters.kind.state import KindState
from clusters.records import STATE_FILE
from harness.errors import UsageError
from tests.clusters.kind.conftest import MakeState


def test_nodes_are_named_as_kind_names_them(make_state: MakeState) -> None:
    found = make_state(nodes=3)

    assert found.control_plane == "dra-harness-paper-control-plane"
    assert found.workers == (
        "dra-harness-paper-worker",
        "dra-harness-paper-worker2",
        "dra-harness-paper-worker3",
    )
    assert [node.name for node in found.cluster().nodes] == list(found.workers)


def test_what_is_saved_is_found_again(make_state: MakeState) -> None:
    made = make_state(ports={"kube-scheduler": 1234})
    made.save()

    assert KindState.load("paper") == made
    assert KindState.every() == [made]
    assert made.cluster().endpoints == {"kube-scheduler": "https://127.0.0.1:1234"}


def test_removed_it_leaves_nothing(make_state: MakeState, state_dir: Path) -> None:
    made = make_state()
    made.save()
    (made.node_dir(1) / "kubelet").mkdir(parents=True)

    made.remove()
    made.remove()

    assert KindState.find("paper") is None
    assert not state_dir.exists()


def test_a_broken_file_is_named_and_hides_no_other(make_state: MakeState) -> None:
    make_state(name="fine").save()
    broken = make_state(name="broken")
    broken.save()
    (broken.directory / STATE_FILE).write_text('{"id": 1}')

    with pytest.raises(UsageError, match=r"broken/cluster\.json: id"):
        KindState.load("broken")
    assert [each.name for each in KindState.every()] == ["fine"]


def test_a_later_harness_may_add_keys(make_state: MakeState) -> None:
    made = make_state()
    made.save()
    path = made.directory / STATE_FILE
    path.write_text(path.read_text().replace("{", '{"new": 1, ', 1))

    assert KindState.load("paper") == made
