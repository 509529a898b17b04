"""Removing a cluster while the daemon itself is removing what a killed client had asked for."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from clusters import processes
from clusters.components import BuildSource
from clusters.interface import ClusterSpec, SilentProgress
from clusters.kind import preflight
from clusters.kind.provider import KindProvider
from clusters.kind.removal import remove
from clusters.kind.state import KindState
from harness.errors import EnvironmentBlocked, UsageError
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

    remove(found)

    assert not found.directory.exists()


def test_a_container_that_is_just_being_removed(make_state: MakeState, programs: Path) -> None:
    busy = "Error response from daemon: removal of container c0bc9d4b9b24 is already in progress"
    once = f"[ -e {programs}/tried ] && exit 0; touch {programs}/tried; echo '{busy}' >&2; exit 1"
    found = _state(make_state, programs, once)

    remove(found)

    assert not found.directory.exists()


def test_what_kind_can_not_remove_ends_it_at_once(make_state: MakeState, programs: Path) -> None:
    found = _state(make_state, programs, "echo 'permission denied' >&2; exit 1")

    with pytest.raises(EnvironmentBlocked, match=r"^kind delete cluster: permission denied$"):
        remove(found)

    assert found.directory.exists(), "nothing would know of the containers any more"


def test_what_can_not_be_removed_keeps_no_other_from_being_swept(
    make_state: MakeState, programs: Path
) -> None:
    stuck = _state(make_state, programs, "echo 'no daemon' >&2; exit 1", name="a-stuck", kind_named="kind-a")
    fine = _state(make_state, programs, "exit 0", name="b-fine", kind_named="kind-b")

    refusal = r"^cluster 'a-stuck' of a run that ended can't be removed: kind delete cluster: no daemon$"
    with pytest.raises(EnvironmentBlocked, match=refusal):
        KindProvider(BuildSource()).sweep()

    assert stuck.directory.exists()
    assert not fine.directory.exists()


def test_a_new_cluster_is_made_beside_what_can_not_be_removed(
    make_state: MakeState, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _state(make_state, programs, "echo 'no daemon' >&2; exit 1")
    monkeypatch.setattr(preflight, "check_machine", lambda **_: [])
    told = Told()

    # The name is refused after the sweep: that far it has come.
    with pytest.raises(UsageError, match="a kind cluster named 'paper' exists"):
        KindProvider(BuildSource()).up(ClusterSpec("paper"), told)

    (warning,) = told.warnings
    assert "'paper' of a run that ended can't be removed" in warning


@pytest.mark.parametrize("on_path", [True, False])
def test_a_cluster_is_removed_also_when_the_program_that_made_it_is_gone(
    make_state: MakeState, programs: Path, monkeypatch: pytest.MonkeyPatch, on_path: bool
) -> None:
    monkeypatch.setenv("PATH", str(programs))
    _write(programs / "docker", _DOCKER_WITH_A_CONTAINER.format(folder=programs))
    found = _state(make_state, programs, f"echo kind $1 >>{programs}/asked; >{programs}/gone")
    if not on_path:
        (programs / "kind").unlink()
    gone = found.model_copy(update={"kind": programs / "cache" / "kind"})
    gone.save()

    remove(gone)

    assert not gone.directory.exists()
    used = "kind delete" if on_path else "docker rm --force --volumes c0bc9d4b9b24"
    assert used in (programs / "asked").read_text().splitlines()


def test_a_client_of_a_killed_command_makes_its_container_before_it_is_deleted(
    make_state: MakeState, programs: Path
) -> None:
    """The daemon would make it all the same, and list it too late."""
    found = _state(make_state, programs, f"[ -e {programs}/made ] || exit 1")
    (programs / "run").write_text(f"sleep 1; touch {programs}/made")

    with _client(found, programs, "run") as client:
        remove(found)

    assert client.returncode == 0
    assert not found.directory.exists()


def test_what_else_kind_does_is_ended_at_once(make_state: MakeState, programs: Path) -> None:
    found = _state(make_state, programs, "exit 0")
    (programs / "exec").write_text("sleep 600")

    with _client(found, programs, "exec") as client:
        remove(found)

    assert client.returncode == -signal.SIGKILL


def _client(of: KindState, folder: Path, command: str) -> subprocess.Popen[bytes]:
    """A process that looks as a docker of kind's does, and carries out the script of the command's name."""
    marked = {**os.environ, **processes.mark(of.id, "kind")}
    return subprocess.Popen(["docker", command], executable="/bin/sh", cwd=folder, env=marked)


_DOCKER_WITH_A_CONTAINER = """#!/bin/sh
echo "docker $*" >>{folder}/asked
case "$1" in
ps) [ -e {folder}/gone ] || echo c0bc9d4b9b24 ;;
rm) : >{folder}/gone ;;
esac
"""


class Told(SilentProgress):
    """Keeps what it is warned of."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        """Keep it."""
        self.warnings.append(message)


def _state(
    make_state: MakeState, programs: Path, kind: str, *, name: str = "paper", kind_named: str = "kind"
) -> KindState:
    _write(programs / kind_named, f"#!/bin/sh\n{kind}\n")
    found = make_state(kind=programs / kind_named, name=name)
    found.directory.mkdir(parents=True)
    found.save()
    return found


def _write(program: Path, text: str) -> None:
    program.write_text(text)
    program.chmod(0o755)
