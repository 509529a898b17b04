"""Options that say where the programs of a new cluster come from, and what they become."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from clusters.components import (
    AutoSource,
    BuildSource,
    ComponentSource,
    DirectorySource,
    DownloadSource,
)
from harness.errors import UsageError
from harness.settings import component_source


class Source(enum.StrEnum):
    """Where Kubernetes' programs come from."""

    AUTO = "auto"
    """The cache, then a download if the server answers, then a build."""
    BUILD = "build"
    DOWNLOAD = "download"


ComponentsOption = Annotated[
    Path | None,
    typer.Option("--components", help="Folder with Kubernetes' programs, prebuilt."),
]
SourceOption = Annotated[
    Source | None,
    typer.Option(
        "--source",
        help="Where Kubernetes' programs come from; auto takes the cache, else a download, else a build."
        " Default auto, or $DRA_HARNESS_SOURCE.",
    ),
]
DownloadUrlOption = Annotated[
    str | None,
    typer.Option(
        "--download-url",
        help="Server of the releases, or a mirror. Default https://dl.k8s.io, or $DRA_HARNESS_DOWNLOAD_URL.",
    ),
]


def programs_from(
    components: Path | None, source: Source | None, download_url: str | None
) -> ComponentSource:
    """Where the programs of a new cluster come from, as the options say.

    Raises:
        UsageError: for options that contradict each other, and a source or URL that can't be.
    """
    if components is None:
        return released_from(source, download_url)
    if source is not None or download_url is not None:
        raise UsageError("--components says where Kubernetes' programs are: no --source or --download-url")
    return DirectorySource(components, rest=BuildSource())


def released_from(
    source: Source | None, download_url: str | None
) -> AutoSource | BuildSource | DownloadSource:
    """`programs_from` for released versions: without a folder."""
    chosen = source or _default_source()
    build = BuildSource()
    if chosen is Source.BUILD:
        if download_url is not None:
            raise UsageError("--download-url: nothing is downloaded with --source build")
        return build
    download = DownloadSource(build, download_url)
    return download if chosen is Source.DOWNLOAD else AutoSource(build, download)


def _default_source() -> Source:
    name = component_source()
    try:
        return Source(name)
    except ValueError:
        raise UsageError(f"DRA_HARNESS_SOURCE {name!r}: expected one of {', '.join(Source)}") from None
