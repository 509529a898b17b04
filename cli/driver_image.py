"""`driver-image`: the bundled driver in a container."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from cli.console import BringUpProgress, out
from clusters.driver_image import build
from harness.errors import UsageError


def driver_image(
    output: Annotated[
        Path | None, typer.Option("--output", help="Where the archive goes; printed if not given.")
    ] = None,
) -> None:
    """Build the bundled driver's image as an OCI archive, without a container engine or a registry."""
    if output is not None and not output.absolute().parent.is_dir():
        raise UsageError(f"--output {output}: there is no folder {output.absolute().parent}")
    progress = BringUpProgress()
    try:
        image = build.ensure(progress.components)
    finally:
        progress.close()
    archive = image.archive
    if output is not None:
        archive = Path(shutil.copyfile(image.archive, output))
    size = archive.stat().st_size / 1e6
    out.print(f"{image.name}, {size:.0f} MB: {archive}", markup=False, soft_wrap=True)
