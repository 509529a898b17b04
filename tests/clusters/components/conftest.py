"""Go for the tests that build."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from clusters.components import locations, toolchain
from clusters.components.interface import silent
from harness.settings import cache_root


@pytest.fixture(scope="session", autouse=True)
def _go_on_path() -> Iterator[None]:
    """On a machine without Go, the one in the harness's cache, so that no test installs one of its own."""
    module = (locations.OWN_PROGRAMS / "go.mod").read_text()
    needed = re.search(r"^go (\S+)$", module, re.MULTILINE)
    assert needed is not None
    go = toolchain.find(needed[1], cache_root(), silent)
    with pytest.MonkeyPatch.context() as patch:
        if go != toolchain.on_path():
            patch.setenv("PATH", str(go.go.parent), prepend=os.pathsep)
        yield
