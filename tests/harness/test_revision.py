from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness import revision


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_a_checkout_says_its_commit_and_whether_it_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revision, "__file__", str(tmp_path / "revision.py"))
    assert revision.revision() == revision.Revision(None, False)

    git(tmp_path, "init", "--quiet")
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert revision.revision() == revision.Revision(commit, False)

    (tmp_path / "a").write_text("2")
    assert revision.revision() == revision.Revision(commit, True)
