from __future__ import annotations

import stat
from pathlib import Path

import pytest

from harness.errors import UsageError
from load.crew.key import ensure_key, read_key


def test_a_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "key"

    made = ensure_key(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ensure_key(path).decrypt(made.encrypt(b"a word")) == b"a word"
    assert read_key(path).decrypt(made.encrypt(b"a word")) == b"a word"


@pytest.mark.parametrize(("mode", "allowed"), [(0o400, True), (0o440, True), (0o604, False), (0o644, False)])
def test_a_key_that_others_can_read_is_none(tmp_path: Path, mode: int, allowed: bool) -> None:
    path = tmp_path / "key"
    ensure_key(path)
    path.chmod(mode)

    if allowed:
        read_key(path)
    else:
        with pytest.raises(UsageError, match=r"--key .*/key: .* chmod 600"):
            read_key(path)


def test_what_is_no_key_is_named_and_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("hunter2")
    path.chmod(0o600)

    with pytest.raises(UsageError, match="expected a key") as error:
        ensure_key(path)

    assert "hunter2" not in str(error.value)


def test_no_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere: No such file"):
        read_key(tmp_path / "nowhere")
