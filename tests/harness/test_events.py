"""The format of `events.ndjson` is a promise to reports of older runs, so a line of every kind is frozen."""

from __future__ import annotations

import datetime
import json
import typing

import pydantic
import pytest

from harness import events
from harness.events import Evidence, PlannedRequirement
from harness.results import Result

AT = datetime.datetime(2026, 3, 1, 2, 3, 4, 500000, tzinfo=datetime.UTC)

FROZEN: dict[str, tuple[events.Event, str]] = {
    "run-started": (
        events.RunStarted(
            at=AT,
            run_id="r1",
            suite_version="0.1.0",
            suite_commit="abc",
            suite_dirty=True,
            catalogue_digest="00ff",
            command=["dra-harness", "run"],
            seed=42,
            areas=["quota"],
        ),
        '{"at":"2026-03-01T02:03:04.500000Z","kind":"run-started","version":1,"run_id":"r1",'
        '"suite_version":"0.1.0","suite_commit":"abc","suite_dirty":true,"catalogue_digest":"00ff",'
        '"command":["dra-harness","run"],"seed":42,"areas":["quota"]}',
    ),
    "plan-made": (
        events.PlanMade(
            at=AT,
            requirements=[
                PlannedRequirement(
                    requirement="QTA-01",
                    level="MUST",
                    owner="A",
                    text="It is charged.",
                    source="KEP-4381",
                    area="quota",
                    checks=["quota/test_a.py::test_a"],
                    decision=Result.NOT_COVERED,
                    reason="none",
                )
            ],
        ),
        '{"at":"2026-03-01T02:03:04.500000Z","kind":"plan-made","requirements":[{"requirement":"QTA-01",'
        '"level":"MUST","owner":"A","text":"It is charged.","source":"KEP-4381","area":"quota",'
        '"checks":["quota/test_a.py::test_a"],"decision":"not-covered","reason":"none"}]}',
    ),
    "cluster-ready": (
        events.ClusterReady(
            at=AT,
            name="c",
            provider="local",
            kubernetes="v1.37.2",
            profile="ga",
            nodes=["node-1"],
            driver="gpu.example",
            programs="download",
            seconds=9.5,
            phases={"API server ready": 3.25},
        ),
        '{"at":"2026-03-01T02:03:04.500000Z","kind":"cluster-ready","name":"c","provider":"local",'
        '"kubernetes":"v1.37.2","profile":"ga","nodes":["node-1"],"driver":"gpu.example","programs":"download","seconds":9.5,'
        '"phases":{"API server ready":3.25}}',
    ),
    "check-started": (
        events.CheckStarted(at=AT, check="a.py::b"),
        '{"at":"2026-03-01T02:03:04.500000Z","kind":"check-started","check":"a.py::b"}',
    ),
    "check-finished": (
        events.CheckFinished(
            at=AT,
            check="a.py::b",
            requirements=["QTA-01"],
            result=Result.EXPECTED_FAIL,
            seconds=1.5,
            message="m",
            details="d",
            evidence=[Evidence(title="claim", value={"a": [1, None, "é"]})],
            artifacts=["diagnostics/b/pods.yaml"],
            worker="gw1",
        ),
        '{"at":"2026-03-01T02:03:04.500000Z","kind":"check-finished","check":"a.py::b",'
        '"requirements":["QTA-01"],"result":"expected-fail","seconds":1.5,"message":"m","details":"d",'
        '"evidence":[{"title":"claim","value":{"a":[1,null,"é"]}}],'
        '"artifacts":["diagnostics/b/pods.yaml"],"worker":"gw1","created":[]}',
    ),
    "cluster-gone": (
        events.ClusterGone(at=AT, name="c", seconds=0.75),
        '{"at":"2026-03-01T02:03:04.500000Z","kind":"cluster-gone","name":"c","seconds":0.75}',
    ),
    "harness-fault": (
        events.HarnessFault(at=AT, message="disk full"),
        '{"at":"2026-03-01T02:03:04.500000Z","kind":"harness-fault","message":"disk full"}',
    ),
    "run-finished": (
        events.RunFinished(at=AT, exit_code=1, seconds=80.0),
        '{"at":"2026-03-01T02:03:04.500000Z","kind":"run-finished","exit_code":1,"seconds":80.0}',
    ),
}
MINIMAL: dict[str, dict[str, object]] = {
    "run-started": {
        "run_id": "r",
        "suite_version": "1",
        "catalogue_digest": "0",
        "command": [],
        "seed": 0,
        "areas": [],
    },
    "plan-made": {"requirements": []},
    "cluster-ready": {
        "name": "c",
        "provider": "p",
        "kubernetes": "v1.36.3",
        "profile": "ga",
        "nodes": [],
        "seconds": 0,
    },
    "check-started": {"check": "x"},
    "check-finished": {"check": "x", "requirements": [], "result": "pass", "seconds": 0},
    "cluster-gone": {"name": "c", "seconds": 0},
    "harness-fault": {"message": ""},
    "run-finished": {"exit_code": 0, "seconds": 0},
}


def test_every_kind_of_event_has_a_frozen_line() -> None:
    union = typing.get_args(events.Event)[0]
    kinds = {typing.get_args(each.model_fields["kind"].annotation)[0] for each in typing.get_args(union)}
    assert kinds == set(FROZEN) == set(MINIMAL)


@pytest.mark.parametrize("kind", FROZEN)
def test_the_line_of_an_event_is_frozen(kind: str) -> None:
    event, line = FROZEN[kind]
    assert events.dump(event) == line


@pytest.mark.parametrize("kind", FROZEN)
def test_a_line_becomes_the_same_event_again(kind: str) -> None:
    event, line = FROZEN[kind]
    assert events.parse(line) == event
    assert events.parse(line.encode()) == event


@pytest.mark.parametrize("kind", FROZEN)
def test_keys_of_later_versions_are_ignored(kind: str) -> None:
    event, line = FROZEN[kind]
    assert events.parse(json.dumps({**json.loads(line), "later": {"x": 1}})) == event


@pytest.mark.parametrize("kind", MINIMAL)
def test_only_these_keys_are_required_of_older_runs(kind: str) -> None:
    keys = {"kind": kind, "at": AT.isoformat(), **MINIMAL[kind]}
    assert events.parse(json.dumps(keys)).kind == kind
    for missing in [*MINIMAL[kind], "at"]:
        with pytest.raises(pydantic.ValidationError, match=missing):
            events.parse(json.dumps({key: value for key, value in keys.items() if key != missing}))


@pytest.mark.parametrize("line", ["", "{}", "[]", '{"kind": "nonsense", "at": "2026-03-01T00:00:00Z"}', "{"])
def test_a_line_that_is_no_event_is_refused(line: str) -> None:
    with pytest.raises(pydantic.ValidationError):
        events.parse(line)


def test_a_line_has_no_line_break_in_it() -> None:
    event = events.HarnessFault(at=AT, message="one\ntwo\r\u2028")
    assert "\n" not in events.dump(event)
    assert events.parse(events.dump(event)) == event


def test_now_is_in_utc() -> None:
    assert events.now().utcoffset() == datetime.timedelta(0)
