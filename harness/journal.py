"""`events.ndjson`: written by a run as it goes, read by every report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pydantic

from harness import events
from harness.errors import UsageError
from harness.redaction import redact_value

FILE_NAME = "events.ndjson"


class Journal:
    """Appends events to a run's `events.ndjson`. Lines are whole: one `write` in append mode each."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / FILE_NAME

    def append(self, event: events.Event) -> None:
        """Add one event, with secrets redacted."""
        redacted = type(event).model_validate(redact_value(event.model_dump(mode="json")))
        with self.path.open("a", encoding="utf-8") as file:
            file.write(events.dump(redacted) + "\n")


def read(run_dir: Path) -> list[events.Event]:
    """All events of a run, in order. A half-written last line (a killed run) is dropped.

    Raises:
        UsageError: if the folder holds no run, or a line that is no event.
    """
    path = run_dir / FILE_NAME
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: not the folder of a run ({error.strerror})") from error
    return list(_parse_lines(path, content))


def _parse_lines(path: Path, content: bytes) -> Iterator[events.Event]:
    lines = content.split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            yield events.parse(line)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            key = ".".join(str(part) for part in first["loc"]) or "the line"
            raise UsageError(f"{path}:{number}: {key}: {first['msg']}") from error
