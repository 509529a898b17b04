"""Commands about clusters that somebody else made, as far as no cluster is needed."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
from pathlib import Path
from typing import Any

import pytest
import typer

from cli import existing, preflight
from cli.existing import chosen
from cli.options import Output
from clusters.components import BuildSource
from clusters.existing import clean
from clusters.existing.facts import Facts
from clusters.existing.presence import namespace_of
from clusters.existing.provider import ExistingProvider, folders
from clusters.existing.rights import Right
from clusters.interface import Profile
from clusters.local.provider import LocalProvider
from clusters.profiles import feature_gates
from harness.errors import UsageError
from harness.events import PlannedRequirement
from harness.labels import RUN
from harness.results import Result
from tests.harness.api_server import write_config
from tests.support.api_server import serve

FACTS = Facts(
    user="jane",
    kubernetes="v1.37.2",
    gates={"DRAExtendedResource": True, "DRAListTypeAttributes": False, "Other": True},
    api_versions=("v1", "v1beta2"),
    nodes=("a", "b"),
    nodes_not_ready=(),
    nodes_tainted=(),
    simulated_nodes=0,
    drivers={"gpu.example.com": 2},
)


def rows(facts: Facts) -> dict[str, tuple[str, str]]:
    return {row["subject"]: (row["state"], row["found"]) for row in preflight._cluster(facts, "https://s")}


def test_what_a_cluster_has() -> None:
    found = rows(FACTS)
    assert found["server"] == ("ok", "v1.37.2 at https://s")
    assert found["user"] == ("ok", "jane")
    assert found["resource.k8s.io"] == ("ok", "v1, v1beta2")
    assert found["nodes"] == ("ok", "2 Ready")
    assert found["drivers"] == ("ok", "gpu.example.com (2 slices)")
    assert found["gates"][0] == "ok"
    assert found["gates"][1].startswith(
        "profile ga; on: DRAExtendedResource; off: DRAListTypeAttributes (of the API server"
    )


def test_what_a_cluster_lacks_or_does_not_tell() -> None:
    found = rows(
        dataclasses.replace(
            FACTS,
            gates=None,
            api_versions=(),
            nodes=(),
            nodes_not_ready=("ill",),
            simulated_nodes=3,
            drivers=None,
        )
    )
    assert found["gates"] == ("unknown", "the API server's /metrics can't be read")
    assert found["resource.k8s.io"] == ("blocked", "not served")
    assert found["nodes"] == ("blocked", "0 Ready; 3 exist only in the API; not Ready: ill")
    assert found["drivers"] == ("unknown", "ResourceSlices can't be listed")
    assert rows(dataclasses.replace(FACTS, drivers={}))["drivers"][1] == "none has published a ResourceSlice"
    every = dataclasses.replace(FACTS, gates=feature_gates(Profile.ALPHA, "v1.37.2"))
    assert rows(every)["gates"][1].startswith("profile alpha; ")


def test_rights_that_a_user_lacks_are_named() -> None:
    assert preflight._rights([])["state"] == "ok"
    row = preflight._rights([Right("create", "pods"), Right("list", "deviceclasses", "resource.k8s.io")])
    assert row["state"] == "blocked"
    assert row["found"] == "the user may not: create pods, list deviceclasses.resource.k8s.io"


def planned(name: str, area: str, decision: Result | None = None, reason: str = "") -> PlannedRequirement:
    return PlannedRequirement(
        requirement=name,
        level="MUST",
        owner="S",
        text="t.",
        source="s",
        area=area,
        decision=decision,
        reason=reason,
    )


def test_areas_say_what_is_blocked_and_why() -> None:
    found = list(
        preflight._areas(
            [
                planned("A-1", "a"),
                planned("A-2", "a", Result.BLOCKED, "no driver"),
                planned("A-3", "a", Result.BLOCKED, "no driver"),
                planned("A-4", "a", Result.BLOCKED, "no gate"),
                planned("A-5", "a", Result.NOT_COVERED, "no check exists yet"),
                planned("B-1", "b", Result.BLOCKED, "no driver"),
                planned("C-1", "c", Result.NOT_COVERED, "no check exists yet"),
            ]
        )
    )
    assert [(row["subject"], row["state"], row["found"]) for row in found] == [
        (
            "area a",
            "ok",
            "1 of 4 requirements with checks can be looked at; A-2 and 1 more: no driver; A-4: no gate",
        ),
        ("area b", "blocked", "0 of 1 requirements with checks can be looked at; B-1: no driver"),
    ]


def test_a_kubeconfig_and_a_cluster_exclude_each_other() -> None:
    local = LocalProvider(BuildSource())
    refused = pytest.raises(UsageError, match="--kubeconfig, --cluster: expected one of them")
    with refused, chosen(Path("f"), None, "c", "r", local):
        raise AssertionError
    with chosen(None, None, "c", "r", local) as (provider, name):
        assert (provider, name) == (local, "c")


@pytest.mark.parametrize(("versions", "code"), [(("v1beta1", "v1"), 0), (("v1beta1",), 3), ((), 3)])
def test_a_cluster_on_which_nothing_can_be_checked_is_exit_code_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, versions: tuple[str, ...], code: int
) -> None:
    monkeypatch.setenv("DRA_HARNESS_STATE", str(tmp_path / "state"))
    facts = dataclasses.replace(FACTS, api_versions=versions)
    monkeypatch.setattr(ExistingProvider, "facts", lambda _: facts)
    monkeypatch.setattr(ExistingProvider, "missing_rights", lambda _: [])
    config = write_config(tmp_path / "config", "https://127.0.0.1:1", {"token": "t"})
    with pytest.raises(typer.Exit) if code else contextlib.nullcontext() as ended:
        preflight.preflight(config)
    assert ended is None or ended.value.exit_code == code


def test_a_run_that_was_killed_here_is_dead_until_clean_has_removed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever its Lease says yet, and whatever other command or `--dry-run` came before."""
    monkeypatch.setenv("DRA_HARNESS_STATE", str(tmp_path / "state"))
    folder = folders() / "killed"
    folder.mkdir(parents=True)
    (folder / "mark").write_text("a-mark-that-nobody-has")
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{namespace_of('killed')}/leases/run"
    renewed = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    space = {"metadata": {"name": namespace_of("killed"), "uid": "u", "labels": {RUN: "killed"}}}
    answers: dict[str, Any] = {
        "POST /apis/authentication.k8s.io/v1/selfsubjectreviews": {"status": {"userInfo": {"username": "j"}}},
        "GET /api/v1/namespaces": {"items": [space]},
        f"GET /api/v1/namespaces/{namespace_of('killed')}": space,
        f"DELETE /api/v1/namespaces/{namespace_of('killed')}": {},
        f"GET {lease}": {"spec": {"renewTime": renewed}},
    }
    monkeypatch.setattr(clean, "_wait_gone", lambda *_: None)

    with serve(answers) as address:
        config = write_config(tmp_path / "config", address, {"token": "t"})
        states = []
        for dry_run in (True, True, False, False):
            existing.clean(config, dry_run=dry_run, output=Output.JSON)
            (row,) = json.loads(capsys.readouterr().out)
            states.append(row["state"])

    # Here the namespace stays, so after it was removed it looks alive again.
    assert states == ["would be removed", "would be removed", "removed", "alive, left alone"]
    assert not (tmp_path / "state").exists()
