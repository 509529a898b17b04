"""Reads profiles: the built-in ones by name, others by path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pydantic
import yaml

from harness.errors import UsageError
from load.profiles.schema import Profile

_DATA = Path(__file__).parent / "data"


def names() -> list[str]:
    """The built-in profiles, in alphabetical order."""
    return sorted(path.stem for path in _DATA.glob("*.yaml"))


def find_profile(name: str) -> Profile:
    """Read a built-in profile by its name, or any other by the path of its file.

    Raises:
        UsageError: there is neither, or the file is no profile; see `read_profile`.
    """
    if name in names():
        return read_profile(_DATA / f"{name}.yaml")
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.exists():
        return read_profile(path)
    raise UsageError(f"no load profile {name!r}; there are {', '.join(names())}, or give a YAML file")


def read_profile(path: Path) -> Profile:
    """Read a profile's file.

    Raises:
        UsageError: naming the file, the key and what was expected.
    """
    try:
        document: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: can't be read: {error}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: no YAML: {error}") from error
    if not isinstance(document, dict):
        raise UsageError(f"{path}: expected the keys of a load profile, such as `name`")
    try:
        return Profile.model_validate(document)
    except pydantic.ValidationError as error:
        raise UsageError(f"{path}: {first_error(error)}") from error


def first_error(error: pydantic.ValidationError, *prefix: str) -> str:
    """The first thing that is wrong, as `key: what was expected`."""
    first = error.errors()[0]
    key = ".".join([*prefix, *(str(part) for part in first["loc"])])
    if first["type"] == "extra_forbidden":
        return f"{key}: no such key"
    said = first["msg"].removeprefix("Value error, ")
    return f"{key}: {said}" if key else said
