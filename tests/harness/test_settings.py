from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.settings import cache_root, machine_root, results_root, state_root

PLACES: list[tuple[str, Callable[[], Path]]] = [
    ("DRA_HARNESS_STATE", state_root),
    ("DRA_HARNESS_CACHE", cache_root),
    ("DRA_HARNESS_MACHINE", machine_root),
    ("DRA_HARNESS_RESULTS", results_root),
]


@pytest.mark.parametrize(("variable", "place"), PLACES)
def test_a_variable_moves_the_place(
    variable: str, place: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "elsewhere"))
    assert place() == tmp_path / "elsewhere"


@pytest.mark.parametrize(("variable", "place"), PLACES)
def test_a_relative_place_is_where_the_command_runs(
    variable: str, place: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, "here")
    assert place() == tmp_path / "here"


@pytest.mark.parametrize("value", [None, ""])
def test_without_a_variable_they_are_the_users_own_or_the_machines(
    value: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "s"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    for variable, _ in PLACES:
        if value is None:
            monkeypatch.delenv(variable, raising=False)
        else:
            monkeypatch.setenv(variable, value)
    assert state_root() == tmp_path / "s" / "dra-harness"
    assert cache_root() == tmp_path / "c" / "dra-harness"
    assert machine_root() == Path("/run/dra-harness")
    assert results_root() == tmp_path / "results"
    assert list(tmp_path.iterdir()) == []
