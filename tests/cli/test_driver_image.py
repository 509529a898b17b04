"""`driver-image` and `driver-manifest` refuse what can't be before anything is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import Command

pytestmark = pytest.mark.process


@pytest.fixture
def no_clusters(state_dir: Path) -> Path:
    return state_dir


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["driver-image", "--output", "/no/such/folder/x.tar"], "there is no folder /no/such/folder"),
        (["driver-image", "--output", "/tmp"], "--output /tmp: expected the name of a file"),
        (["pod-image", "--output", "/tmp"], "--output /tmp: expected the name of a file"),
        (["driver-image", "--cluster", "nope"], "no cluster is named 'nope'"),
        (["driver-manifest", "--set", "control.enabled"], "--set control.enabled: expected key=value"),
        (["driver-manifest", "--set", "=x"], "--set =x: expected key=value"),
        (["driver-manifest", "--set", "a..b=x"], "--set a..b=x: expected key=value"),
        (["driver-manifest", "--set", "a=1", "--set", "a.b=2"], "--set a.b=2: a was set to a value before"),
        (["driver-manifest", "--set", "a={"], "--set a={: not a YAML value"),
        (["driver-manifest", "--values", "/no/such/file"], "--values /no/such/file: no such file"),
    ],
)
def test_one_clear_error(
    dra_harness: Command, no_clusters: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = dra_harness(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
