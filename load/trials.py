"""Carries out one trial: readings before, generator and scenario side by side, drain, readings after."""

from __future__ import annotations

import contextlib
import datetime
import threading
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import urllib3

from clusters.interface import Cluster
from harness.errors import HarnessError
from harness.kube import PODS, ApiError, KubeClient
from load import cleanup, limits, node, server, usage
from load.assemble import trial_result
from load.backlog import Backlog, BacklogWatch
from load.books import ServerBooks
from load.crew.parcel import Parcel
from load.crew.reception import Reception
from load.identity import Identities
from load.model import Orders, PodKind, WorkerReport
from load.naming import Names
from load.outages import OutageWatch
from load.process import GeneratorProcess, TrialClock
from load.profiles.plan import Plan
from load.profiles.schema import Place, Pools
from load.profiles.trial import Trial
from load.request import Listener, LoadRequest
from load.result import TrialResult
from load.scenarios.interface import Done, Findings, Scenario
from load.shapes import pod_kind

TROUBLE = (HarnessError, ApiError, OSError, urllib3.exceptions.HTTPError, AssertionError)
"""What a cluster can do to a run: it doesn't answer, refuses, or keeps something waiting too long."""
_POLL_SECONDS = 0.2
_REJOIN_SECONDS = 30.0
"""A worker that was lost in one trial has so long to be back for the next."""
_ACT_SECONDS = 60.0
"""A scenario has so long to come to its end once the generator has."""
_SETTLE_SECONDS = 90.0
"""For the claims of what is deleted after the drain, besides what the limits take for each."""


@dataclass(frozen=True)
class Site:
    """Where trials are carried out."""

    request: LoadRequest
    plan: Plan
    cluster: Cluster
    admin: KubeClient
    names: Names
    identities: Identities
    run_dir: Path
    sampler: usage.Sampler
    listener: Listener
    crew: Reception | None = None
    """Workers on other machines, which send instead of processes here."""
    readings: list[server.Reading] = field(default_factory=list)
    """Of the trial that goes on; those before and after a restart that is meant are added to it."""
    restarted: list[str] = field(default_factory=list)
    """Components that the scenario restarted in the trial that goes on."""
    notes: list[str] = field(default_factory=list)
    """Of the trial that goes on."""

    def forget(self) -> None:
        """Forget the trial before."""
        for kept in (self.readings, self.restarted, self.notes):
            kept.clear()


@dataclass(frozen=True)
class Finished:
    """A trial with its result."""

    done: Done
    result: TrialResult
    findings: Findings
    interrupted: bool


class _Ending:
    """What comes after a trial's load, step by step: none of it may take what was measured away.

    Args:
        faults: gets what went wrong, and when.
        interrupted: whether the load was.
    """

    def __init__(self, faults: list[str], interrupted: bool) -> None:
        self._faults = faults
        self.interrupted = interrupted

    @contextlib.contextmanager
    def step(self, doing: str) -> Iterator[None]:
        """Do something as far as it goes; Ctrl-C ends only this."""
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted = True
            self._tell(f"interrupted while {doing}")
        except TROUBLE as error:
            self._tell(f"{doing}: {error}")

    def _tell(self, fault: str) -> None:
        self._faults.append(f"{datetime.datetime.now(datetime.UTC):%H:%M:%S} {fault}")


