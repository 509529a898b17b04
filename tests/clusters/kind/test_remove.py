"""Removing a cluster while the daemon itself is removing what a killed client had asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clusters.kind.provider import _remove
from clusters.kind.state import KindState
from harness.errors import EnvironmentBlocked
from tests.clusters.kind.conftest import MakeState

_DOCKER = """#!/bin/sh
# Lists a container the first time; whatever else is asked about it, it is gone.
if [ "$1" != ps ]; then echo "Error: No such object: c0bc9d4b9b24" >&2; exit 1; fi
if [ ! -e {folder}/asked ]; then echo c0bc9d4b9b24; touch {folder}/asked; fi
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder at the front of PATH with a `docker` in it."""
    _write(tmp_path / "docker", _DOCKER.format(folder=tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


def test_a_container_that_goes_while_it_is_listed(make_state: MakeState, programs: Path) -> None:
    found = _state(make_state, programs, "exit 0")

    _remove(found)

    assert not found.directory.exists()


def test_a_container_that_is_just_being_removed(make_state: MakeState, programs: Path) -> None:
    busy = "Error response from daemon: removal of container c0bc9d4b9b24 is already in progress"
    once = f"[ -e {programs}/tried ] && exit 0; touch {programs}/tried; echo '{busy}' >&2; exit 1"
    found = _state(make_state, programs, once)

    _remove(found)

    assert not found.directory.exists()


def test_what_kind_can_not_remove_ends_it_at_once(make_state: MakeState, programs: Path) -> None:
    found = _state(make_state, programs, "echo 'permission denied' >&2; exit 1")

    with pytest.raises(EnvironmentBlocked, match=r"^kind delete cluster: permission denied$"):
        _remove(found)

    assert found.directory.exists(), "nothing would know of the containers any more"


def _state(make_state: MakeState, programs: Path, kind: str) -> KindState:
    _write(programs / "kind", f"#!/bin/sh\n{kind}\n")
    found = make_state(kind=programs / "kind")
    found.directory.mkdir(parents=True)
    found.save()
    return found


def _write(program: Path, text: str) -> None:
    program.write_text(text)
    program.chmod(0o755)
