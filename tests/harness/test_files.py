"""Files are written whole or not at all, and are the owner's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from harness.files import write_atomically, write_json


def test_a_write_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f.json"
    write_json(path, {"a": 1})

    def full(self: Path, target: Path) -> Path:
        assert json.loads(self.read_text()) == {"a": 2}
        assert json.loads(path.read_text()) == {"a": 1}
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}


def test_a_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_atomically(tmp_path / "key", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
