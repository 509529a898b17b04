"""Strict reading of YAML and JSON files: the first thing that is wrong becomes one clear `ConfigError`."""

from __future__ import annotations

import difflib
import json
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from fake_driver.errors import ConfigError

Model = TypeVar("Model", bound=BaseModel)

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml starts and parses faster
_EXPECTED = {
    "int_type": "an integer",
    "bool_type": "true or false",
    "string_type": "a string",
    "float_type": "a number",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "path_type": "a path",
}


class Strict(BaseModel):
    """A frozen model with camelCase keys that knows every key it accepts and converts nothing."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, alias_generator=to_camel)


class Message(Strict):
    """A `Strict` that programs make too, by field names."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)


def read_yaml(path: Path) -> Any:
    """Parse a YAML or JSON file.

    Raises:
        ConfigError: the file can't be read or isn't YAML; the message has the line and column.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 - a safe loader
    except OSError as error:
        raise ConfigError(f"{path}: can't read it: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: expected UTF-8 text") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{path}: not valid YAML{where}: {getattr(error, 'problem', error)}") from None


def validate(model: type[Model], data: Any, source: str, prefix: str = "") -> Model:
    """Make `data` a `model`.

    Args:
        model: the wanted shape.
        data: plain values, as parsed from YAML or JSON.
        source: file (or other origin) for the error message.
        prefix: dotted key below which `data` was found in `source`.

    Raises:
        ConfigError: names `source`, the dotted key and what was expected there.
    """
    try:
        return model.model_validate_json(json.dumps(data, default=str))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        location = [str(part) for part in first["loc"]]
        key = ".".join([*filter(None, [prefix]), *location]) or "the whole document"
        raise ConfigError(f"{source}: {key}: {_reason(model, dict(first))}") from None


def _reason(model: type[BaseModel], error: dict[str, Any]) -> str:
    kind, given = error["type"], error["input"]
    if kind == "extra_forbidden":
        allowed = _keys_at(model, error["loc"][:-1])
        close = difflib.get_close_matches(str(error["loc"][-1]), allowed, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; expected one of {', '.join(allowed)}"
        return f"unknown key{hint}"
    if kind == "missing":
        return "is required"
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, got {json.dumps(given, default=str)}"
    if kind == "value_error":
        return str(error["ctx"]["error"])
    message = str(error["msg"])
    return f"{message[:1].lower()}{message[1:]}, got {json.dumps(given, default=str)}"


def _keys_at(model: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    """The keys that the model at `location` below `model` accepts."""
    current: Any = model
    for part in location:
        if isinstance(part, int) or not _is_model(current):
            continue
        fields = {field.alias or name: field for name, field in current.model_fields.items()}
        current = _model_in(fields[part].annotation) if part in fields else current
    if not _is_model(current):
        return []
    return sorted(field.alias or name for name, field in current.model_fields.items())


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _model_in(annotation: Any) -> Any:
    """The model class inside `list[M]`, `dict[str, M]` or `M | None`, else the annotation itself."""
    if typing.get_origin(annotation) in (list, tuple, dict, types.UnionType, typing.Union):
        for argument in typing.get_args(annotation):
            found = _model_in(argument)
            if _is_model(found):
                return found
    return annotation