class TrialRunner:
    """Carries out the trials of one run, one after the other."""

    def __init__(self, site: Site, scenario: Scenario) -> None:
        self._site = site
        self._scenario = scenario
        self._number = 0
        self._seconds_per_claim = limits.seconds_per_claim(site.plan.limits)
        self._kinds: list[PodKind] = []
        self._grace: dict[str, int] = {}

    def run(self, trial: Trial) -> Finished:
        """Carry out one trial; an interruption (KeyboardInterrupt) ends it early, and with a report.

        Once the generator has left its report, nothing that goes wrong takes it away: it becomes a fault.

        Raises:
            HarnessError: the generator left no report.
        """
        site = self._site
        self._number += 1
        site.forget()
        if site.crew is not None:
            site.crew.wait(_REJOIN_SECONDS)
        self._scenario.before(trial)
        before = cleanup.census(site.admin, site.names)
        orders = self._orders(trial)
        watch = node.NodeWatch(site.cluster, site.admin) if _on_real_nodes(trial) else None
        site.readings.append(server.read(site.cluster, site.admin))
        folder = site.run_dir / "trials" / f"{self._number:02}-{trial.name}"
        generator = self._start(orders, folder)
        faults: list[str] = []
        with BacklogWatch(site.cluster, site.admin) as backlog, OutageWatch(site.admin) as storage:
            interrupted = self._attend(trial, generator, faults)
        report = generator.report()
        if report.stopped and not interrupted:
            interrupted = True
            site.listener.said(f"the load was ended by somebody: {'; '.join(report.faults)}")
        ending = _Ending(faults, interrupted)
        books = None
        with ending.step("reading what the servers counted"):
            site.readings.append(server.read(site.cluster, site.admin))
            books = self._books(report, backlog.most)
        with ending.step("looking at what the trial left"):
            report = self._clear(report, before)
        done = Done(trial, report, books, tuple(generator.snapshots), folder)
        findings = Findings()
        with ending.step("judging what the scenario measured"):
            findings = self._scenario.judge(done)
        if watch is not None:
            with ending.step("looking at the real nodes"):
                watch.add_to(findings)
        notes = [*site.notes, *map(str, storage.outages), *findings.notes]
        findings.faults += faults
        return Finished(done, self._result(done, orders, findings, notes), findings, ending.interrupted)

    def _result(self, done: Done, orders: Orders, findings: Findings, notes: Sequence[str]) -> TrialResult:
        site, trial, report = self._site, done.trial, done.report
        result = trial_result(
            trial.name,
            orders,
            report,
            done.snapshots,
            done.server,
            usage.host(site.sampler.samples, report.started_at, report.last_arrival_at),
            settings={**trial.settings, **findings.settings},
            figures=findings.figures,
            notes=notes,
            faults=findings.faults,
            elsewhere=site.crew is not None,
        )
        return result.model_copy(update={"saturates": trial.saturates})

    def _start(self, orders: Orders, folder: Path) -> GeneratorProcess:
        site = self._site
        crew, web = site.crew, site.request.web
        if crew is None:
            return GeneratorProcess(orders, folder, site.cluster.id, workers=site.request.processes, web=web)
        generator = GeneratorProcess(
            orders, folder, site.cluster.id, workers=crew.expected, web=web, master=crew.bind
        )
        crew.hand_out(Parcel.of(folder.name, orders))
        return generator

    def _attend(self, trial: Trial, generator: GeneratorProcess, faults: list[str]) -> bool:
        """Follow the generator to its end, with the scenario beside it; True if it was interrupted."""
        clock = TrialClock()
        actor = threading.Thread(
            target=self._act, args=(trial, clock, faults), name=f"scenario-{trial.name}", daemon=True
        )
        actor.start()
        interrupted = False
        try:
            while not generator.ended:
                self._show(generator, clock)
                clock.pause(_POLL_SECONDS)
            self._show(generator, clock)
        except KeyboardInterrupt:
            interrupted = True
            clock.stop()
            self._site.listener.said("interrupted: the load ends, its report is written")
            generator.interrupt()
        except BaseException:
            generator.kill()
            raise
        finally:
            clock.stop()
            actor.join(_ACT_SECONDS)
        if actor.is_alive():
            faults.append("the scenario did not come to its end")
        return interrupted

    def _show(self, generator: GeneratorProcess, clock: TrialClock) -> None:
        for snapshot in generator.progress():
            clock.started(snapshot.at - snapshot.elapsed)
            self._site.listener.progress(snapshot)

    def _act(self, trial: Trial, clock: TrialClock, faults: list[str]) -> None:
        try:
            self._scenario.act(trial, clock)
        except Exception as error:
            faults.append(f"scenario {self._site.plan.scenario.kind}: {error}")
            (self._site.run_dir / "scenario-error.txt").write_text(traceback.format_exc(), encoding="utf-8")

    def _orders(self, trial: Trial) -> Orders:
        site, profile = self._site, self._site.plan.profile
        users = site.identities
        grace = None if _on_real_nodes(trial) else 0
        mixed = site.plan.scenario.mixed
        self._kinds = [pod_kind(site.names, shape, mixed=mixed) for shape in trial.pods]
        self._grace = {} if grace is None else {"gracePeriodSeconds": grace}
        return Orders(
            run_id=f"{site.names.run_id[:50]}-{self._number}",
            seed=site.request.seed + self._number - 1,
            sender_kubeconfig=users.sender.kubeconfig,
            observer_kubeconfig=users.observer.kubeconfig,
            expected_flow_schema_uid=users.sender.flow.flow_schema_uid,
            exempt_uids=list(users.exempt_uids),
            observer_flow_schema_uid=users.observer.flow.flow_schema_uid,
            kinds=self._kinds,
            namespace_prefix=site.names.prefix,
            arrivals=profile.arrivals,
            segments=trial.segments(),
            bursts=list(trial.bursts),
            max_in_flight=profile.max_in_flight,
            conduct=profile.conduct,
            last_stage=trial.last_stage or profile.last_stage,
            hold_seconds=trial.hold,
            delete_grace_seconds=grace,
            drain_seconds=trial.drain,
            device_quota=dict(self._scenario.quota(trial)),
            quota_changes=list(self._scenario.quota_changes(trial)),
            seconds_per_claim=self._seconds_per_claim,
            removed_devices=profile.pools is Pools.OWN,
        )

    def _books(self, report: WorkerReport, backlog: Backlog) -> ServerBooks:
        site = self._site
        return server.books(
            site.readings,
            sender_flow_schema=site.identities.sender.flow_schema,
            components=usage.components(site.sampler.samples, report.started_at, report.drained_at),
            backlog=backlog,
            planned=site.restarted,
        )

    def _clear(self, report: WorkerReport, before: cleanup.Census) -> WorkerReport:
        """Delete the pods that the drain left; claims that outlive even that are leaks in the report."""
        site = self._site
        known = {each.object for each in report.violations}
        for namespace in {namespace for kind in self._kinds for namespace in kind.namespaces}:
            site.admin.request("DELETE", PODS.path(namespace), query=self._grace)
        left = cleanup.settle(site.admin, site.names, before, _SETTLE_SECONDS, each=self._seconds_per_claim)
        leaked = [each for each in left if each.object not in known]
        return report.model_copy(update={"violations": [*report.violations, *leaked]})


def _on_real_nodes(trial: Trial) -> bool:
    return any(shape.place is Place.REAL for shape in trial.pods)
