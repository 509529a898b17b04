from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from harness import events
from harness.events import Event, PlannedRequirement
from harness.results import Result
from reports.console import ConsoleReporter
from reports.run import Run

Recorded = Callable[[Path, Sequence[Event]], Path]


def shown(log: list[Event], run_dir: Path, **options: object) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    reporter = ConsoleReporter(Console(file=file, width=80, highlight=False, **options))  # type: ignore[arg-type]
    for event in log:
        reporter.handle(event)
    assert reporter.write(Run.from_events(log), run_dir) == []
    file.seek(0)
    return file.read()


def section(text: str, title: str) -> list[str]:
    lines = text.partition(f"\n{title}\n")[2].partition("\n\n")[0].splitlines()
    return [line.strip() for line in lines]


def test_one_plain_line_for_each_check(every_result: list[Event], tmp_path: Path) -> None:
    lines = shown(every_result, tmp_path).splitlines()

    assert lines[:5] == [
        "dra-harness 0.1.0: run 20260301-020000-7f3a, seed 42, extended, taints, quota",
        "plan: 13 requirements (1 unsupported, 1 skipped, 3 blocked, 1 not-covered), 9 checks to run",
        "cluster ga: v1.37.2, profile ga, 2 nodes, ready in 21.4 s",
        "[1/9] ✔ pass            2.25 s  ER-01 test_pod_runs[explicit]",
        "[2/9] ✔ pass            1.75 s  ER-01 test_pod_runs[implicit]",
    ]
    assert "    expected: the pod stays Pending while the rule is there" in lines
    assert "cluster ga: taken down in 3.20 s" in lines
    assert "harness fault: worker gw1 died" in lines


def test_summary_has_every_requirement_within_the_width(every_result: list[Event], tmp_path: Path) -> None:
    table = section(shown(every_result, tmp_path), "Requirements")

    rows = {line.split()[0]: line for line in table[1:]}
    assert len(rows) == 13
    assert rows["TNT-01"].split()[1:8] == ["MUST", "✘", "fail", "1/2", "15.5", "s", "A"]
    assert rows["ER-19"].split()[1:8] == ["MUST", "NOT", "✔", "pass", "1/1", "0.50", "s"]
    assert rows["TNT-17"].split()[1:4] == ["SHOULD", "·", "not-covered"]
    assert all(len(line) <= 80 for line in table)


def test_summary_says_what_needs_action(every_result: list[Event], tmp_path: Path) -> None:
    text = shown(every_result, tmp_path)

    failures = section(text, "Failures and errors")
    assert failures[0] == "✘ fail TNT-01 suites/taints/test_rules.py::test_noschedule[rule]"
    assert failures[1] == "expected: the pod stays Pending while the rule is there"
    assert failures[2].startswith("observed: pod test-7x/pod-1 was bound")
    assert "issue: https://github.com/kubernetes/kubernetes/issues/99999" in failures
    assert "see: artifacts/tnt-01/events.yaml" in failures
    assert failures[-2:] == [
        "harness fault: worker gw1 died",
        "… unfinished suites/quota/test_quota.py::test_special",
    ]
    assert section(text, "Known deviations (expected-fail)")[-2:] == [
        "the name is left unmapped",
        "issue: https://github.com/kubernetes/kubernetes/issues/141103",
    ]
    assert section(text, "Not run") == [
        "■ blocked QTA-03..05: needs a node with a device plugin; the cluster has none",
        "○ unsupported TNT-16: the version does not claim it: v1.38 and later",
        "» skipped QTA-09: left out by -k",
    ]
    assert section(text, "Slowest checks")[:2] == [
        "31.5 s  ER-10 test_handover[clear-old]",
        "12.5 s  TNT-01 test_noschedule[rule]",
    ]
    assert section(text, "Clusters")[0] == "ga: local v1.37.2, ga, up in 21.4 s, down in 3.20 s"
    assert text.splitlines()[-3].startswith("FAILED in 1 min 35 s: 1 check failed; ")


@pytest.mark.parametrize(
    ("results", "last"),
    [
        ([Result.PASS, Result.PASS], "PASSED in 9.00 s: all 2 passed checks kept their promise"),
        ([Result.SKIPPED], "INCOMPLETE in 9.00 s: no check passed"),
    ],
)
def test_verdict_is_the_last_line(
    small_run: Callable[..., list[Event]], tmp_path: Path, results: list[Result], last: str
) -> None:
    assert shown(small_run(results), tmp_path).splitlines()[-1] == last


