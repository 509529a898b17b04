"""Runs checks under mutants and says which were killed."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clusters.components import BuildSource
from clusters.interface import Cluster, ClusterSpec, Profile, SilentProgress
from clusters.local.provider import LocalProvider
from harness import events, journal
from harness.results import Result
from mutants.changes import Mutant
from mutants.proxy import disguise
from mutants.table import matching
from suites import engine
from suites.checks import Check
from suites.sweep import sweep

_SIDE_BY_SIDE = 4
"""Mutants at a time: checks that fail mostly wait for what never comes."""

Gates = tuple[tuple[str, bool], ...]


@dataclass(frozen=True)
class Job:
    """Checks to run under one mutant on one cluster."""

    mutant: Mutant
    profile: Profile
    gates: Gates
    checks: tuple[Check, ...]

    @property
    def alone(self) -> bool:
        """Whether a check of it changes the cluster for everybody."""
        return any(check.exclusive for check in self.checks)


@dataclass(frozen=True)
class Verdict:
    """What a mutant did to one check."""

    mutant: str
    check: Check
    result: Result
    message: str
    wanted: bool
    """Whether it must kill the check; else it may (a neighbour) or must not (`stray`)."""
    stray: bool = False

    @property
    def killed(self) -> bool:
        """Whether the check noticed: by failing, not by an error of the harness."""
        return self.result is Result.FAIL


def jobs(mutants: Iterable[Mutant], checks: Sequence[Check], *, area: bool = False) -> list[Job]:
    """Share the checks of each mutant out to clusters.

    Args:
        mutants: those to run.
        checks: all checks.
        area: run a driver's mutant against all checks of the areas that it breaks, to see what else fails.
    """
    made = []
    for mutant in mutants:
        wanted = matching(checks, [*mutant.kills, *mutant.neighbours])
        if area and mutant.quirks:
            areas = {check.id.split("/")[0] for check in wanted}
            wanted = [check for check in checks if check.id.split("/")[0] in areas and not check.exclusive]
        by_cluster: dict[tuple[Profile, Gates, bool], list[Check]] = {}
        for check in wanted:
            gates = tuple(sorted((dict(check.gates) | dict(mutant.gates)).items()))
            by_cluster.setdefault((check.profile, gates, check.exclusive), []).append(check)
        for (profile, gates, _), members in by_cluster.items():
            made.append(Job(mutant, profile, gates, tuple(members)))
    return made


def run(all_jobs: Sequence[Job], results: Path, kubernetes: str) -> Iterator[Verdict]:
    """Run jobs, one cluster after the other, and yield what became of each check as it is known.

    Raises:
        HarnessError: checks could not be run at all.
    """
    clusters = sorted({(job.profile, job.gates) for job in all_jobs})
    for profile, gates in clusters:
        own = [job for job in all_jobs if (job.profile, job.gates) == (profile, gates)]
        with _cluster(profile, gates, kubernetes) as cluster:
            yield from _run_jobs(cluster, own, results)


def on_cluster(name: str, all_jobs: Sequence[Job], results: Path) -> Iterator[Verdict]:
    """Run jobs on a cluster that is up, whatever their profile: for trying a new mutant."""
    yield from _run_jobs(LocalProvider(BuildSource()).attach(name), all_jobs, results)


def _run_jobs(cluster: Cluster, some_jobs: Sequence[Job], results: Path) -> Iterator[Verdict]:
    run_job = _runner(cluster, results)
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        for verdicts in pool.map(run_job, [job for job in some_jobs if not job.alone]):
            yield from verdicts
    for job in some_jobs:
        if job.alone:
            yield from run_job(job)


@contextmanager
def _cluster(profile: Profile, gates: Gates, kubernetes: str) -> Iterator[Cluster]:
    provider = LocalProvider(BuildSource())
    spec = ClusterSpec(
        f"mutants-{secrets.token_hex(3)}",
        kubernetes=kubernetes,
        profile=profile,
        gates=dict(gates),
        ephemeral=True,
    )
    cluster = provider.up(spec, SilentProgress())
    try:
        yield cluster
    finally:
        provider.down(cluster.name)


def _runner(cluster: Cluster, results: Path) -> Callable[[Job], list[Verdict]]:
    def run_job(job: Job) -> list[Verdict]:
        run_dir = results / f"{job.mutant.name}-{secrets.token_hex(2)}"
        run_dir.mkdir(parents=True)
        (run_dir / journal.FILE_NAME).touch()
        seed = secrets.randbelow(2**31)
        try:
            with disguise(cluster, job.mutant, run_dir) as seen:
                execution = engine.Execution(run_dir, seen, seed, 1, job.mutant.quirks)
                engine.execute([check.id for check in job.checks], execution, lambda event: None)
        finally:
            sweep(cluster, run_dir.name)
        return list(_verdicts(job, journal.read(run_dir)))

    return run_job


def _verdicts(job: Job, log: Iterable[events.Event]) -> Iterator[Verdict]:
    finished = {each.check: each for each in log if isinstance(each, events.CheckFinished)}
    must = {check.id for check in matching(job.checks, _known(job, job.mutant.kills))}
    may = {check.id for check in matching(job.checks, _known(job, job.mutant.neighbours))}
    for check in job.checks:
        ended = finished.get(check.id)
        verdict = Verdict(
            job.mutant.name,
            check,
            ended.result if ended else Result.NOT_COVERED,
            ended.message if ended else "it was not run",
            wanted=check.id in must,
        )
        yield dataclasses.replace(verdict, stray=verdict.killed and check.id not in must | may)


def _known(job: Job, terms: Sequence[str]) -> list[str]:
    """The terms that name a check of this job; the others are for another cluster."""
    return [
        term
        for term in terms
        if any(term in check.requirements or check.id.startswith(term) for check in job.checks)
    ]
