from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.errors import UsageError
from load.result import Verdict, read, runs_of
from tests.support.load_results import load_result, trial


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    result = load_result()
    assert result.write(tmp_path) == tmp_path / "load.json"
    assert read(tmp_path) == result
    assert [path.name for path in tmp_path.iterdir()] == ["load.json"]


def test_no_secret_gets_into_it(tmp_path: Path) -> None:
    load_result(notes=["asked with --token abcdefgh12345"]).write(tmp_path)
    assert "abcdefgh12345" not in (tmp_path / "load.json").read_text()


@pytest.mark.parametrize(("verdict", "code"), [(Verdict.PASS, 0), (Verdict.FAIL, 1), (Verdict.INVALID, 3)])
def test_exit_codes(verdict: Verdict, code: int) -> None:
    assert verdict.exit_code == code


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version: expected 1, got 2"),
        ({"trials": []}, "trials: List should have at least 1 item"),
        ({"verdict": "GREAT"}, "verdict: Input should be 'PASS', 'FAIL' or 'INVALID'"),
    ],
)
def test_what_is_no_result_is_refused_by_file_and_key(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    document = {**load_result().model_dump(mode="json"), **change}
    (tmp_path / "load.json").write_text(json.dumps(document))
    with pytest.raises(UsageError) as refused:
        read(tmp_path)
    assert str(refused.value).startswith(f"{tmp_path / 'load.json'}: {message}")


def test_a_half_written_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "load.json").write_text('{"run_id": ')
    with pytest.raises(UsageError, match="Invalid JSON"):
        read(tmp_path)


def test_runs_are_found_by_folder_and_by_pattern_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, minutes in (("base-2", 0), ("base-1", 5), ("next-1", 1)):
        folder = tmp_path / "results" / name
        folder.mkdir(parents=True)
        load_result(name, minutes=minutes).write(folder)
    (tmp_path / "results" / "base-0").mkdir()  # of a run that came to nothing

    def ids(place: str) -> list[str]:
        return [run.run_id for run in runs_of(place)]

    assert ids(str(tmp_path / "results")) == ["base-2", "next-1", "base-1"]
    assert ids(str(tmp_path / "results/base-1")) == ["base-1"]
    assert ids(str(tmp_path / "results/base-*")) == ["base-2", "base-1"]
    monkeypatch.chdir(tmp_path)
    assert ids("results/next-*") == ["next-1"]


@pytest.mark.parametrize("place", ["nowhere", "no-*", "/no/such/*", ""])
def test_no_run_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no load run there"):
        runs_of(place)


@pytest.mark.parametrize("place", ["runs/**x", "x" * 300])
def test_what_can_be_no_path_is_a_usage_error(place: str) -> None:
    with pytest.raises(UsageError, match=r"no path or pattern that can be looked at|no load run there"):
        runs_of(place)


def test_a_stage_is_found_by_kind_and_window() -> None:
    found = trial()
    assert found.stage(found.stages[0].stage) is found.stages[0]
    assert found.stage(found.stages[0].stage, kind="other") is None
