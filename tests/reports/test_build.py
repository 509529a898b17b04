"""All file reports together, and the object in run.json."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness import events
from harness.errors import UsageError
from harness.events import Event, Evidence
from harness.results import Result
from reports.build import build

Recorded = Callable[[Path, Sequence[Event]], Path]


def built(run_dir: Path) -> dict[str, Any]:
    build(run_dir)
    document: dict[str, Any] = json.loads((run_dir / "run.json").read_text())
    return document


def test_reports_come_from_the_events_alone_and_are_the_same_each_time(
    every_result: list[Event], recorded: Recorded, tmp_path: Path
) -> None:
    run_dir = recorded(tmp_path / "one", every_result)
    paths = build(run_dir)
    first = {path.name: path.read_bytes() for path in paths}
    other_dir = tmp_path / "two"
    other_dir.mkdir()
    shutil.copy(run_dir / "events.ndjson", other_dir)

    assert {path.name: path.read_bytes() for path in build(run_dir)} == first
    assert {path.name: path.read_bytes() for path in build(other_dir)} == first
    assert set(first) == {"junit.xml", "report.html", "run.json"}


def test_run_json_is_one_versioned_object(
    every_result: list[Event], recorded: Recorded, tmp_path: Path
) -> None:
    document = built(recorded(tmp_path / "run", every_result))

    assert (document["apiVersion"], document["kind"]) == ("dra-harness/v1", "Run")
    assert document["verdict"]["exitCode"] == 1
    assert document["verdict"]["result"] == "failed"
    assert document["counts"]["checks"] == {
        "fail": 1,
        "error": 1,
        "unfinished": 1,
        "expected-fail": 1,
        "pass": 5,
    }
    assert document["counts"]["requirements"]["blocked"] == 3
    assert document["suite"]["seed"] == 42
    assert document["suite"]["commit"] == "5d41402abc4b2a76b9719d911017c592"
    (cluster,) = document["environment"]["clusters"]
    assert (cluster["kubernetes"], cluster["upSeconds"], cluster["downSeconds"]) == ("v1.37.2", 21.4, 3.2)
    assert list(cluster["phaseSeconds"]) == ["certificates", "etcd", "kube-apiserver", "nodes", "slices"]
    requirement = next(item for item in document["requirements"] if item["id"] == "QTA-02")
    assert requirement["result"] == "unfinished"
    assert requirement["checks"] == [
        "suites/quota/test_quota.py::test_charge",
        "suites/quota/test_quota.py::test_special",
    ]
    known = next(item for item in document["checks"] if item["result"] == "expected-fail")
    assert known["issues"] == ["https://github.com/kubernetes/kubernetes/issues/141103"]


def test_run_json_has_the_checksum_of_every_other_file(
    every_result: list[Event], recorded: Recorded, tmp_path: Path
) -> None:
    run_dir = recorded(tmp_path / "run", every_result)
    (run_dir / "artifacts").mkdir()
    (run_dir / "artifacts" / "pod.yaml").write_bytes(b"kind: Pod\n")
    (run_dir / "artifacts" / "link").symlink_to("/etc/hostname")

    artifacts = built(run_dir)["artifacts"]

    assert set(artifacts) == {"artifacts/pod.yaml", "events.ndjson", "junit.xml", "report.html"}
    for name, value in artifacts.items():
        assert value == "sha256:" + hashlib.sha256((run_dir / name).read_bytes()).hexdigest()


def test_killed_run_is_reported_as_incomplete(
    small_run: Callable[..., list[Event]], recorded: Recorded, tmp_path: Path
) -> None:
    run_dir = recorded(tmp_path / "run", small_run([Result.PASS], exit_code=None))
    with (run_dir / "events.ndjson").open("a") as file:
        file.write('{"kind":"check-fin')

    document = built(run_dir)

    assert document["finishedAt"] is None
    assert document["verdict"] == {
        "result": "incomplete",
        "exitCode": 3,
        "reasons": ["the run did not finish"],
    }
    assert "incomplete" in (run_dir / "report.html").read_text()


def test_folder_without_a_run_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"events\.ndjson"):
        build(tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_nothing_of_the_environment_and_no_secret_gets_into_a_report(
    small_run: Callable[..., list[Event]],
    recorded: Recorded,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("CANARY", "HOME", "USER", "HOSTNAME", "KUBECONFIG"):
        monkeypatch.setenv(name, "canary-of-the-environment")
    log = small_run([Result.FAIL])
    check = next(event for event in log if isinstance(event, events.CheckFinished))
    token = "Bearer abcdefgh.secret-of-a-token"
    log[log.index(check)] = check.model_copy(
        update={"message": f"sent {token}", "evidence": [Evidence(title="header", value={"auth": token})]}
    )

    paths = build(recorded(tmp_path / "run", log))

    for path in paths:
        text = path.read_text()
        assert "canary-of-the-environment" not in text
        assert "secret-of-a-token" not in text
        assert str(tmp_path) not in text
