from __future__ import annotations

import pytest

from harness.errors import ExitCode, RequirementFailed
from reports.run import STATUSES
from reports.text import LOOKS, VERDICTS, Message, duration, links, printable, short_name, size, split_message


def test_every_status_and_exit_code_has_a_look_of_its_own() -> None:
    assert tuple(LOOKS) == STATUSES
    assert len({look.symbol for look in LOOKS.values()}) == len(STATUSES)
    assert len({look.ascii for look in LOOKS.values()}) == len(STATUSES)
    assert all(look.ascii.isascii() for look in LOOKS.values())
    assert set(VERDICTS) == set(ExitCode)


@pytest.mark.parametrize(
    ("message", "parts"),
    [
        (
            str(RequirementFailed("it runs", "it waits\nfor long")),
            Message("", "it runs", "it waits\nfor long"),
        ),
        (
            "harness.errors.RequirementFailed: expected: it runs\nobserved: no",
            Message("", "it runs", "no"),
        ),
        ("second pod: expected: it runs\nobserved: no", Message("second pod", "it runs", "no")),
        ("unexpected: nothing\nobserved: x", Message("unexpected: nothing\nobserved: x")),
        ("expected: only", Message("expected: only")),
        ("", Message("")),
    ],
)
def test_split_message(message: str, parts: Message) -> None:
    assert split_message(message) == parts


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see https://example.test/a(b)?x=1#y.", ["https://example.test/a(b)?x=1#y"]),
        ("(https://example.test/a), https://example.test/a", ["https://example.test/a"]),
        ("k/k#141103", ["https://github.com/kubernetes/kubernetes/issues/141103"]),
        ("javascript:alert(1) ftp://x kk/k#1", []),
    ],
)
def test_links(text: str, found: list[str]) -> None:
    assert links(text) == found


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.00 s"),
        (9.994, "9.99 s"),
        (9.996, "10.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (245, "4 min 05 s"),
        (3599.6, "1 h 00 min"),
        (3720, "1 h 02 min"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_small_pieces() -> None:
    assert printable("a\x1b[31m\x00\n\tz\x85") == "a�[31m�\n\tz�"
    assert short_name("suites/a/test_b.py::TestC::test_d[x-1]") == "test_d[x-1]"
    assert short_name("a/test_b.py::test_d[x::y]") == "test_d[x::y]"
    assert (size(999), size(20_480)) == ("999 B", "20.5 kB")
