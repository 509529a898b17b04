"""The command `preflight`: what a cluster of somebody else's has, and what would be checked there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.console import show
from cli.existing import ContextOption
from cli.options import Output, OutputOption
from cli.runner import new_run_id
from clusters.existing.facts import Facts
from clusters.existing.provider import ExistingProvider
from clusters.existing.rights import Right
from clusters.profiles import minor
from harness.errors import ExitCode
from harness.events import PlannedRequirement
from suites import checks, plan
from suites.catalogue import load

Row = Mapping[str, Any]

_OK, _UNKNOWN, _BLOCKED = "ok", "unknown", "blocked"


def preflight(
    kubeconfig: Annotated[Path, typer.Option("--kubeconfig", help="Kubeconfig of the cluster.")],
    context: ContextOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what a cluster has and what would be checked there, and change nothing; exits 3 if nothing can."""
    with ExistingProvider(kubeconfig, context, new_run_id()) as provider:
        facts, lacking = provider.facts(), provider.missing_rights()
        target, server = plan.Target.of(provider.handle(facts)), provider.server
    planned = plan.make(load(), checks.collect(), (), target)
    rows = [*_cluster(facts, server), _rights(lacking), *_areas(planned)]
    show(rows, ["subject", "state", "found"], output)
    if lacking or not facts.serves_claims or not any(each.decision is None for each in planned):
        raise typer.Exit(ExitCode.BLOCKED)


def _row(subject: str, state: str, found: str) -> Row:
    return {"subject": subject, "state": state, "found": found}


def _cluster(facts: Facts, server: str) -> Iterator[Row]:
    yield _row("server", _OK, f"{facts.kubernetes} at {server}")
    yield _row("user", _OK, facts.user)
    yield _gates(facts)
    versions = ", ".join(facts.api_versions)
    yield _row("resource.k8s.io", _OK if facts.serves_claims else _BLOCKED, versions or "not served")
    ill = f"; not Ready: {', '.join(facts.nodes_not_ready)}" if facts.nodes_not_ready else ""
    if facts.nodes_tainted:
        ill += f"; keeping pods away: {', '.join(facts.nodes_tainted)}"
    simulated = f"; {facts.simulated_nodes} exist only in the API" if facts.simulated_nodes else ""
    yield _row("nodes", _OK if facts.nodes else _BLOCKED, f"{len(facts.nodes)} Ready{simulated}{ill}")
    if facts.drivers is None:
        yield _row("drivers", _UNKNOWN, "ResourceSlices can't be listed")
    else:
        found = ", ".join(f"{name} ({count} slices)" for name, count in facts.drivers.items())
        yield _row("drivers", _OK, found or "none has published a ResourceSlice")


def _gates(facts: Facts) -> Row:
    if facts.gates is None:
        return _row("gates", _UNKNOWN, "the API server's /metrics can't be read")
    known = {name: on for name, on in facts.gates.items() if name.startswith("DRA")}
    on, off = ([name for name, is_on in known.items() if is_on is wanted] for wanted in (True, False))
    found = f"profile {facts.profile}; on: {', '.join(on) or 'none'}; off: {', '.join(off) or 'none'}"
    return _row(
        "gates", _OK, f"{found} (of the API server; 1.{minor(facts.kubernetes)} may have locked some)"
    )


def _rights(lacking: Sequence[Right]) -> Row:
    if not lacking:
        return _row("rights", _OK, "all that a run needs")
    return _row("rights", _BLOCKED, f"the user may not: {', '.join(map(str, lacking))}")


def _areas(planned: Sequence[PlannedRequirement]) -> Iterator[Row]:
    for area in dict.fromkeys(each.area for each in planned):
        own = [each for each in planned if each.area == area and each.decision != "not-covered"]
        if not own:
            continue
        run = [each for each in own if each.decision is None]
        reasons = dict.fromkeys(each.reason for each in own if each.decision is not None)
        parts = [f"{len(run)} of {len(own)} requirements with checks can be looked at"]
        for reason in reasons:
            names = [each.requirement for each in own if each.reason == reason]
            parts.append(f"{_span(names)}: {reason}")
        yield _row(f"area {area}", _OK if run else _BLOCKED, "; ".join(parts))


def _span(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
