"""`events.ndjson`: written by a run as it goes, read by every report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pydantic

from harness import events
from harness.errors import UsageError
from harness.redaction import redact

FILE_NAME = "events.ndjson"


class Journal:
    """Appends events to a run's `events.ndjson`. Lines are whole: one `write` in append mode each."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / FILE_NAME

    def append(self, event: events.Event) -> None:
        """Add one event, with secrets redacted."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(redact(events.dump(event)) + "\n")


def read(run_dir: Path) -> list[events.Event]:
    """All events of a run, in order. A half-written last line (a killed run) is dropped.

    Raises:
        UsageError: if the folder holds no run, or a line that is no event.
    """
    path = run_dir / FILE_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: not the folder of a run ({error.strerror})") from error
    return list(_parse_lines(path, text))


def _parse_lines(path: Path, text: str) -> Iterator[events.Event]:
    lines = text.split("\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            yield events.parse(line)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            key = ".".join(str(part) for part in first["loc"])
            raise UsageError(f"{path}:{number}: {key}: {first['msg']}") from error
