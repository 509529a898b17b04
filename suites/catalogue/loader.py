"""Reading the catalogue's data files, strictly: a slip in one ends in one message that names file and key."""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import pydantic
import yaml

from harness.errors import UsageError
from suites.catalogue.model import AREAS, Area, Catalogue, Deviation, Requirement
from suites.catalogue.sources import Source

_MODEL_OF_LIST: Mapping[str, type[pydantic.BaseModel]] = {
    "requirements": Requirement,
    "source": Source,
    "deviations": Deviation,
}


@functools.cache
def load() -> Catalogue:
    """The catalogue that ships with the harness; read once per process.

    Raises:
        UsageError: see `read`.
    """
    return read(resources.files(__package__) / "data")


def read(directory: Path | Traversable) -> Catalogue:
    """Read one `<area>.yaml` per area from a folder.

    Raises:
        UsageError: if a file is missing, belongs to no area, or isn't what the model says: an unknown or
            missing key, a wrong type or value, an ID that is given twice or out of order.
    """
    data_files = [file for file in directory.iterdir() if file.name.endswith(".yaml")]
    files = {file.name.removesuffix(".yaml"): file for file in data_files}
    for name, file in files.items():
        if name not in AREAS:
            raise UsageError(f"{file}: no area has this name; expected one of {', '.join(AREAS)}")
    missing = [name for name in AREAS if name not in files]
    if missing:
        raise UsageError(f"{directory}: {missing[0]}.yaml is missing; every area has a file")
    return Catalogue({name: _read_area(name, files[name]) for name in AREAS})


def _read_area(name: str, file: Path | Traversable) -> Area:
    data = _parse_yaml(file)
    try:
        # Through JSON, so that strict mode takes text for enumerations and dates but nothing else for text.
        area = Area.model_validate_json(json.dumps(data, default=str))
    except pydantic.ValidationError as error:
        raise UsageError(f"{file}: {_explain(error, data)}") from None
    _check_ids(area, AREAS[name], file)
    return area


def _check_ids(area: Area, prefixes: tuple[str, ...], file: Path | Traversable) -> None:
    """IDs count up from 01 within each prefix, and prefixes follow each other in order."""
    if not area.requirements:
        raise UsageError(f"{file}: requirements: expected at least {prefixes[0]}-01, got none")
    seen: set[str] = set()
    waiting = list(prefixes)
    expected: list[str] = [f"{waiting.pop(0)}-01"]
    for index, requirement in enumerate(area.requirements):
        key = f"{file}: requirements[{index}].id"
        if requirement.id in seen:
            raise UsageError(f"{key}: {requirement.id} is given twice")
        if requirement.id not in expected:
            raise UsageError(f"{key}: expected {' or '.join(expected)}, got {requirement.id!r}")
        seen.add(requirement.id)
        prefix, _, number = requirement.id.partition("-")
        if waiting and prefix == waiting[0]:
            waiting.pop(0)
        expected = [f"{prefix}-{int(number) + 1:02}", *(f"{following}-01" for following in waiting[:1])]


def _explain(error: pydantic.ValidationError, data: Any) -> str:
    """The first thing wrong, unknown keys before what they left out, and how many more there are."""
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    location, kind = problems[0]["loc"], problems[0]["type"]
    given, context = problems[0].get("input"), problems[0].get("ctx", {})
    message = problems[0]["msg"].removeprefix("Value error, ")
    if kind == "extra_forbidden":
        message = _unknown_key(location)
    elif kind == "missing":
        message = "is missing"
    elif kind == "enum":
        message = f"expected {context['expected']}, got {given!r}"
    elif kind == "string_pattern_mismatch" and context["pattern"] == r"\.$":
        message = "expected full sentences that end in a full stop"
    elif kind != "value_error":
        message = f"{message[0].lower()}{message[1:]}, got {_shortened(given)}"
    more = len(problems) - 1
    return f"{_key(location, data)}: {message}" + (f" (and {more} more)" if more else "")


def _unknown_key(location: tuple[int | str, ...]) -> str:
    lists = [part for part in location[:-1] if part in _MODEL_OF_LIST]
    model = _MODEL_OF_LIST[str(lists[-1])] if lists else Area
    keys = list(model.model_fields)
    closest = difflib.get_close_matches(str(location[-1]), keys, n=1)
    return (
        f"unknown key; did you mean {closest[0]}?" if closest else f"unknown key; expected {', '.join(keys)}"
    )


def _key(location: tuple[int | str, ...], data: Any) -> str:
    """The key as people write it, and the ID of the requirement that it is in."""
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    if len(location) < 2 or not isinstance(location[1], int):
        return path or "the file"
    requirement = data["requirements"][location[1]]
    requirement_id = requirement.get("id") if isinstance(requirement, dict) else None
    return f"{path} ({requirement_id})" if requirement_id else path


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class _Loader(yaml.SafeLoader):
    """YAML as usual, except that keys are text and never silently overridden, and dates stay text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for (key_node, _), key in zip(node.value, keys, strict=True):
            fault = "is given twice" if keys.count(key) > 1 else "is not text"
            if keys.count(key) > 1 or not isinstance(key, str):
                problem = f"key {key!r} {fault}"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _parse_yaml(file: Path | Traversable) -> Any:
    try:
        return yaml.load(file.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 (a SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise UsageError(f"{file}: {line}{error.problem or 'not valid YAML'}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(f"{file}: not valid YAML: {error}") from None
