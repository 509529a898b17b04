"""The image of the load, as far as no container engine is needed."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_what_git_ignores_does_not_get_into_the_image() -> None:
    """A virtual environment of the machine would take the place of the image's own."""
    ignored, kept_out = (
        {line.strip("/").removeprefix("**/") for line in (ROOT / name).read_text().splitlines()}
        for name in (".gitignore", ".dockerignore")
    )
    assert ignored | {".git"} <= kept_out
    assert "COPY . " in (ROOT / "load/deploy/Containerfile").read_text()
