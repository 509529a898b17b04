"""One run from plan to reports: the data flows one way, and everything that happens becomes an event."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import secrets
import shutil
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cli.console import BringUpProgress
from clusters.driver_pods import serving_in_pods
from clusters.existing.presence import Presence
from clusters.existing.provider import PROVIDER
from clusters.existing.rights import is_admin
from clusters.interface import Cluster, ClusterProvider, ClusterSpec, Profile
from clusters.ready import cluster_ready
from harness import events
from harness.errors import EnvironmentBlocked, HarnessError, UsageError
from harness.journal import Journal, read
from harness.kube import KubeClient
from harness.revision import revision
from reports.build import build
from reports.console import ConsoleReporter
from reports.run import Run
from suites import checks, engine, plan
from suites.catalogue import load
from suites.sweep import sweep


@dataclass(frozen=True)
class RunRequest:
    """What the user asked for."""

    terms: Sequence[str]
    """Areas and requirement IDs."""
    skip: Sequence[str]
    spec: ClusterSpec
    """What clusters to bring up, if none is named; names and profiles are filled in."""
    cluster: str | None
    """The cluster to use."""
    profile: Profile | None
    """The profile of every cluster; None brings up one for each that checks need."""
    keep: bool
    seed: int
    parallel: int
    quirks: Sequence[str]
    """Seeded faults of every bundled driver."""
    command: Sequence[str]
    driver_image: str = ""
    """Image for drivers in pods of the cluster; without one they run beside it."""


class Runner:
    """Carries out one run."""

    def __init__(self, request: RunRequest, provider: ClusterProvider, run_dir: Path) -> None:
        self._request = request
        self._provider = provider
        self._run_dir = run_dir
        self._journal = Journal(run_dir)
        self._console = ConsoleReporter()
        self._follower = engine.Follower(self._journal.path, self._console.handle)
        self._started = time.monotonic()
        self._made: list[str] = []

    def run(self) -> int:
        """Plan, run, report; returns the exit code of the verdict.

        Raises:
            UsageError: the request can't be; nothing was started.
            EnvironmentBlocked: the cluster that it is for can't be used; nothing was started.
        """
        catalogue = load()
        selected = catalogue.select(self._request.terms)  # a wrong term ends here, before anything is made
        attached = self._attached()
        facts = self._target(attached)
        collected = checks.collect()
        planned = plan.make(catalogue, collected, self._request.terms, facts, skip=self._request.skip)
        groups = plan.groups(plan.to_run(planned), collected, facts)
        steps = _shared_out(groups, self._request.parallel, one_cluster=attached is not None)
        with self._presence(attached):
            try:
                self._run_dir.mkdir(parents=True)
            except OSError as error:
                message = f"{self._run_dir}: results can't be written there: {error.strerror}"
                raise UsageError(message) from error
            self._emit(self._run_started(sorted({requirement.area for requirement in selected})))
            self._emit(events.PlanMade(at=events.now(), requirements=planned))
            return self._carry_out(attached, steps)

    def _carry_out(self, attached: Cluster | None, steps: Sequence[Sequence[Step]]) -> int:
        try:
            self._run_lanes([self._lane(attached, lane) for lane in steps])
        except HarnessError as error:
            if not self._run_dir.exists():
                raise  # the request was refused
            self._emit(events.HarnessFault(at=events.now(), message=str(error)))
        except KeyboardInterrupt:
            self._emit(events.HarnessFault(at=events.now(), message="interrupted"))
        return self._finish()

    def _presence(self, attached: Cluster | None) -> contextlib.AbstractContextManager[object]:
        """Says on a cluster that stays that the run is alive."""
        if attached is None:
            return contextlib.nullcontext()
        return Presence(KubeClient.from_kubeconfig(attached.kubeconfig), self._run_dir.name)

    def _attached(self) -> Cluster | None:
        if self._request.cluster is None:
            return None
        cluster = self._provider.attach(self._request.cluster)
        image = self._request.driver_image
        if not image:
            return cluster
        if cluster.provider == PROVIDER and not is_admin(KubeClient.from_kubeconfig(cluster.kubeconfig)):
            raise EnvironmentBlocked(
                "--driver-image: drivers in pods get rights, so the user has to have all: cluster-admin"
            )
        return serving_in_pods(cluster, image)

    def _target(self, attached: Cluster | None) -> plan.Target:
        if attached:
            return plan.Target.of(attached)
        spec = self._request.spec
        return plan.Target(spec.kubernetes, self._request.profile, spec.nodes)

    def _run_lanes(self, lanes: Sequence[Lane]) -> None:
        """Advance lanes side by side until all have ended; if one fails, the others clean up too."""
        under_way: dict[Lane, engine.Running] = {}
        try:
            for lane in lanes:
                self._advance(lane, under_way)
            while under_way:
                next(iter(under_way.values())).ended(engine.POLL_SECONDS)
                self._follower.drain()
                for lane in [lane for lane, running in under_way.items() if running.ended()]:
                    self._advance(lane, under_way)
        finally:
            for running in under_way.values():
                running.interrupt()
            for lane in lanes:
                lane.close()
            self._follower.drain()

    def _advance(self, lane: Lane, under_way: dict[Lane, engine.Running]) -> None:
        under_way.pop(lane, None)
        running = next(lane, None)
        if running is not None:
            under_way[lane] = running

    def _lane(self, attached: Cluster | None, steps: Sequence[Step]) -> Lane:
        """Carry out steps one after the other, each on its cluster; yields checks that are to end first."""
        for step in steps:
            cluster = attached or self._bring_up(step.group)
            try:
                self._emit(cluster_ready(cluster, self._driver()))
                for ids, parallel in step.parts:
                    yield from self._checks(cluster, ids, parallel)
            finally:
                if attached is None and not self._request.keep:
                    self._take_down(cluster)
                else:
                    sweep(cluster, self._run_dir.name)

    def _checks(self, cluster: Cluster, ids: Sequence[str], parallel: int) -> Lane:
        request = self._request
        execution = engine.Execution(self._run_dir, cluster, request.seed, parallel, request.quirks)
        running = engine.Running(ids, execution)
        try:
            yield running
        finally:
            running.stop()
        self._follower.drain()
        running.verify(self._follower.started)

    def _bring_up(self, group: plan.Group) -> Cluster:
        name = f"{self._request.spec.name}-{len(self._made) + 1}"
        spec = replace(self._request.spec, name=name, profile=group.profile, gates=dict(group.gates))
        self._made.append(name)
        self._console.close()  # a terminal has room for one progress bar
        progress = BringUpProgress()
        try:
            return self._provider.up(spec, progress)
        except UsageError:
            if len(self._made) == 1:
                shutil.rmtree(self._run_dir)  # nothing was started, so nothing is left
            raise
        finally:
            progress.close()

    def _take_down(self, cluster: Cluster) -> None:
        started = time.monotonic()
        self._provider.down(cluster.name)
        seconds = round(time.monotonic() - started, 2)
        self._emit(events.ClusterGone(at=events.now(), name=cluster.name, seconds=seconds))

    def _run_started(self, areas: list[str]) -> events.RunStarted:
        running = revision()
        return events.RunStarted(
            at=events.now(),
            run_id=self._run_dir.name,
            suite_version=importlib.metadata.version("dra-harness"),
            suite_commit=running.commit,
            suite_dirty=running.dirty,
            catalogue_digest=load().digest,
            command=list(self._request.command),
            seed=self._request.seed,
            areas=areas,
        )

    def _finish(self) -> int:
        exit_code = Run.from_events(read(self._run_dir)).verdict
        seconds = round(time.monotonic() - self._started, 2)
        self._emit(events.RunFinished(at=events.now(), exit_code=exit_code, seconds=seconds))
        build(self._run_dir)
        self._console.write(Run.from_events(read(self._run_dir)), self._run_dir)
        return exit_code

    def _driver(self) -> str:
        quirks = ", ".join(self._request.quirks)
        return "bundled, one per check" + (f", broken on purpose: {quirks}" if quirks else "")

    def _emit(self, event: events.Event) -> None:
        self._journal.append(event)
        self._follower.drain()


@dataclass(frozen=True)
class Step:
    """What is run on one cluster."""

    group: plan.Group
    parts: Sequence[tuple[Sequence[str], int]]
    """Checks, one part after the other, with how many of them at a time."""


Lane = Generator[engine.Running, None, None]
"""Steps one after the other."""

_WORTH_A_CLUSTER = 5
"""Exclusive checks of a group from which on they get a cluster of their own, beside that of the others."""


def _shared_out(groups: Sequence[plan.Group], parallel: int, *, one_cluster: bool) -> list[list[Step]]:
    """The steps of each lane. Exclusive checks mostly wait, so a machine has room for others meanwhile."""
    main, beside = [], []
    for group in groups:
        together, alone = (group.together, parallel), (group.alone, 1)
        if group.together and len(group.alone) >= _WORTH_A_CLUSTER and not one_cluster:
            main.append(Step(group, [together]))
            beside.append(Step(group, [alone]))
        else:
            main.append(Step(group, [part for part in (together, alone) if part[0]]))
    return [lane for lane in (main, beside) if lane]


def new_run_id() -> str:
    """A run's id: when it began, and four digits that tell runs of one second apart."""
    return f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
