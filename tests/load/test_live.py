from __future__ import annotations

import io

import pytest
from rich.console import Console

from clusters.interface import SilentProgress
from load.live import LiveView
from load.model import Cause, Snapshot


@pytest.fixture(autouse=True)
def _shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests decide on width and colour, not the shell that they are started from."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)


def snapshot(elapsed: float, bound: int = 0, **changes: object) -> Snapshot:
    values: dict[str, object] = {
        "at": 1000 + elapsed,
        "elapsed": elapsed,
        "phase": "main",
        "offered_rate": 20.0,
        "intended": round(20 * elapsed),
        "accepted": bound,
        "bound": bound,
        "completed": 0,
        "in_flight": 3,
        "causes": {},
        "bound_p99": 0.4567,
        "lateness_p99": 0.0021,
    }
    return Snapshot.model_validate({**values, **changes})


def shown(*snapshots: Snapshot, terminal: bool = False) -> tuple[str, LiveView]:
    file = io.StringIO()
    console = Console(file=file, width=200, force_terminal=terminal, highlight=False)
    with LiveView(console, SilentProgress()) as view:
        for each in snapshots:
            view.progress(each)
    return file.getvalue(), view


def test_without_a_terminal_there_is_a_plain_line_every_five_seconds() -> None:
    text, _ = shown(*(snapshot(second, bound=10 * second) for second in range(12)))

    lines = text.splitlines()
    assert [line.split()[0] for line in lines] == ["0", "5", "10"]
    assert lines[1] == (
        "     5 s  main: offered 20.0/s, achieved 10.0/s, in flight 3, bound p99 457 ms, "
        "sent late p99 2 ms, pods 100 due, 50 bound, 0 done"
    )
    assert "\x1b" not in text


def test_causes_are_shown_the_most_frequent_first_and_success_is_none() -> None:
    causes = {Cause.COMPLETED: 90, Cause.QUOTA_DENIED: 2, Cause.APF_REJECTED: 7, Cause.REFUSED: 0}
    text, _ = shown(snapshot(1, causes=causes))
    assert text.rstrip().endswith("; apf-rejected 7, quota-denied 2")


def test_the_achieved_rate_is_that_of_the_last_seconds() -> None:
    _, view = shown(*(snapshot(second, bound=min(second, 10) * 20) for second in range(16)))
    assert view.achieved() == 0.0  # nothing was bound from second 10 on
    _, view = shown(*(snapshot(second, bound=min(second, 10) * 20) for second in range(13)))
    assert view.achieved() == pytest.approx(12.0)  # from second 7 to 12: 60 pods


def test_the_next_trial_begins_anew() -> None:
    text, view = shown(snapshot(30, bound=600), snapshot(1, bound=4))
    assert len(text.splitlines()) == 2
    assert view.achieved() == 4.0


def test_nothing_yet_is_shown_as_such() -> None:
    text, view = shown(snapshot(0, bound_p99=None, lateness_p99=None))
    assert "bound p99 -, sent late p99 -" in text
    assert view.achieved() == 0.0


def test_on_a_terminal_the_table_is_drawn_over() -> None:
    text, _ = shown(snapshot(1, bound=10), snapshot(2, bound=20, causes={Cause.NOT_BOUND: 3}), terminal=True)
    assert "\x1b[" in text
    last = text.rpartition("offered")[2]
    assert "not-bound" in last
    assert "40 due, 20 bound, 0 done" in last


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    causes = {Cause.APF_REJECTED: 3}
    coloured, _ = shown(snapshot(1, causes=causes), terminal=True)
    assert "\x1b[31m" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    plain, _ = shown(snapshot(1, causes=causes), terminal=True)
    assert "\x1b[31m" not in plain


def test_what_is_said_is_a_line_without_secrets() -> None:
    file = io.StringIO()
    view = LiveView(Console(file=file, width=40), SilentProgress())
    view.said(
        "kube-scheduler was restarted [bold] with --token abcdefgh12345 and a line longer than the console"
    )
    text = file.getvalue()
    assert text.count("\n") == 1
    assert "[bold]" in text
    assert "abcdefgh12345" not in text
