"""All file reports of a load run: rebuilt from its `load.json` alone."""

from __future__ import annotations

from pathlib import Path

from reports import load_document, load_html, load_junit


def build(run_dir: Path) -> list[Path]:
    """Write every file report of a load run into its folder, over any earlier one; return their paths.

    Raises:
        UsageError: if the folder holds no load run.
    """
    run = load_document.read(run_dir)
    return [writer(run, run_dir) for writer in (load_junit.write, load_html.write)]