def test_only_the_ten_slowest(small_run: Callable[..., list[Event]], tmp_path: Path) -> None:
    assert len(section(shown(small_run([Result.PASS] * 12), tmp_path), "Slowest checks")) == 10


def test_report_path_is_named_in_one_piece_if_there_is_one(
    small_run: Callable[..., list[Event]], tmp_path: Path
) -> None:
    run_dir = tmp_path / ("deep/" * 20)
    run_dir.mkdir(parents=True)
    log = small_run([Result.PASS])
    assert "report.html" not in shown(log, run_dir)
    (run_dir / "report.html").touch()

    assert f"\nreport: {run_dir / 'report.html'}\n" in shown(log, run_dir)


def test_many_artifacts_are_one_line(small_run: Callable[..., list[Event]], tmp_path: Path) -> None:
    log = small_run([Result.FAIL])
    check = next(event for event in log if isinstance(event, events.CheckFinished))
    names = [*(f"diagnostics/a/{number}.log" for number in range(4)), "diagnostics/b/pods.yaml"]
    log[log.index(check)] = check.model_copy(update={"artifacts": names})

    assert section(shown(log, tmp_path), "Failures and errors")[-2:] == [
        "see: diagnostics/a/ (4 files)",
        "see: diagnostics/b/pods.yaml",
    ]


def test_text_of_the_cluster_is_no_markup_and_no_escape_sequence(
    small_run: Callable[..., list[Event]], tmp_path: Path
) -> None:
    log = small_run([Result.FAIL])
    check = next(event for event in log if isinstance(event, events.CheckFinished))
    log[log.index(check)] = check.model_copy(update={"message": "[red]a[/red] [/] \x1b]0;title\x07"})

    text = shown(log, tmp_path)

    assert "[red]a[/red] [/] �]0;title�" in text
    assert "\x1b" not in text


def test_ids_are_shortened_only_where_they_are_consecutive(
    started: events.RunStarted, tmp_path: Path
) -> None:
    names = ["A-1", "A-2", "A-4", "B-08", "B-09", "B-10", "B-11", "X"]
    plans = [
        PlannedRequirement(
            requirement=name,
            level="MAY",
            owner="S",
            text="",
            source="",
            area="a",
            decision=Result.UNSUPPORTED,
            reason="why",
        )
        for name in names
    ]
    text = shown([started, events.PlanMade(at=started.at, requirements=plans)], tmp_path)

    assert section(text, "Not run") == ["○ unsupported A-1, A-2, A-4, B-08..11, X: why"]


def test_terminal_gets_colour_and_a_progress_bar_unless_no_color(
    every_result: list[Event], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    bold_red, hide_cursor, show_cursor = "\x1b[1;31m", "\x1b[?25l", "\x1b[?25h"

    colourful = shown(every_result, tmp_path, force_terminal=True)
    monkeypatch.setenv("NO_COLOR", "1")
    plain = shown(every_result, tmp_path, force_terminal=True)

    assert bold_red in colourful
    assert bold_red not in plain
    for text in (colourful, plain):
        assert text.count(hide_cursor) == text.count(show_cursor) == 1


_SCRIPT = """
import sys
from pathlib import Path
from harness import journal
from reports.console import ConsoleReporter
from reports.run import Run
log = journal.read(Path(sys.argv[1]))
reporter = ConsoleReporter()
for event in log:
    reporter.handle(event)
reporter.write(Run.from_events(log), Path(sys.argv[1]))
"""


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_pipe_gets_plain_lines_in_its_encoding(
    every_result: list[Event], recorded: Recorded, tmp_path: Path, encoding: str
) -> None:
    run_dir = recorded(tmp_path / "run", every_result)
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "TERM": "xterm-256color"}

    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(run_dir)], env=environment, capture_output=True, check=True
    )

    text = done.stdout.decode(encoding)
    assert done.stderr == b""
    assert "\x1b" not in text
    assert ("x fail" if encoding == "ascii" else "✘ fail") in text
    assert "FAILED in 1 min 35 s" in text
