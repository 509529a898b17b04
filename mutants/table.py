"""All mutants, and the checks that no mutant can kill, with the reason."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from harness.errors import UsageError
from mutants import control_plane
from mutants.changes import Mutant
from suites.checks import Check

_HERE = Path(__file__).parent
_DRIVERS = _HERE / "drivers.yaml"
_SURVIVORS = _HERE / "survivors.yaml"


def load() -> list[Mutant]:
    """All mutants: drivers first, then control planes by area.

    Raises:
        UsageError: two have the same name.
    """
    drivers: Mapping[str, Mapping[str, Sequence[str]]] = yaml.safe_load(_DRIVERS.read_text(encoding="utf-8"))
    mutants = [
        Mutant(
            name, f"driver quirk {name}", row["kills"], neighbours=row.get("neighbours", ()), quirks=(name,)
        )
        for name, row in drivers.items()
    ]
    for module in pkgutil.iter_modules(control_plane.__path__):
        mutants += importlib.import_module(f"{control_plane.__name__}.{module.name}").MUTANTS
    names = [mutant.name for mutant in mutants]
    if double := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"two mutants named {', '.join(double)}")
    return mutants


def survivors() -> Mapping[str, str]:
    """Beginnings of node ids of checks that no mutant can kill -> why."""
    reasons: Mapping[str, str] = yaml.safe_load(_SURVIVORS.read_text(encoding="utf-8")) or {}
    return reasons


def matching(checks: Sequence[Check], terms: Sequence[str]) -> list[Check]:
    """The checks that requirement IDs or beginnings of node ids name.

    Raises:
        UsageError: one names nothing.
    """
    for term in terms:
        if not any(_matches(check, term) for check in checks):
            raise UsageError(f"mutants: {term} names no check")
    return [check for check in checks if any(_matches(check, term) for term in terms)]


def _matches(check: Check, term: str) -> bool:
    return term in check.requirements or check.id.startswith(term)
