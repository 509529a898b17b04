"""The commands about load: load, compare."""

from __future__ import annotations

import contextlib
import json
import secrets
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
import yaml

from cli.console import BringUpProgress, err, out
from cli.existing import ContextOption, KubeconfigOption, chosen
from cli.load_worker import KeyOption, PortOption, reception, require_web_port
from cli.options import (
    NodeImageOption,
    Output,
    OutputOption,
    ProviderName,
    ProviderOption,
    provider_for,
    require_of_use,
    version_of,
)
from cli.runs import new_run_dir
from cli.sources import ComponentsOption, DownloadUrlOption, SourceOption, programs_from
from clusters.interface import ClusterSpec, Profile
from harness.errors import UsageError
from harness.events import PlannedRequirement
from load.request import LimitSet, LoadRequest, Size
from reports import load_build, load_console, load_document, load_html
from suites import catalogue

SidesHelp = "a run's folder, a folder that holds runs, or a pattern such as 'results/base-*'"


def load(
    invocation: typer.Context,
    profile: Annotated[str, typer.Argument(help="Name of a load profile, or the path of a YAML file.")],
    size: Annotated[
        Size, typer.Option(help="How much load: S for two cores, M for eight and more.")
    ] = Size.S,
    limits: Annotated[
        LimitSet | None,
        typer.Option(help="Client-side limits of controller manager and scheduler; default the profile's."),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="Use this cluster, as it is, instead of bringing one up.")
    ] = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster up afterwards.")] = False,
    kubernetes: Annotated[
        str | None, typer.Option("--kubernetes", help="Kubernetes version of the cluster to bring up.")
    ] = None,
    gates: Annotated[
        Profile, typer.Option("--gates", help="Which gates and API versions the cluster has.")
    ] = Profile.GA,
    nodes: Annotated[
        int | None, typer.Option("--nodes", min=1, help="Real nodes; default the profile's.")
    ] = None,
    simulated_nodes: Annotated[
        int | None, typer.Option("--simulated-nodes", min=0, help="Simulated nodes; default the profile's.")
    ] = None,
    components: ComponentsOption = None,
    source: SourceOption = None,
    download_url: DownloadUrlOption = None,
    seconds: Annotated[
        float | None, typer.Option(min=1, help="Length of the measured part; default the profile's.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Offered pods/s; default the profile's.")] = None,
    arm: Annotated[list[str] | None, typer.Option("--arm", help="Only these arms of a sweep.")] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, max=64, help="Generator processes on this machine; default 1.")
    ] = None,
    expect_workers: Annotated[
        int | None,
        typer.Option(
            min=1, max=256, help="Workers that come from elsewhere (`load-worker`) and send instead."
        ),
    ] = None,
    workers_wait: Annotated[
        float, typer.Option(min=1, help="Seconds within which all of them have to be there.")
    ] = 300.0,
    bind: Annotated[
        str, typer.Option(help="Address on which workers are awaited. Locust's traffic is not encrypted.")
    ] = "127.0.0.1",
    bind_port: PortOption = 5557,
    key: KeyOption = None,
    web: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Serve Locust's web UI on this port of loopback.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the arrivals; default random, always printed.")
    ] = None,
    run_id: Annotated[str | None, typer.Option(help="Name of the results folder.")] = None,
    provider_name: ProviderOption = ProviderName.LOCAL,
    node_image: NodeImageOption = None,
) -> None:
    """Put a cluster under load: PASS (0), FAIL (1) or INVALID (3), with reports in results/<run id>/."""
    from load.live import LiveView
    from load.runner import run

    require_of_use(invocation)
    if expect_workers is not None and processes is not None:
        raise UsageError("--processes with --expect-workers: expected one of them; workers run elsewhere")
    programs = programs_from(components, source, download_url)
    maker = provider_for(cluster, programs, provider_name, node_image)
    if web is not None:
        require_web_port(web)
    request = LoadRequest(
        profile=profile,
        run_dir=new_run_dir(run_id),
        seed=secrets.randbelow(2**31) if seed is None else seed,
        spec=ClusterSpec(
            name=f"load-{secrets.token_hex(3)}",
            kubernetes=version_of(kubernetes, components, node_image),
            profile=gates,
            ephemeral=not keep,
        ),
        size=size,
        limits=limits,
        cluster=cluster,
        keep=keep,
        nodes=nodes,
        simulated_nodes=simulated_nodes,
        seconds=seconds,
        rate=rate,
        arms=tuple(arm or ()),
        processes=expect_workers or processes or 1,
        workers_wait=workers_wait,
        web=web,
        command=("dra-harness", *sys.argv[1:]),
    )
    name = request.run_dir.name
    with (
        chosen(kubeconfig, context, cluster, name, maker) as (where, attach_to),
        LiveView(err, BringUpProgress()) as view,
        contextlib.ExitStack() as stack,
    ):
        if web is not None:
            view.said(f"Locust's web UI, while there is load: http://127.0.0.1:{web}")
        crew = None
        if expect_workers is not None:
            crew = stack.enter_context(reception(expect_workers, bind, bind_port, key, view.said))
        result = run(replace(request, cluster=attach_to), where, view, describe=_describe, crew=crew)
    load_build.build(request.run_dir)
    load_console.print_run(out, load_document.read(request.run_dir), request.run_dir)
    raise typer.Exit(result.verdict.exit_code)


def _describe(name: str) -> PlannedRequirement:
    """What the catalogue says about a requirement that a profile measures."""
    found = catalogue.load().get(name)
    return PlannedRequirement(
        requirement=found.id,
        level=found.level,
        owner=found.owner_letters,
        text=found.text,
        source=found.source_line,
        area=found.area,
    )


def compare(
    baseline: Annotated[str, typer.Argument(help=f"The runs before: {SidesHelp}.")],
    candidate: Annotated[str, typer.Argument(help="The runs after, named alike.")],
    allow: Annotated[
        list[str] | None,
        typer.Option(
            help="Facts that are meant to differ, such as `kubernetes`; separate several by commas."
        ),
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Folder for comparison.json and comparison.html.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare load runs before and after a change: no regression (0), regression (1), not comparable (3)."""
    from load import compare as comparing
    from load.result import runs_of

    before, after = runs_of(baseline), runs_of(candidate)
    keys = [key for each in allow or () for key in each.split(",") if key]
    result = comparing.compare(before, after, allow=keys, seed=seed)
    document = result.model_dump(mode="json")
    if save is not None:
        _save(document, save)
    if output is Output.JSON:
        out.print_json(json.dumps(document))
    elif output is Output.YAML:
        out.print(yaml.safe_dump(document, sort_keys=False), markup=False, soft_wrap=True)
    else:
        load_console.print_comparison(out, document)
    raise typer.Exit(result.outcome.exit_code)


def _save(document: load_document.Json, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / load_document.COMPARISON).write_text(
            json.dumps(document, indent=1) + "\n", encoding="utf-8"
        )
        load_html.write_comparison(document, folder)
    except OSError as error:
        raise UsageError(f"--save {folder}: can't be written: {error.strerror}") from error
