"""A driver that ends leaves nothing where nothing is prepared, and everything where something is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.fake_driver.conftest import NODE, Rig

Claims = Callable[..., dict[str, Any]]


def files(rig: Rig) -> set[str]:
    return {str(path.relative_to(rig.directory)) for path in (rig.directory / NODE).rglob("*")}


def test_nothing_but_empty_folders_stays(rig: Rig, claim: Claims) -> None:
    kubelet = rig.kubelet()
    one = claim(("req", "dev-0"))
    kubelet.prepare(one)
    kubelet.unprepare(one)
    assert f"{NODE}/kubelet/plugins/gpu.test.dev/checkpoint.json" in files(rig)

    rig.stop()

    assert files(rig) == {
        f"{NODE}/cdi",
        f"{NODE}/kubelet",
        f"{NODE}/kubelet/plugins",
        f"{NODE}/kubelet/plugins/gpu.test.dev",
        f"{NODE}/kubelet/plugins_registry",
    }


def test_prepared_claims_stay(rig: Rig, claim: Claims) -> None:
    kubelet = rig.kubelet()
    kubelet.prepare(claim(("req", "dev-0")))
    before = files(rig)

    rig.stop()

    assert {path for path in before - files(rig) if not path.endswith(".sock")} == set()


@pytest.mark.parametrize("content", ["", "{}", "not JSON"])
def test_a_damaged_checkpoint_stays_for_whoever_looks_into_it(rig: Rig, claim: Claims, content: str) -> None:
    path = rig.kubelet().plugin_dir / "checkpoint.json"
    path.write_text(content)

    rig.stop()

    assert path.read_text() == content
