"""One load run: plan, cluster, limits, identities, what the profile needs, trials, verdict, clean-up."""

from __future__ import annotations

import contextlib
import datetime
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain

from clusters.driver_host import BUNDLED_DRIVER
from clusters.existing.presence import Presence
from clusters.existing.provider import PROVIDER
from clusters.existing.reach import explained
from clusters.existing.rights import is_admin
from clusters.interface import Cluster, ClusterProvider
from clusters.local.simulated import SIMULATED
from clusters.ready import cluster_ready
from harness import events
from harness.errors import EnvironmentBlocked, HarnessError, UsageError
from harness.journal import Journal
from harness.kube import NODES, KubeClient
from load import cleanup, fingerprint, identity, limits, prepare, server, usage
from load.conclude import Progress, check_finished, conclude, run_started, shape
from load.crew.reception import Reception
from load.naming import Names
from load.profiles.loader import find_profile
from load.profiles.plan import Plan, make_plan
from load.profiles.schema import Fill, Pools, Tolerance
from load.request import LimitSet, Listener, LoadRequest
from load.result import LoadResult
from load.scenarios.interface import Done, Ground, Scenario
from load.trials import TROUBLE, Site, TrialRunner

Emit = Callable[[events.Event], None]
Describe = Callable[[str], events.PlannedRequirement]

_TRIAL_OVERHEAD = 60.0
"""Seconds that a trial takes besides its load and drain, at the most, for the tokens' life."""
_MOST_STEPS = 12


def run(
    request: LoadRequest,
    provider: ClusterProvider,
    listener: Listener,
    *,
    describe: Describe | None = None,
    crew: Reception | None = None,
) -> LoadResult:
    """Carry out one load run, and keep its events in `events.ndjson` beside `load.json`.

    Args:
        request: what the user asked for.
        provider: makes, finds and restarts clusters.
        listener: is told how it goes.
        describe: what the catalogue says about a requirement, for the plan among the events.
        crew: workers on other machines that are to send; they are waited for before anything is made.

    Raises:
        UsageError: the request can't be; nothing was made.
        EnvironmentBlocked: the cluster lacks something, before anything was measured.
        KeyboardInterrupt: Ctrl-C before anything was measured.
    """
    journal = Journal(request.run_dir)
    runner = LoadRunner(request, provider, listener, journal.append, crew=crew)
    began = time.monotonic()
    runner.make_folder()
    journal.append(run_started(request, runner.plan))
    if describe:
        planned = [describe(name) for name in runner.plan.profile.requirements]
        journal.append(events.PlanMade(at=events.now(), requirements=planned))
    try:
        result = runner.run()
    except (HarnessError, KeyboardInterrupt) as error:
        journal.append(events.HarnessFault(at=events.now(), message=str(error) or "interrupted"))
        raise
    seconds = round(time.monotonic() - began, 2)
    code = int(result.verdict.exit_code)
    journal.append(events.RunFinished(at=events.now(), exit_code=code, seconds=seconds))
    return result


