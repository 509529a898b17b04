from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest

from harness import events, journal
from harness.errors import UsageError
from harness.results import Result

AT = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
TOKEN = "hunter2hunter2"


def fault(message: str) -> events.HarnessFault:
    return events.HarnessFault(at=AT, message=message)


def written(run_dir: Path, *messages: str) -> Path:
    log = journal.Journal(run_dir)
    for message in messages:
        log.append(fault(message))
    return log.path


def test_what_was_appended_is_read_in_order(tmp_path: Path) -> None:
    path = written(tmp_path, "one", "two\nlines", "é")
    assert path == tmp_path / "events.ndjson"
    assert journal.read(tmp_path) == [fault("one"), fault("two\nlines"), fault("é")]


def test_a_second_journal_appends(tmp_path: Path) -> None:
    written(tmp_path, "one")
    written(tmp_path, "two")
    assert journal.read(tmp_path) == [fault("one"), fault("two")]


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_half_written_last_line_is_dropped(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path, "whole", "ends in é")
    content = path.read_bytes()
    path.write_bytes(content[:-cut])  # a cut of 4 is inside the two bytes of é
    assert journal.read(tmp_path) == [fault("whole")]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (
            b'{"at":"2026-03-01T00:00:00Z","kind":"harness-fault"}',
            ":2: harness-fault.message: Field required",
        ),
        (b'{"at":"yesterday","kind":"harness-fault","message":""}', ":2: harness-fault.at: Input should be"),
        (b"not json", ":2: the line: Invalid JSON"),
        (b"", ":2: the line: Invalid JSON"),
        (b'{"kind":"harness-fault","message":"\xff"}', ":2: the line: Invalid JSON"),
        (b'{"kind":"nonsense"}', ":2: the line: Input tag 'nonsense'"),
    ],
)
def test_a_bad_line_is_named_by_file_line_and_key(tmp_path: Path, line: bytes, complaint: str) -> None:
    path = written(tmp_path, "one")
    path.write_bytes(path.read_bytes() + line + b"\n" + path.read_bytes())
    with pytest.raises(UsageError) as raised:
        journal.read(tmp_path)
    assert str(raised.value).startswith(f"{path}{complaint}")


def test_a_folder_without_a_run_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        journal.read(tmp_path)
    assert str(raised.value) == (
        f"{tmp_path}/events.ndjson: not the folder of a run (No such file or directory)"
    )


def test_secrets_never_reach_the_file(tmp_path: Path) -> None:
    kubeconfig = {"users": [{"user": {"token": TOKEN, "client-key-data": TOKEN}}]}
    secret = events.Evidence(title="kubeconfig", value=kubeconfig)
    event = events.CheckFinished(
        at=AT,
        check="a.py::b",
        requirements=["QTA-01"],
        result=Result.FAIL,
        seconds=1,
        message=f"kubectl --token={TOKEN} get pods",
        details=json.dumps(kubeconfig),
        evidence=[secret, events.Evidence(title="argv", value=["kubectl", "--password", TOKEN])],
    )
    log = journal.Journal(tmp_path)
    log.append(event)
    assert TOKEN not in log.path.read_text()
    (read,) = journal.read(tmp_path)
    assert isinstance(read, events.CheckFinished)
    assert read.message == "kubectl --token=[redacted] get pods"
    assert json.loads(read.details)["users"][0]["user"]["token"] == "[redacted]"
    assert read.evidence[0].value["users"][0]["user"] == {
        "token": "[redacted]",
        "client-key-data": "[redacted]",
    }
    assert read.evidence[1].value == ["kubectl", "--password", "[redacted]"]


def test_an_event_without_secrets_is_untouched(tmp_path: Path) -> None:
    value = {"a": None, "b": [1, 2.5, True], "c": {"é": ""}}
    event = events.CheckFinished(
        at=AT,
        check="a.py::b",
        requirements=[],
        result=Result.PASS,
        seconds=0.25,
        evidence=[events.Evidence(title="t", value=value)],
    )
    log = journal.Journal(tmp_path)
    log.append(event)
    assert log.path.read_text() == events.dump(event) + "\n"
