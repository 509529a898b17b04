"""Options that several commands share, and what they become."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from clusters.components import BuildSource, ComponentSource
from clusters.components.directory import DirectorySource
from clusters.interface import Profile
from clusters.local.provider import LocalProvider

DEFAULT_KUBERNETES = "v1.37.2"


class Output(enum.StrEnum):
    """How a listing is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


ProfileOption = Annotated[Profile, typer.Option("--profile", help="Which gates and API versions are on.")]
NodesOption = Annotated[
    int, typer.Option("--nodes", min=1, help="Real nodes, each with kubelet and containerd.")
]
SimulatedOption = Annotated[
    int, typer.Option("--simulated-nodes", min=0, help="Further nodes that exist only in the API.")
]
ComponentsOption = Annotated[
    Path | None,
    typer.Option("--components", help="Folder with Kubernetes' programs, prebuilt."),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print.")]


def provider(components: Path | None = None) -> LocalProvider:
    """The provider that the commands use; programs are built, or come from a folder as far as it has them."""
    source: ComponentSource = BuildSource()
    return LocalProvider(DirectorySource(components, rest=source) if components else source)


def version_of(kubernetes: str | None, components: Path | None) -> str:
    """The version to bring up: as asked, else what the prebuilt programs are, else the default."""
    if kubernetes:
        return kubernetes
    return DirectorySource(components).kubernetes_version() if components else DEFAULT_KUBERNETES
