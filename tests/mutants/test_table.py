"""The table of mutants holds together: names, what each is to kill, and what nobody can."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from fake_driver.config import Quirk

from harness.errors import UsageError
from mutants import table
from mutants.__main__ import AREAS
from mutants.changes import Mutant
from suites import checks
from suites.checks import Check

AS_RELEASED = "as-released"


@pytest.fixture(scope="module")
def found() -> Sequence[Check]:
    return checks.collect()


@pytest.fixture(scope="module")
def mutants() -> Sequence[Mutant]:
    return table.load()


def test_names_are_unique_and_good_for_folders(mutants: Sequence[Mutant]) -> None:
    names = [mutant.name for mutant in mutants]
    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)] == []


def test_two_mutants_with_one_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drivers = tmp_path / "drivers.yaml"
    drivers.write_text("as-released: {kills: [ER-01]}\n")
    monkeypatch.setattr(table, "_DRIVERS", drivers)
    with pytest.raises(UsageError, match="two mutants named as-released"):
        table.load()


def test_every_mutant_breaks_something(mutants: Sequence[Mutant]) -> None:
    whole = [
        each.name
        for each in mutants
        if not (each.quirks or each.gates or each.asks or each.sees or each.judges or each.reads)
    ]
    assert whole == [AS_RELEASED]
    assert [each.name for each in mutants if not each.says] == []


def test_every_mutant_kills_something(mutants: Sequence[Mutant]) -> None:
    assert [each.name for each in mutants if not each.kills] == [AS_RELEASED]


def test_what_mutants_break_are_checks(mutants: Sequence[Mutant], found: Sequence[Check]) -> None:
    wrong = []
    for mutant in mutants:
        for term in (*mutant.kills, *mutant.neighbours):
            try:
                table.matching(found, [term])
            except UsageError as error:
                wrong.append(f"{mutant.name}: {error}")
    assert wrong == []


def test_driver_mutants_are_quirks_of_the_driver(mutants: Sequence[Mutant]) -> None:
    quirks = {str(quirk) for quirk in Quirk}
    assert [each.name for each in mutants if not quirks >= set(each.quirks)] == []


def test_survivors_are_checks_and_say_why(found: Sequence[Check]) -> None:
    excused = table.survivors()
    ids = [check.id for check in found]
    assert [start for start in excused if not any(check.startswith(start) for check in ids)] == []
    assert [start for start, why in excused.items() if len(why) < 20] == []


def test_every_check_of_the_areas_is_aimed_at(mutants: Sequence[Mutant], found: Sequence[Check]) -> None:
    own = [check for check in found if check.id.split("/")[0] in AREAS]
    assert {check.id.split("/")[0] for check in own} == set(AREAS)
    aimed = {check.id for mutant in mutants for check in table.matching(found, mutant.kills)}
    released = next(mutant for mutant in mutants if mutant.name == AS_RELEASED)
    aimed |= {check.id for check in table.matching(found, released.neighbours)}
    excused = tuple(table.survivors())
    assert [check.id for check in own if check.id not in aimed and not check.id.startswith(excused)] == []


CHECKS = [
    Check("area/test_a.py::test_one[explicit]", ("AA-01",)),
    Check("area/test_a.py::test_one[implicit]", ("AA-01", "AA-02")),
    Check("area/test_b.py::test_two", ("AA-10",)),
]


@pytest.mark.parametrize(
    ("terms", "ids"),
    [
        (["AA-01"], [CHECKS[0].id, CHECKS[1].id]),
        (["AA-02"], [CHECKS[1].id]),
        (["area/test_a.py::test_one[explicit]"], [CHECKS[0].id]),
        (["AA-10", "area/test_b.py"], [CHECKS[2].id]),
        ([], []),
    ],
)
def test_matching(terms: list[str], ids: list[str]) -> None:
    assert [check.id for check in table.matching(CHECKS, terms)] == ids


@pytest.mark.parametrize("term", ["AA-1", "AA-03", "test_two", "area/test_c.py"])
def test_matching_nothing(term: str) -> None:
    with pytest.raises(UsageError, match=f"{term} names no check"):
        table.matching(CHECKS, ["AA-01", term])
