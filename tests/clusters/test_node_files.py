"""What checks see and change of a driver's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusters.node_files import NodeFiles, python_here
from harness.errors import HarnessError


@pytest.fixture
def files(tmp_path: Path) -> NodeFiles:
    return NodeFiles(str(tmp_path / "own"), str(tmp_path / "cdi"), python_here)


def test_everything_below_a_folder(files: NodeFiles) -> None:
    assert files.below(files.own) == []

    files.make_folder(files.own)
    files.make_folder(f"{files.own}/claim")
    files.make_file(f"{files.own}/claim/with 'quotes'.json")
    assert files.below(files.own) == ["claim", "claim/with 'quotes'.json"]

    files.remove(f"{files.own}/claim/with 'quotes'.json")
    files.remove(f"{files.own}/claim")
    assert files.below(files.own) == []


def test_what_is_there_is_not_overwritten(files: NodeFiles) -> None:
    files.make_folder(files.cdi)
    files.make_file(f"{files.cdi}/a")
    for make in (files.make_file, files.make_folder):
        with pytest.raises(HarnessError, match="FileExistsError"):
            make(f"{files.cdi}/a")
    with pytest.raises(HarnessError, match="Directory not empty"):
        files.remove(files.cdi)
