"""Clusters that somebody else made: the options that name one, and the commands about it."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
import yaml

from cli.console import err, out, show
from cli.options import Output, OutputOption
from clusters.existing import clean as cleaning
from clusters.existing import rights
from clusters.existing.provider import ExistingProvider, forget_killed, killed
from clusters.existing.reach import explained, user
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


def rbac(
    name: Annotated[str, typer.Option(help="Name of the user's three objects.")] = "dra-harness",
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace of the ServiceAccount; it has to be there.")
    ] = "default",
) -> None:
    """Print a user with just the rights that `run` needs on somebody else's cluster, for kubectl apply."""
    documents = yaml.safe_dump_all(rights.manifest(name, namespace), sort_keys=False)
    out.print(documents.rstrip(), markup=False, soft_wrap=True)


def clean(
    kubeconfig: Annotated[Path, typer.Option("--kubeconfig", help="Kubeconfig of the cluster.")],
    context: ContextOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Remove what dead runs left on a cluster of somebody else's: what carries the label of a run."""
    with ExistingProvider(kubeconfig, context, f"clean-{secrets.token_hex(3)}") as provider:
        kube = provider.connect()
        with explained(kube.server):
            user(kube)  # whoever is nobody sees nothing, and what is no API server has nothing to clean
            litter = cleaning.look(kube, killed())
            if not dry_run:
                cleaning.remove(kube, litter)
                forget_killed(each.run for each in litter.dead)
    state = "would be removed" if dry_run else "removed"
    rows = [{"run": each.run, "object": str(each), "state": state} for each in litter.dead]
    rows += [{"run": run, "object": "", "state": "alive, left alone"} for run in litter.alive]
    show(rows, ["run", "object", "state"], output)
    if litter.unseen:
        kinds = ", ".join(litter.unseen)
        message = f"not looked at, since the user may not list them: {kinds}"
        err.print(message, markup=False, soft_wrap=True)
