"""`run --dry-run`: every object that a run would create on somebody else's cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cli.console import err, show
from cli.options import Output
from clusters.existing.presence import LEASE, namespace_of
from clusters.interface import Cluster
from suites import checks, footprint, plan
from suites.catalogue import load

_NOTE = (
    "Checks create nothing else: they are held to this list. It leaves out what the cluster's own controllers"
    " make of these objects, in these namespaces (events, default service accounts, root certificates), and"
    " what is sent with dryRun and never stored. <n> is a number that shows only then."
)


def dry_run(cluster: Cluster, run_id: str, terms: Sequence[str], skip: Sequence[str], output: Output) -> None:
    """Print what a run of this id would create, and create nothing.

    Raises:
        UsageError: a term is neither an area nor an ID.
    """
    rows = list(_rows(cluster, run_id, terms, skip))
    show(rows, ["check", "kind", "namespace", "name"], output)
    if output is Output.TABLE:
        names = f"The names are those of a run with --run-id {run_id}."
        err.print(f"\n{_NOTE}\n{names}", markup=False, soft_wrap=True)


def _rows(
    cluster: Cluster, run_id: str, terms: Sequence[str], skip: Sequence[str]
) -> Iterator[dict[str, Any]]:
    target = plan.Target.of(cluster)
    collected = checks.collect()
    planned = plan.make(load(), collected, terms, target, skip=skip)
    ids = set(plan.to_run(planned))
    namespace = namespace_of(run_id)
    for obj in (f"namespaces/{namespace}", f"leases/{namespace}/{LEASE}"):
        yield _row("the run itself", "", obj)
    for check in collected:
        if check.id in ids and not (check.driver and target.no_driver):
            area = load().get(check.requirements[0]).area
            for obj in footprint.of_run(check.id, run_id):
                yield _row(check.id, area, obj)


def _row(check: str, area: str, obj: str) -> dict[str, Any]:
    kind, *namespace, name = obj.split("/")
    return {
        "check": check,
        "area": area,
        "kind": kind,
        "namespace": namespace[0] if namespace else "",
        "name": name,
    }
