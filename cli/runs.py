"""The commands about runs: plan, run, report."""

from __future__ import annotations

import os
import re
import secrets
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from fake_driver.config import Quirk

from cli.console import BringUpProgress, out, show
from cli.dry_run import dry_run as show_dry_run
from cli.existing import ContextOption, KubeconfigOption, chosen
from cli.options import (
    NodeImageOption,
    NodesOption,
    Output,
    OutputOption,
    ProviderName,
    ProviderOption,
    provider_for,
    require_of_use,
    version_of,
)
from cli.runner import Runner, RunRequest, new_run_id
from cli.sources import ComponentsOption, DownloadUrlOption, SourceOption, programs_from
from clusters import driver_chart
from clusters.interface import ClusterSpec, Profile
from harness.errors import UsageError
from harness.settings import results_root
from suites import checks
from suites import plan as planning
from suites.catalogue import load

TermsArgument = Annotated[
    list[str] | None,
    typer.Argument(help="Areas and requirement IDs: extended-resource, ER-10."),
]
SkipOption = Annotated[list[str] | None, typer.Option("--skip", help="Areas and IDs to leave out.")]
ClusterOption = Annotated[
    str | None, typer.Option("--cluster", help="Use this cluster, as it is, instead of bringing one up.")
]
KubernetesOption = Annotated[
    str | None, typer.Option("--kubernetes", help="Kubernetes version of the cluster to bring up.")
]

ProfileOption = Annotated[
    Profile | None,
    typer.Option("--profile", help="Profile of every cluster; by default one for each that checks need."),
]

_RUN_ID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
"""A folder's name, and the value of a label: every object that a run makes carries it."""


def plan(
    invocation: typer.Context,
    terms: TermsArgument = None,
    skip: SkipOption = None,
    cluster: ClusterOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    kubernetes: KubernetesOption = None,
    profile: ProfileOption = None,
    nodes: NodesOption = 2,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show which requirements would be checked, and why the others would not. Starts nothing."""
    require_of_use(invocation)
    load().select(terms or ())
    maker = provider_for(cluster, programs_from(None, None, None), ProviderName.LOCAL, None)
    with chosen(kubeconfig, context, cluster, new_run_id(), maker) as (where, name):
        if name is not None:
            target = planning.Target.of(where.attach(name))
        else:
            target = planning.Target(version_of(kubernetes, None), profile, nodes)
    planned = planning.make(load(), checks.collect(), terms or (), target, skip=skip or ())
    rows = [
        {
            "requirement": each.requirement,
            "level": each.level,
            "decision": each.decision or "run",
            "checks": len(each.checks) if output is Output.TABLE else each.checks,
            "reason": each.reason,
        }
        for each in planned
    ]
    show(rows, ["requirement", "level", "decision", "checks", "reason"], output)


def run(
    invocation: typer.Context,
    terms: TermsArgument = None,
    skip: SkipOption = None,
    cluster: ClusterOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster up afterwards.")] = False,
    kubernetes: KubernetesOption = None,
    profile: ProfileOption = None,
    nodes: NodesOption = 2,
    components: ComponentsOption = None,
    source: SourceOption = None,
    download_url: DownloadUrlOption = None,
    parallel: Annotated[
        int, typer.Option("--parallel", "-n", min=1, help="Checks at a time; default 3 per core, 8 at most.")
    ] = min(8, 3 * (os.cpu_count() or 1)),
    seed: Annotated[
        int | None, typer.Option(help="Seed of the order of the checks; default random, always printed.")
    ] = None,
    run_id: Annotated[str | None, typer.Option(help="Name of the results folder.")] = None,
    provider_name: ProviderOption = ProviderName.LOCAL,
    node_image: NodeImageOption = None,
    driver_image: Annotated[
        str | None,
        typer.Option(
            help="Run the bundled drivers in the cluster's pods, from this image (see `driver-image`)."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be created on the cluster of --kubeconfig.")
    ] = False,
    output: OutputOption = Output.TABLE,
    quirk: Annotated[
        list[Quirk] | None,
        typer.Option(help="Break every bundled driver on purpose, to see checks fail."),
    ] = None,
) -> None:
    """Run checks on a cluster and write the reports to results/<run id>/."""
    require_of_use(invocation)
    if output is not Output.TABLE and not dry_run:
        raise UsageError("--output: only with --dry-run; run.json and events.ndjson have what a run found")
    run_dir = new_run_dir(run_id)
    if driver_image is not None:
        if cluster is None and kubeconfig is None:
            raise UsageError(
                "--driver-image: expected --cluster or --kubeconfig too: its nodes have to have the image"
            )
        if dry_run:
            raise UsageError("--dry-run, --driver-image: what checks with drivers create is not listed")
        _require_pods_possible(driver_image)
    programs = programs_from(components, source, download_url)
    maker = provider_for(cluster, programs, provider_name, node_image)
    request = RunRequest(
        terms=terms or (),
        skip=skip or (),
        spec=ClusterSpec(
            name=f"run-{secrets.token_hex(3)}",
            kubernetes=version_of(kubernetes, components, node_image),
            nodes=nodes,
            ephemeral=not keep,
        ),
        cluster=cluster,
        profile=profile,
        keep=keep,
        seed=secrets.randbelow(2**31) if seed is None else seed,
        parallel=parallel,
        quirks=[str(each) for each in quirk or ()],
        driver_image=driver_image or "",
        command=["dra-harness", *sys.argv[1:]],
    )
    if dry_run and kubeconfig is None:
        raise UsageError("--dry-run: needs --kubeconfig; a cluster that the run brings up is its own")
    with chosen(kubeconfig, context, cluster, run_dir.name, maker) as (where, name):
        if dry_run and name is not None:
            show_dry_run(where.attach(name), run_dir.name, terms or (), skip or (), output)
            return
        code = Runner(replace(request, cluster=name), where, run_dir).run()
    raise typer.Exit(code)


def _require_pods_possible(image: str) -> None:
    """Check what drivers in pods need, and get Helm ready, before the checks all want it."""
    if ":" not in image.rpartition("/")[2]:
        raise UsageError(f"--driver-image {image}: expected a name with a tag")
    progress = BringUpProgress()
    try:
        driver_chart.helm(progress=progress.components)
    finally:
        progress.close()


def new_run_dir(run_id: str | None) -> Path:
    """The folder that a run will make.

    Raises:
        UsageError: the name can't be, or is taken.
    """
    if run_id is not None and not _RUN_ID.fullmatch(run_id):
        raise UsageError(
            f"--run-id {run_id!r}: expected at most 63 of letters, digits, -, _ and ., not at the ends"
        )
    run_dir = results_root() / (run_id or new_run_id())
    if run_dir.exists():
        raise UsageError(f"--run-id {run_dir.name}: {run_dir} exists")
    return run_dir


def report(
    run_dir: Annotated[Path, typer.Argument(help="Folder of a run, such as results/<run id>.")],
) -> None:
    """Write a run's reports again, from its events (or load.json) alone."""
    from reports import build, load_build, load_document

    loads = (run_dir / load_document.FILE_NAME).exists()
    for path in load_build.build(run_dir) if loads else build.build(run_dir):
        out.print(str(path), markup=False, soft_wrap=True)
