"""The committed gRPC stubs are what the .proto files make."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fake_driver.api

API = Path(str(fake_driver.api.__file__)).parent
GENERATOR = API.parent.parent / "generate.py"


def test_stubs_are_current(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(GENERATOR), str(tmp_path)], check=True, timeout=60)
    fresh = {path.name: path.read_text() for path in (tmp_path / "fake_driver" / "api").iterdir()}
    committed = {path.name: path.read_text() for path in API.glob("*_pb2*.py*")}
    assert len(fresh) == 3 * len(list(API.glob("*.proto")))
    assert committed == fresh
