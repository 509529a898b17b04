"""Collecting the checks: pytest finds them, and each is held to what the catalogue knows."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from clusters.interface import Profile
from harness.errors import HarnessError
from suites.catalogue import Catalogue, Form, load

SUITES = Path(__file__).parent

ISOLATION = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "", "PYTHONSAFEPATH": "1"}
"""Environment in which pytest and its workers are the same wherever, and whatever plugins, the user has."""

# The names of their entry points: pytest-randomly asks for xdist by that name.
_PLUGINS = (
    "xdist",
    "randomly",
    "timeout",
    "allure_pytest",
    "suites.fixtures",
    "suites.plugin",
)


@dataclass(frozen=True)
class Check:
    """One check: a pytest item."""

    id: str
    """Its pytest node id, relative to the suites folder."""
    requirements: tuple[str, ...]
    form: Form | None = None
    nodes: int = 1
    """Real nodes that it takes."""
    profile: Profile = Profile.GA
    """The profile that its requirements need."""
    gates: tuple[tuple[str, bool], ...] = ()
    """Gates on top of the profile's."""
    exclusive: bool = False
    """Whether it runs alone."""
    driver: bool = True
    """Whether it starts a driver, on nodes of this machine."""


def of_item(item: pytest.Item, catalogue: Catalogue) -> Check:
    """What an item's marks say.

    Raises:
        pytest.UsageError: it names no requirement, or one that isn't in the catalogue.
    """
    ids = tuple(dict.fromkeys(name for mark in item.iter_markers("requirement") for name in mark.args))
    if not ids:
        raise pytest.UsageError(f"{item.nodeid}: a check without a requirement")
    unknown = [name for name in ids if name not in catalogue.requirements]
    if unknown:
        raise pytest.UsageError(f"{item.nodeid}: no requirement {', '.join(unknown)} in the catalogue")
    parameters = getattr(item, "callspec", None)
    form = parameters.params.get("form") if parameters else None
    gates = {gate: on for mark in item.iter_markers("needs_gates") for gate, on in mark.kwargs.items()}
    alpha = any(catalogue.get(name).profile is Profile.ALPHA for name in ids)
    return Check(
        id=item.nodeid,
        requirements=ids,
        form=form,
        nodes=max((mark.args[0] for mark in item.iter_markers("needs_nodes")), default=1),
        profile=Profile.ALPHA if alpha else Profile.GA,
        gates=tuple(sorted(gates.items())),
        exclusive=item.get_closest_marker("exclusive") is not None,
        driver=item.get_closest_marker("without_driver") is None,
    )


def collect(directory: Path = SUITES) -> list[Check]:
    """All checks under a folder, in the order of their ids.

    Raises:
        HarnessError: a module can't be imported, or a check breaks the rules; pytest's words are in it.
    """
    collector = _Collector()
    output = io.StringIO()
    with _no_foreign_plugins(), contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = pytest.main([*base_arguments(), str(directory), "--collect-only"], plugins=[collector])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) or collector.problems:
        problems = "\n".join(collector.problems) or output.getvalue()
        raise HarnessError(f"the checks can't be collected:\n{problems}")
    _require_forms(collector.checks, load())
    return sorted(collector.checks, key=lambda check: check.id)


def base_arguments() -> list[str]:
    """The arguments with which pytest runs the suites, wherever the harness is installed."""
    arguments = ["-c", str(SUITES / "pytest.ini"), f"--rootdir={SUITES}"]
    for plugin in _PLUGINS:
        arguments += ["-p", plugin]
    return arguments


@contextlib.contextmanager
def _no_foreign_plugins() -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(ISOLATION)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class _Collector:
    def __init__(self) -> None:
        self.checks: list[Check] = []
        self.problems: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.problems.append(report.longreprtext)

    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        for item in items:
            try:
                self.checks.append(of_item(item, load()))
            except pytest.UsageError as error:
                self.problems.append(str(error))


def _require_forms(checks: Sequence[Check], catalogue: Catalogue) -> None:
    problems = list(_missing_forms(checks, catalogue))
    if problems:
        raise HarnessError("the checks don't cover what the catalogue asks:\n" + "\n".join(problems))


def _missing_forms(checks: Sequence[Check], catalogue: Catalogue) -> Iterator[str]:
    for requirement in catalogue.requirements.values():
        covering = [check for check in checks if requirement.id in check.requirements]
        if covering:
            for form in set(requirement.forms) - {check.form for check in covering}:
                yield f"{requirement.id}: no check for the {form} form"
