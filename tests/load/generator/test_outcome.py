from __future__ import annotations

from pathlib import Path

from harness.errors import ExitCode
from load.generator.outcome import Outcome, together
from load.model import Cause, Snapshot, WorkerReport
from tests.load.generator.running import orders


def snapshot(at: float, intended: int, causes: dict[Cause, int], p99: float | None) -> Snapshot:
    return Snapshot(
        at=at,
        elapsed=at - 100,
        phase="measured",
        offered_rate=2.5,
        intended=intended,
        accepted=intended - 1,
        bound=intended - 2,
        completed=1,
        in_flight=3,
        causes=causes,
        bound_p99=p99,
    )


FIRST = snapshot(101.0, 10, {Cause.COMPLETED: 1}, 0.5)
SECOND = snapshot(101.5, 20, {Cause.COMPLETED: 1, Cause.REFUSED: 2}, 0.75)


def test_snapshots_of_two_workers_add_up() -> None:
    both = together([FIRST, SECOND])

    assert (both.at, both.elapsed, both.offered_rate) == (101.5, 1.5, 5.0)
    assert (both.intended, both.accepted, both.bound, both.completed, both.in_flight) == (30, 28, 26, 2, 6)
    assert both.causes == {Cause.COMPLETED: 2, Cause.REFUSED: 2}
    assert both.bound_p99 == 0.75
    assert both.bound_p50 is None


def test_a_line_is_written_once_every_worker_has_told(tmp_path: Path) -> None:
    outcome = Outcome(orders(tmp_path, "http://127.0.0.1:1"), tmp_path)

    outcome.progress("a", FIRST, expected=2)
    assert not (tmp_path / "progress.ndjson").exists()
    outcome.progress("b", SECOND, expected=2)

    (line,) = (tmp_path / "progress.ndjson").read_text().splitlines()
    assert Snapshot.model_validate_json(line).intended == 30


def test_a_run_that_never_began_leaves_its_reason(tmp_path: Path) -> None:
    outcome = Outcome(orders(tmp_path, "http://127.0.0.1:1"), tmp_path)
    outcome.refused("a", "the sender is exempt", blocked=True)

    assert outcome.write() is ExitCode.BLOCKED
    report = WorkerReport.model_validate_json((tmp_path / "generator.json").read_bytes())
    assert report.faults == ["the sender is exempt"]
    assert (report.workers, report.intended) == (0, 0)
    assert outcome.accounted == {"a"}


def test_an_error_of_ours_is_not_the_clusters(tmp_path: Path) -> None:
    outcome = Outcome(orders(tmp_path, "http://127.0.0.1:1"), tmp_path)
    outcome.refused("a", "kubeconfig: not usable", blocked=False)

    assert outcome.write() is ExitCode.HARNESS_ERROR