class LoadRunner:
    """Carries out one load run.

    Args:
        request: what the user asked for.
        provider: makes, finds and restarts clusters.
        listener: is told how it goes.
        emit: gets the run's events, from `ClusterReady` to `ClusterGone`.
        crew: workers on other machines.
    """

    def __init__(
        self,
        request: LoadRequest,
        provider: ClusterProvider,
        listener: Listener,
        emit: Emit,
        *,
        crew: Reception | None = None,
    ) -> None:
        self._crew = crew
        self._provider = provider
        self._listener = listener
        self._emit = emit
        self._attached = provider.attach(request.cluster) if request.cluster is not None else None
        if self._attached and self._attached.provider == PROVIDER:
            _require_admin(self._attached)
        if self._attached:
            request = replace(
                request,
                nodes=len(self._attached.nodes) + len(self._attached.nodes_elsewhere),
                simulated_nodes=_simulated_nodes(self._attached),
            )
        self._request = request
        self._plan = make_plan(find_profile(request.profile), request)
        if self._attached and not self._attached.nodes:
            self._plan = self._plan.without_nodes()
        self._names = Names(request.run_dir.name)
        self._credentials = request.run_dir / "credentials"
        self._progress = Progress()

    @property
    def plan(self) -> Plan:
        """What is to be done; nothing has been made yet."""
        return self._plan

    def make_folder(self) -> None:
        """Make the run's folder.

        Raises:
            UsageError: it can't be.
        """
        try:
            self._request.run_dir.mkdir(parents=True)
        except OSError as error:
            raise UsageError(
                f"{self._request.run_dir}: results can't be written there: {error.strerror}"
            ) from error

    def run(self) -> LoadResult:
        """Do it, and write `load.json`; Ctrl-C ends it with the result of what was measured.

        Raises:
            UsageError: the results can't be written, or the cluster can't be; nothing was started.
            EnvironmentBlocked: the cluster lacks something, before anything was measured.
            KeyboardInterrupt: Ctrl-C before anything was measured.
        """
        started = datetime.datetime.now(datetime.UTC)
        clock = time.monotonic()
        if self._crew is not None:
            self._say(f"waiting for {self._crew.expected} workers")
            self._crew.wait(self._request.workers_wait)
        try:
            with self._cluster() as cluster:
                self._measure(cluster)
        except KeyboardInterrupt:
            if not self._progress.finished:
                raise
            rest = "clean --kubeconfig FILE" if self._attached else "down --all"
            self._progress.faults.append(f"clean-up: interrupted; `dra-harness {rest}` takes the rest away")
        seconds = time.monotonic() - clock
        result = conclude(self._request, self._plan, self._progress, started, seconds)
        result.write(self._request.run_dir)
        for found in result.requirements:
            self._emit(check_finished(result.profile, found))
        return result

    @contextlib.contextmanager
    def _cluster(self) -> Iterator[Cluster]:
        if self._attached:
            with Presence(KubeClient.from_kubeconfig(self._attached.kubeconfig), self._request.run_dir.name):
                self._emit(self._ready(self._attached))
                yield self._attached
            return
        sizing = self._plan.sizing
        spec = replace(self._request.spec, nodes=sizing.nodes, simulated_nodes=sizing.simulated_nodes)
        cluster = self._provider.up(spec, self._listener.bring_up)
        self._emit(self._ready(cluster))
        try:
            yield cluster
        finally:
            if not self._request.keep:
                self._take_down(cluster)

    def _take_down(self, cluster: Cluster) -> None:
        """Remove a cluster of the run's own; what can't be is said, and takes nothing of the result away."""
        began = time.monotonic()
        try:
            self._provider.down(cluster.name)
        except HarnessError as error:
            if not self._progress.finished:
                raise
            self._say(f"clean-up: {error}")
            self._progress.faults.append(f"clean-up: {error}")
            return
        seconds = round(time.monotonic() - began, 2)
        self._emit(events.ClusterGone(at=events.now(), name=cluster.name, seconds=seconds))

    def _ready(self, cluster: Cluster) -> events.ClusterReady:
        return cluster_ready(cluster, f"{BUNDLED_DRIVER}; {cluster.simulated_nodes} simulated nodes")

    def _measure(self, cluster: Cluster) -> None:
        """Carry out the trials; once one is finished, whatever goes wrong ends in the result."""
        admin = KubeClient.from_kubeconfig(cluster.kubeconfig)
        before = limits.observed(cluster, admin)
        scenario = self._plan.scenario.make()
        try:
            self._on(cluster, admin, scenario)
        except KeyboardInterrupt:
            if not self._progress.finished:
                raise
            self._progress.interrupted = True
        except TROUBLE as error:
            if self._progress.finished:
                self._progress.faults.append(f"the run ended early: {error}")
            elif isinstance(error, HarnessError):
                raise
            else:
                raise EnvironmentBlocked(f"the cluster: {error}") from error
        finally:
            self._leave(cluster, admin, before, scenario)

    def _leave(
        self,
        cluster: Cluster,
        admin: KubeClient,
        before: Mapping[str, limits.Limits | None],
        scenario: Scenario,
    ) -> None:
        """Clean up, as far as it goes: what can't be removed is said, and hides nothing else."""
        for step in chain((scenario.clean,), self._clean(cluster, admin, before)):
            try:
                step()
            except TROUBLE as error:
                self._say(f"clean-up: {error}")
                self._progress.faults.append(f"clean-up: {error}")

    def _on(self, cluster: Cluster, admin: KubeClient, scenario: Scenario) -> None:
        self._say(f"limit set {self._plan.limits} of kube-controller-manager and kube-scheduler")
        # Filling takes minutes under the default limits; where nothing can be restarted it has to.
        own = cluster.provider != PROVIDER
        first = LimitSet.OPEN if self._plan.prefilled_devices and own else self._plan.limits
        limits.apply(self._provider, cluster, admin, first)
        users = identity.establish(
            cluster.kubeconfig, self._names, self._credentials, token_seconds=self._longest()
        )
        sampler = usage.Sampler(cluster.id)
        site = Site(
            request=self._request,
            plan=self._plan,
            cluster=cluster,
            admin=admin,
            names=self._names,
            identities=users,
            run_dir=self._request.run_dir,
            sampler=sampler,
            listener=self._listener,
            crew=self._crew,
        )
        self._prepare(site, scenario)
        self._progress.fingerprint = fingerprint.take(
            cluster,
            admin,
            shape=shape(self._plan, self._request.processes, elsewhere=self._crew is not None),
            run_id=self._names.run_id,
            seed=self._request.seed,
        )
        with sampler:  # not before: the restarts of the limits are none of the load's
            self._trials(site, scenario)

    def _prepare(self, site: Site, scenario: Scenario) -> None:
        """Make what the profile needs, under open limits, and bring the run's limits into force."""
        plan = self._plan
        setup = KubeClient.from_kubeconfig(site.identities.setup.kubeconfig)
        own = plan.profile.pools is Pools.OWN
        driver = f"{self._names.token}.load.dra-harness.dev" if own else BUNDLED_DRIVER
        self._say("namespaces, classes and claim templates")
        made = prepare.namespaces(setup, self._names, plan.profile.pods, driver)
        identity.wait_admitted(site.identities.sender, list(made.values()))
        scenario.prepare(self._ground(site, setup, made, driver))
        if not plan.scenario.mixed:
            devices = prepare.wait_for_slices(setup, self._names, driver)
            if plan.prefilled_devices:
                self._say(f"pods for {plan.prefilled_devices} of {plan.devices} devices")
                tolerance = Tolerance.ALWAYS if plan.scenario.taints else Tolerance.NONE
                share = plan.sizing.prefill
                if plan.profile.fill is Fill.NODES:
                    full = math.ceil(round(len(devices) * share, 9))
                    devices, share = dict(list(devices.items())[:full]), 1.0
                prepare.fill(setup, self._names, devices, share, tolerance=tolerance)
        self._progress.limits = limits.apply(self._provider, site.cluster, site.admin, plan.limits)

    def _ground(self, site: Site, setup: KubeClient, namespaces: dict[str, str], driver: str) -> Ground:
        users = site.identities
        simulated = [node["metadata"]["name"] for node in setup.list(NODES, labels=f"{SIMULATED}=true")]
        return Ground(
            plan=self._plan,
            cluster=site.cluster,
            provider=self._provider,
            setup=setup,
            observer=KubeClient.from_kubeconfig(users.observer.kubeconfig),
            admin=site.admin,
            names=self._names,
            seed=self._request.seed,
            namespaces=namespaces,
            driver=driver,
            simulated=sorted(simulated, key=lambda name: (len(name), name)),
            sender_schema=users.sender.flow_schema,
            restart=lambda component: self._restart(site, component),
            say=lambda text: self._note(site, text),
        )

    def _trials(self, site: Site, scenario: Scenario) -> None:
        trials = TrialRunner(site, scenario)
        done: list[Done] = []
        while (trial := scenario.next_trial(done)) is not None:
            self._say(f"trial {trial.name}: {trial.says()}")
            finished = trials.run(trial)
            done.append(finished.done)
            self._progress.finished.append(finished)
            if finished.interrupted:
                self._progress.interrupted = True
                return
        self._progress.conclusion = scenario.conclude(done)

    def _restart(self, site: Site, component: str) -> None:
        """Restart a component under the run's limits; what it counted until then is read first."""
        site.readings.append(server.read(site.cluster, site.admin))
        flags = limits.flags(self._plan.limits, component)
        site.restarted.append(component)
        self._provider.restart(site.cluster.name, component, flags=flags)
        site.readings.append(server.read(site.cluster, site.admin))

    def _clean(
        self, cluster: Cluster, admin: KubeClient, before: Mapping[str, limits.Limits | None]
    ) -> Iterator[Callable[[], None]]:
        """The steps that leave a cluster as it was found; of one that goes, nothing has to be taken away."""
        yield lambda: identity.forget(self._credentials)
        if not self._attached and not self._request.keep:
            return
        self._say("cleaning up")
        had = {component: limit for component, limit in before.items() if limit is not None}
        for component, limit in had.items():
            yield partial(limits.revive, self._provider, cluster, admin, component, limit)
        yield partial(self._remove, cluster, admin)
        for component, limit in had.items():
            yield partial(limits.give_back, self._provider, cluster, admin, component, limit)

    def _remove(self, cluster: Cluster, admin: KubeClient) -> None:
        if self._plan.limits is LimitSet.DEFAULT:
            with contextlib.suppress(EnvironmentBlocked):  # else it takes as long as the limits make it
                limits.apply(self._provider, cluster, admin, LimitSet.OPEN)
        cleanup.clean(cluster, self._names.run_id, self._credentials)

    def _longest(self) -> float:
        """Seconds that the run may take, at the most."""
        plan = self._plan
        trials = len(plan.scenario.arm_names()) + len(plan.further) + _MOST_STEPS
        return plan.main.length + trials * (min(plan.main.length, 600) + plan.main.drain + _TRIAL_OVERHEAD)

    def _say(self, text: str) -> None:
        self._listener.said(text)

    def _note(self, site: Site, text: str) -> None:
        site.notes.append(f"{datetime.datetime.now(datetime.UTC):%H:%M:%S} {text}")
        self._listener.said(text)


def _require_admin(cluster: Cluster) -> None:
    if not is_admin(KubeClient.from_kubeconfig(cluster.kubeconfig)):
        raise EnvironmentBlocked(
            "load: it makes users with rights of their own, so who starts it has to have all: cluster-admin"
        )


def _simulated_nodes(cluster: Cluster) -> int:
    """Simulated nodes that pods of a load go to: on somebody else's cluster there may be others."""
    if cluster.provider != PROVIDER:
        return cluster.simulated_nodes
    kube = KubeClient.from_kubeconfig(cluster.kubeconfig)
    with explained(kube.server):
        return len(kube.list(NODES, labels=f"{SIMULATED}=true"))
