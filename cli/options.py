"""Options that several commands share, and what they become."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from clusters import providers
from clusters.components import ComponentSource, DirectorySource
from clusters.interface import ClusterProvider, Profile
from clusters.kind.provider import KindProvider, image_version
from clusters.local.provider import LocalProvider
from harness.errors import UsageError

DEFAULT_KUBERNETES = "v1.37.2"


class ProviderName(enum.StrEnum):
    """What makes a cluster."""

    LOCAL = "local"
    """Plain processes on this machine."""
    KIND = "kind"
    """Containers of Docker, made by kind."""


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
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print.")]


ProviderOption = Annotated[
    ProviderName,
    typer.Option("--provider", help="What makes the cluster: processes of this machine, or kind and Docker."),
]
NodeImageOption = Annotated[
    str | None,
    typer.Option("--node-image", help="Node image for kind; by default one is built (see `node-image`)."),
]

_OF_A_NEW_CLUSTER = frozenset(
    {
        "--kubernetes",
        "--profile",
        "--gates",
        "--nodes",
        "--simulated-nodes",
        "--components",
        "--source",
        "--download-url",
        "--provider",
        "--node-image",
    }
)
"""Options of `plan`, `run` and `load` that say what cluster is to be brought up."""


def require_of_use(invocation: typer.Context) -> None:
    """Check that no option of a new cluster was given together with one that names a cluster.

    A cluster that is there stays as it is: who asks for another version must not believe to have got it.

    Raises:
        UsageError: naming the options that are of no use.
    """
    given = [each.opts[0] for each in invocation.command.params if _was_given(invocation, each.name)]
    named = [option for option in given if option in {"--cluster", "--kubeconfig"}]
    useless = [option for option in given if option in _OF_A_NEW_CLUSTER]
    if named and useless:
        raise UsageError(f"{', '.join(useless)}: only for a cluster that is brought up, not with {named[0]}")


def _was_given(invocation: typer.Context, parameter: str | None) -> bool:
    source = invocation.get_parameter_source(parameter) if parameter else None
    return source is not None and source.name == "COMMANDLINE"


def provider(
    source: ComponentSource, name: ProviderName = ProviderName.LOCAL, node_image: str | None = None
) -> ClusterProvider:
    """The provider that makes a cluster, of programs that the source gives.

    Raises:
        UsageError: a node image is given for a provider that has none.
    """
    if name is ProviderName.KIND:
        return KindProvider(source, node_image)
    if node_image is not None:
        raise UsageError("--node-image: only provider kind has node images; add --provider kind")
    return LocalProvider(source)


def provider_for(
    cluster: str | None, source: ComponentSource, name: ProviderName, node_image: str | None
) -> ClusterProvider:
    """The provider of the cluster that is named, or else of the one to be made."""
    return provider(source, name, node_image) if cluster is None else providers.having(cluster)


def require_new_name(name: str) -> None:
    """Refuse the name of a cluster that there is: commands find a cluster by its name alone."""
    if any(cluster.name == name for each in providers.every() for cluster in each.list()):
        raise UsageError(
            f"a cluster named {name!r} exists; choose another name, or first `dra-harness down {name}`"
        )


def version_of(kubernetes: str | None, components: Path | None, node_image: str | None = None) -> str:
    """The version to bring up: as asked, else what the node image or the prebuilt programs are, else ours.

    Raises:
        UsageError: another version is asked for than the node image has.
    """
    if node_image is not None:
        has = image_version(node_image)
        if kubernetes not in {None, has}:
            raise UsageError(f"--kubernetes {kubernetes}: the node image {node_image} has {has}")
        return has
    if kubernetes:
        return kubernetes
    return DirectorySource(components).kubernetes_version() if components else DEFAULT_KUBERNETES
