"""Clusters that somebody else made: the options that name one, and the commands about it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from clusters.existing.provider import ExistingProvider
from clusters.interface import ClusterProvider
from harness.errors import UsageError

KubeconfigOption = Annotated[
    Path | None,
    typer.Option("--kubeconfig", help="Use the cluster of this kubeconfig, whoever made it."),
]
ContextOption = Annotated[
    str | None, typer.Option("--context", help="Context of the kubeconfig; default its current one.")
]


@contextlib.contextmanager
def chosen(
    kubeconfig: Path | None,
    context: str | None,
    cluster: str | None,
    run_id: str,
    otherwise: ClusterProvider,
) -> Iterator[tuple[ClusterProvider, str | None]]:
    """The provider that a run uses, and the name of the cluster that it is to attach to, if any.

    Args:
        kubeconfig: of a cluster that somebody else made.
        context: of the kubeconfig.
        cluster: a cluster of the harness's own that is up.
        run_id: of the run.
        otherwise: the provider, if no kubeconfig is given.

    Raises:
        UsageError: the options exclude each other, or the kubeconfig can't be used.
    """
    if kubeconfig is None:
        if context is not None:
            raise UsageError("--context: needs the --kubeconfig that has it")
        yield otherwise, cluster
        return
    if cluster is not None:
        raise UsageError("--kubeconfig, --cluster: expected one of them")
    with ExistingProvider(kubeconfig, context, run_id) as provider:
        yield provider, provider.cluster_name
