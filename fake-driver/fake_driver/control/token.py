"""The token that whoever asks over TCP has to show."""

from __future__ import annotations

import hmac
from pathlib import Path

from fake_driver.errors import ConfigError

HEADER = "Fake-Driver-Token"
"""A header of its own: `Authorization` is for the API server, whose pod proxy doesn't pass it on."""

_SHORTEST = 16


def check_token_file(path: Path) -> None:
    """Check at the start what `accepts` will need later.

    Raises:
        ConfigError: the file can't be read, or its token is short enough to be guessed.
    """
    try:
        token = _read(path)
    except OSError as error:
        raise ConfigError(f"control.tokenFile: can't read {path}: {error.strerror}") from None
    if len(token) < _SHORTEST:
        raise ConfigError(f"control.tokenFile: {path}: expected a token of at least {_SHORTEST} characters")


def accepts(path: Path, shown: str | None) -> bool:
    """Whether `shown` is the token in the file; takes as long for a wrong one as for the right one."""
    try:
        wanted = _read(path)
    except OSError:
        return False
    given = (shown or "").encode("latin-1", "replace")
    return len(wanted) >= _SHORTEST and hmac.compare_digest(wanted, given)


def _read(path: Path) -> bytes:
    return path.read_bytes().strip()
