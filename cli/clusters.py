"""The commands about clusters: up, down, list, status, logs, kubeconfig."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from cli.console import BringUpProgress, out, show
from cli.options import (
    NodeImageOption,
    NodesOption,
    Output,
    OutputOption,
    ProfileOption,
    ProviderName,
    ProviderOption,
    SimulatedOption,
    provider,
    require_new_name,
    version_of,
)
from cli.sources import ComponentsOption, DownloadUrlOption, SourceOption, programs_from
from clusters import providers
from clusters.existing.provider import sweep as sweep_copies
from clusters.interface import Cluster, ClusterProvider, ClusterSpec, Profile
from harness.errors import HarnessError, UsageError

NameArgument = Annotated[str, typer.Argument(help="Name of the cluster.")]


def up(
    name: NameArgument = "default",
    kubernetes: Annotated[
        str | None, typer.Option("--kubernetes", help="Kubernetes version, such as v1.37.2.")
    ] = None,
    profile: ProfileOption = Profile.GA,
    nodes: NodesOption = 2,
    simulated_nodes: SimulatedOption = 0,
    components: ComponentsOption = None,
    source: SourceOption = None,
    download_url: DownloadUrlOption = None,
    inventory: Annotated[
        Path | None, typer.Option(help="Inventory profile (YAML) of the bundled driver.")
    ] = None,
    port: Annotated[int, typer.Option(help="Port of the API server; 0 takes a free one.")] = 0,
    provider_name: ProviderOption = ProviderName.LOCAL,
    node_image: NodeImageOption = None,
) -> None:
    """Bring a cluster up on this machine, with the bundled driver on every node."""
    programs = programs_from(components, source, download_url)
    maker = provider(programs, provider_name, node_image)
    require_new_name(name)
    spec = ClusterSpec(
        name=name,
        kubernetes=version_of(kubernetes, components, node_image),
        profile=profile,
        nodes=nodes,
        simulated_nodes=simulated_nodes,
        inventory=inventory,
        port=port,
    )
    progress = BringUpProgress()
    try:
        cluster = maker.up(spec, progress)
    finally:
        progress.close()
    count = f"{len(cluster.nodes)} nodes" + (f" and {simulated_nodes} simulated" if simulated_nodes else "")
    out.print(f"cluster {cluster.name} is up: {cluster.kubernetes}, {count}", markup=False)
    out.print(f"export KUBECONFIG={cluster.kubeconfig}", markup=False, soft_wrap=True)


def down(
    name: Annotated[str | None, typer.Argument(help="Name of the cluster.")] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Every cluster, and whatever killed runs left behind.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also clusters that a running command uses.")
    ] = False,
) -> None:
    """Take a cluster down; nothing of it stays."""
    if (name is None) == (not all_):
        raise UsageError("down: expected the name of a cluster, or --all")
    if name is not None:
        _take_down(name, force=force)
        return
    sweep_copies()
    failed = []
    for each in providers.every():
        try:
            each.sweep()
        except HarnessError as error:
            failed.append(error)
        for cluster in each.list():
            try:
                _take_down(cluster.name, force=force)
            except HarnessError as error:
                if cluster.id in [left.id for left in each.list()]:  # else another command has removed it
                    failed.append(error)
    if failed:
        raise type(failed[0])("; ".join(map(str, failed)))


def _take_down(name: str, *, force: bool) -> None:
    started = time.monotonic()
    providers.having(name).down(name, force=force)
    out.print(f"cluster {name} is gone ({time.monotonic() - started:.1f} s)", markup=False)


def list_(output: OutputOption = Output.TABLE) -> None:
    """List the clusters on this machine."""
    rows = [_row(each, cluster) for each in providers.every() for cluster in each.list()]
    show(
        rows,
        ["name", "provider", "kubernetes", "profile", "nodes", "simulated", "state", "kubeconfig"],
        output,
    )


def _row(its: ClusterProvider, cluster: Cluster) -> dict[str, object]:
    return {
        "name": cluster.name,
        "provider": cluster.provider,
        "kubernetes": cluster.kubernetes,
        "profile": cluster.profile.value,
        "nodes": len(cluster.nodes),
        "simulated": cluster.simulated_nodes,
        "state": _state(its, cluster),
        "kubeconfig": str(cluster.kubeconfig),
    }


def _state(its: ClusterProvider, cluster: Cluster) -> str:
    if not cluster.seconds:
        return "incomplete"
    try:
        there = any(each.pid for each in its.status(cluster.name))
    except UsageError:  # another command has removed it
        there = False
    return "up" if there else "gone"


def status(name: NameArgument = "default", output: OutputOption = Output.TABLE) -> None:
    """Show the processes of a cluster; exits 3 if one is missing."""
    rows = [
        {"component": each.component, "pid": each.pid or "gone", "log": str(each.log)}
        for each in providers.having(name).status(name)
    ]
    show(rows, ["component", "pid", "log"], output)
    if any(row["pid"] == "gone" for row in rows):
        raise typer.Exit(3)


def logs(
    component: Annotated[str, typer.Argument(help="A component as `status` has it: kubelet/node-1.")],
    name: Annotated[str, typer.Option("--cluster", help="Name of the cluster.")] = "default",
    tail: Annotated[int, typer.Option(min=0, help="Only so many last lines; 0 prints everything.")] = 0,
) -> None:
    """Print a component's log."""
    its = providers.having(name)
    its.collect_logs(name)
    known = {each.component: each.log for each in its.status(name)}
    if component not in known:
        raise UsageError(f"{component!r}: no component of {name}; there are: {', '.join(known)}")
    try:
        lines = known[component].read_text(errors="replace").splitlines()
    except FileNotFoundError:
        raise UsageError(f"{component}: no log yet; it was never started") from None
    out.print("\n".join(lines[-tail:]), markup=False, soft_wrap=True)


def kubeconfig(name: NameArgument = "default") -> None:
    """Print the path of a cluster's admin kubeconfig."""
    out.print(str(providers.having(name).attach(name).kubeconfig), markup=False, soft_wrap=True)
