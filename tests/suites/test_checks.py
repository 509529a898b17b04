"""Collection, on folders of checks that are written here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.errors import HarnessError
from suites import checks
from suites.catalogue import Form
from suites.checks import Check

pytestmark = pytest.mark.process

IMPORTS = "import pytest\nfrom suites.marks import *\nfrom suites.marks import requirement\n"


def suite(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(IMPORTS + text)
    return folder


def complaint(folder: Path) -> str:
    with pytest.raises(HarnessError) as raised:
        checks.collect(folder)
    return str(raised.value)


def test_what_a_check_says_of_itself(tmp_path: Path) -> None:
    suite(
        tmp_path,
        "test_says.py",
        "@requirement('COR-02')\ndef test_second(): pass\n"
        "@requirement('COR-01', 'COR-02')\n@needs_nodes(3)\ndef test_first(): pass\n"
        "@requirement('ER-12')\n@explicit_only\ndef test_form(form): pass\n",
    )
    assert checks.collect(tmp_path) == [
        Check("test_says.py::test_first", ("COR-01", "COR-02"), None, 3),
        Check("test_says.py::test_form[explicit]", ("ER-12",), Form.EXPLICIT, 1),
        Check("test_says.py::test_second", ("COR-02",), None, 1),
    ]


def test_a_check_that_starts_no_driver_says_so(tmp_path: Path) -> None:
    suite(
        tmp_path,
        "test_driver.py",
        "@requirement('COR-01')\n@without_driver\ndef test_a(): pass\n"
        "@requirement('COR-01')\ndef test_b(): pass\n",
    )
    assert [check.driver for check in checks.collect(tmp_path)] == [False, True]


def test_marks_of_class_and_check_add_up(tmp_path: Path) -> None:
    suite(
        tmp_path,
        "test_adds.py",
        "@requirement('COR-01')\n@needs_nodes(2)\nclass TestIt:\n"
        "    @requirement('COR-02', 'COR-01')\n    @needs_nodes(4)\n    def test_a(self): pass\n"
        "    def test_b(self): pass\n",
    )
    found = {check.id.split("::")[-1]: check for check in checks.collect(tmp_path)}
    assert (set(found["test_a"].requirements), found["test_a"].nodes) == ({"COR-01", "COR-02"}, 4)
    assert len(found["test_a"].requirements) == 2
    assert (found["test_b"].requirements, found["test_b"].nodes) == (("COR-01",), 2)


def test_a_check_in_both_forms_is_two(tmp_path: Path) -> None:
    suite(tmp_path, "test_both.py", "@requirement('ER-03')\n@both_forms\ndef test_a(form): pass\n")
    assert checks.collect(tmp_path) == [
        Check("test_both.py::test_a[explicit]", ("ER-03",), Form.EXPLICIT),
        Check("test_both.py::test_a[implicit]", ("ER-03",), Form.IMPLICIT),
    ]


def test_the_implicit_form_of_an_extended_resource_is_for_er_02_too(tmp_path: Path) -> None:
    text = (
        "from suites.extended_resource.forms import both_forms\n"
        "@requirement('ER-03')\n@both_forms\ndef test_a(form): pass\n"
    )
    suite(tmp_path, "test_both.py", text)
    explicit, implicit = checks.collect(tmp_path)
    assert (explicit.id, explicit.form) == ("test_both.py::test_a[explicit]", Form.EXPLICIT)
    assert (implicit.id, implicit.form) == ("test_both.py::test_a[implicit]", Form.IMPLICIT)
    assert set(explicit.requirements) == {"ER-03"}
    assert set(implicit.requirements) == {"ER-03", "ER-02"}


@pytest.mark.parametrize("mark", ["", "@requirement()\n", "@needs_nodes(2)\n"])
def test_a_check_without_a_requirement_is_refused_by_name(tmp_path: Path, mark: str) -> None:
    suite(tmp_path, "test_without.py", f"{mark}def test_stray(): pass\n")
    assert "test_without.py::test_stray: a check without a requirement" in complaint(tmp_path)


def test_every_unknown_requirement_is_named(tmp_path: Path) -> None:
    suite(tmp_path, "test_typo.py", "@requirement('COR-01', 'COR-99', 'XX-1')\ndef test_a(): pass\n")
    assert "test_typo.py::test_a: no requirement COR-99, XX-1 in the catalogue" in complaint(tmp_path)


def test_a_form_that_the_catalogue_asks_for_may_not_be_missing(tmp_path: Path) -> None:
    suite(tmp_path, "test_half.py", "@requirement('ER-03')\n@explicit_only\ndef test_a(form): pass\n")
    assert complaint(tmp_path) == (
        "the checks don't cover what the catalogue asks:\nER-03: no check for the implicit form"
    )


def test_forms_may_be_covered_by_two_checks(tmp_path: Path) -> None:
    suite(
        tmp_path,
        "test_two.py",
        "@requirement('ER-03')\n@explicit_only\ndef test_a(form): pass\n"
        "@requirement('ER-03')\n@both_forms\ndef test_b(form): pass\n",
    )
    assert len(checks.collect(tmp_path)) == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import no_such_module\n", "test_broken.py:4: in <module>"),
        ("def test_a(:\n", "SyntaxError"),
        ("@pytest.mark.typo\n@requirement('COR-01')\ndef test_a(): pass\n", "'typo' not found in `markers`"),
        (
            "@requirement('ER-10')\n@deviation('k/k#1')\ndef test_a(): pass\n",
            "k/k#1 is no deviation of ER-10",
        ),
    ],
)
def test_what_pytest_can_not_collect_is_shown(tmp_path: Path, text: str, says: str) -> None:
    suite(tmp_path, "test_broken.py", text)
    found = complaint(tmp_path)
    assert found.startswith("the checks can't be collected:\n")
    assert says in found


def test_nothing_to_collect_is_no_error(tmp_path: Path) -> None:
    assert checks.collect(tmp_path) == []


def test_the_users_pytest_options_do_not_reach_the_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k nothing --no-such-option")
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", raising=False)
    suite(tmp_path, "test_one.py", "@requirement('COR-01')\ndef test_a(): pass\n")
    assert [check.id for check in checks.collect(tmp_path)] == ["test_one.py::test_a"]
    assert os.environ["PYTEST_ADDOPTS"] == "-k nothing --no-such-option"
    assert "PYTEST_DISABLE_PLUGIN_AUTOLOAD" not in os.environ
    assert capfd.readouterr() == ("", "")


def test_the_shipped_checks_are_collected_in_order() -> None:
    ids = [check.id for check in checks.collect()]
    assert ids
    assert ids == sorted(set(ids))
    assert all("::test_" in each and not each.startswith("/") for each in ids)
