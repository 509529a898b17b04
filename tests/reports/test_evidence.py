from __future__ import annotations

import datetime
from typing import Any

import pytest

from harness.events import CheckFinished, Evidence
from harness.results import Result
from reports.evidence import BUDGET, ITEM_LIMIT, Block, show


def check_with(result: Result = Result.PASS, *, value: Any = None, **more: Any) -> CheckFinished:
    return CheckFinished(
        at=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        check="suites/a/test_b.py::test_c",
        requirements=["A-1"],
        result=result,
        seconds=1,
        evidence=[Evidence(title="seen", value=value)],
        **more,
    )


@pytest.mark.parametrize(
    ("value", "block"),
    [
        (3, Block("seen", "3", inline=True)),
        (True, Block("seen", "true", inline=True)),
        (None, Block("seen", "null", inline=True)),
        ("Running", Block("seen", "Running", inline=True)),
        ("", Block("seen", '""', inline=True)),
        ("two\nlines", Block("seen", "two\nlines")),
        ("x" * 101, Block("seen", "x" * 101)),
        ({"a": ["ü"]}, Block("seen", '{\n  "a": [\n    "ü"\n  ]\n}')),
        ([], Block("seen", "[]")),
    ],
)
def test_values_are_shown_by_their_shape(value: Any, block: Block) -> None:
    assert show([check_with(value=value)])[0].evidence == [block]


def test_a_large_piece_is_cut_with_a_note() -> None:
    (shown,) = show([check_with(value="ab\n" * 10_000)])

    (block,) = shown.evidence
    assert len(block.text) == ITEM_LIMIT
    assert block.note == "cut here: 10.0 kB more in events.ndjson"


def test_size_is_counted_as_html() -> None:
    (shown,) = show([check_with(value="<" * 10_000)])

    assert 4 * len(shown.evidence[0].text) == ITEM_LIMIT  # &lt;


def test_passes_take_no_room_from_failures() -> None:
    many = [check_with(value="x" * ITEM_LIMIT) for _ in range(200)]
    failed = check_with(Result.FAIL, value="x" * ITEM_LIMIT, message="y" * 30_000, details="z" * ITEM_LIMIT)

    *passed, last = show([*many, failed])

    assert sum(len(item.evidence[0].text) for item in passed) <= BUDGET
    assert len(last.evidence[0].text) == ITEM_LIMIT
    assert len(last.message[0].text) == ITEM_LIMIT
    assert last.traceback == Block("Traceback", "z" * ITEM_LIMIT)


@pytest.mark.parametrize(
    ("path", "folder", "href"),
    [
        ("artifacts/pod 1#x.yaml", "artifacts", "./artifacts/pod%201%23x.yaml"),
        ("javascript:alert(1)", "", "./javascript%3Aalert%281%29"),
        ("../../etc/passwd", "../../etc", ""),
        ("/etc/passwd", "/etc", ""),
        ("a\\..\\b", "", ""),
    ],
)
def test_artifacts_link_only_into_the_run(path: str, folder: str, href: str) -> None:
    name = path.removeprefix(f"{folder}/")

    assert show([check_with(artifacts=[path])])[0].artifacts == {folder: [(href, name)]}


def test_a_failed_promise_is_shown_in_its_parts() -> None:
    (shown,) = show([check_with(Result.FAIL, message="expected: it runs\nobserved: it waits")])

    assert shown.message == [Block("Expected", "it runs"), Block("Observed", "it waits")]
