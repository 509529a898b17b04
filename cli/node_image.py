"""`node-image` and `docker`: what provider kind needs on a machine without a registry or a Docker daemon."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.console import BringUpProgress, out
from cli.options import DEFAULT_KUBERNETES
from cli.sources import DownloadUrlOption, SourceOption, released_from
from clusters.kind import daemon, docker
from clusters.kind import node_image as image

app = typer.Typer(help="A Docker daemon of the harness's own.", no_args_is_help=True)


def node_image(
    kubernetes: Annotated[
        str, typer.Option("--kubernetes", help="Kubernetes version, such as v1.37.2.")
    ] = DEFAULT_KUBERNETES,
    tag: Annotated[str | None, typer.Option("--tag", help="A further name for the image.")] = None,
    source: SourceOption = None,
    download_url: DownloadUrlOption = None,
) -> None:
    """Build a node image for kind, without a registry, and print its name."""
    programs = released_from(source, download_url)
    progress = BringUpProgress()
    try:
        built = image.ensure(programs, kubernetes, progress.components)
    finally:
        progress.close()
    if tag is not None:
        docker.run(["tag", built, tag])
    out.print(tag or built, markup=False, soft_wrap=True)


@app.command()
def up() -> None:
    """Start the daemon, unless it runs; prints where it listens."""
    daemon.up()
    out.print(f"export DOCKER_HOST=unix://{docker.own_socket()}", markup=False, soft_wrap=True)


@app.command()
def down(
    images: Annotated[bool, typer.Option("--images", help="Remove its images too.")] = False,
) -> None:
    """Stop the daemon and what runs on it, and take its network away."""
    if images:
        daemon.purge()
    else:
        daemon.down()
