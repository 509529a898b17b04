"""What checks create, as a list: taken from events, named for a run, held to."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from harness import events
from harness.results import Result
from suites import checks, footprint
from suites.naming import Names

CHECK = "quota/test_claims.py::test_it[a-1]"
NAMES = Names("run-1", CHECK)
T = f"t{NAMES.token}"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/namespaces/n", "namespaces/n"),
        ("/api/v1/namespaces/n/pods/p", "pods/n/p"),
        ("/apis/resource.k8s.io/v1/deviceclasses/c", "deviceclasses/c"),
        ("/apis/resource.k8s.io/v1/namespaces/n/resourceclaims/c", "resourceclaims/n/c"),
    ],
)
def test_a_path_in_short(path: str, expected: str) -> None:
    assert footprint.short(path) == expected


def finished(check: str, *created: str) -> events.CheckFinished:
    return events.CheckFinished(
        at=events.now(), check=check, requirements=[], result=Result.PASS, seconds=0, created=list(created)
    )


def started(run_id: str) -> events.RunStarted:
    return events.RunStarted(
        at=events.now(),
        run_id=run_id,
        suite_version="0",
        catalogue_digest="",
        command=[],
        seed=0,
        areas=[],
    )


def test_the_list_is_what_events_say_without_what_differs_from_run_to_run() -> None:
    second = CHECK.replace("a-1", "b-2")
    other = Names("run-1", second).token
    log: list[events.Event] = [
        started("run-1"),
        finished(CHECK, f"namespaces/{T}", f"resourcequotas/{T}/quota-recount-12", "deviceclasses/fixed"),
        finished(second, f"namespaces/t{other}", f"deviceclasses/t{other}-gpu"),
        finished("core/test_x.py::test_nothing"),
    ]
    assert footprint.observed(log) == {
        "quota/test_claims.py::test_it": [
            "deviceclasses/fixed",
            "deviceclasses/t<id>-gpu",
            "namespaces/t<id>",
            "resourcequotas/t<id>/quota-recount-<n>",
        ]
    }


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, tuple[str, ...]]:
    known = {
        "quota/test_claims.py::test_it": (
            "namespaces/t<id>",
            "resourceclaims/t<id>/claim",
            "deviceclasses/t<id>-x<n>",
        )
    }
    monkeypatch.setattr(footprint, "load", lambda: known)
    return known


@pytest.mark.usefixtures("listed")
def test_a_run_is_held_to_the_list() -> None:
    claims = f"/apis/resource.k8s.io/v1/namespaces/{T}/resourceclaims"
    assert footprint.allows(CHECK, NAMES, f"/api/v1/namespaces/{T}")
    assert footprint.allows(CHECK, NAMES, f"{claims}/claim")
    assert footprint.allows(CHECK, NAMES, f"/apis/resource.k8s.io/v1/deviceclasses/{T}-x17")
    assert not footprint.allows(CHECK, NAMES, f"{claims}/other")
    assert not footprint.allows(CHECK, NAMES, f"{claims}/")
    assert not footprint.allows(CHECK, NAMES, "/api/v1/namespaces/t00000000")
    assert not footprint.allows("quota/test_claims.py::test_other", NAMES, f"/api/v1/namespaces/{T}")
    assert footprint.of_run(CHECK, "run-1") == [
        f"namespaces/{T}",
        f"resourceclaims/{T}/claim",
        f"deviceclasses/{T}-x<n>",
    ]
    assert footprint.of_run(CHECK, "run-2") != footprint.of_run(CHECK, "run-1")


def test_the_list_is_of_checks_that_run_anywhere() -> None:
    anywhere = {footprint.function_of(check.id) for check in checks.collect() if not check.driver}
    assert set(footprint.load()) <= anywhere
    assert not [each for patterns in footprint.load().values() for each in patterns if "nodes/" in each]
