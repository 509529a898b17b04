"""Provider `existing`: hands out a cluster that somebody else made, and takes nothing of it away."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import filelock

from clusters import processes
from clusters.existing.facts import Facts, look
from clusters.existing.kubeconfig import single_context
from clusters.existing.presence import LEASE_SECONDS
from clusters.existing.reach import explained
from clusters.existing.rights import Right, missing
from clusters.interface import Cluster, ClusterSpec, ComponentStatus, Progress
from clusters.records import new_id
from harness.errors import EnvironmentBlocked, UsageError
from harness.files import write_atomically
from harness.kube import KubeClient
from harness.settings import state_root

PROVIDER = "existing"
_MARK = "mark"
_LONGEST_NAME = 40
_BEING_MADE_SECONDS = 10.0
"""So young a folder without a mark may be one that another command is just making."""


class ExistingProvider:
    """The cluster of one context of a kubeconfig, for as long as it is entered.

    A copy of that context is in a folder of its own below the state directory meanwhile, readable by the
    owner only: checks run in processes of their own, and the user's file may change under them.

    Args:
        kubeconfig: the user's file.
        context: which of its contexts; None takes the current one.
        run_id: names the folder.

    Raises:
        UsageError: on entering: the file is no kubeconfig, has no such context, a run of that id is there, or
            the state directory can't be written.
    """

    name = PROVIDER

    def __init__(self, kubeconfig: Path, context: str | None, run_id: str) -> None:
        self._source = kubeconfig
        self._context, self._document = single_context(kubeconfig, context)
        self._folder = folders() / run_id
        self._lock = filelock.FileLock(self._folder / "lock")
        self._id = new_id()

    @property
    def cluster_name(self) -> str:
        """The context's name, as far as it can name a file."""
        return re.sub(r"[^a-z0-9]+", "-", self._context.lower()).strip("-")[:_LONGEST_NAME] or PROVIDER

    @property
    def server(self) -> str:
        """The API server's address."""
        return self.connect().server

    @property
    def kubeconfig(self) -> Path:
        """The copy."""
        return self._folder / "kubeconfig"

    def __enter__(self) -> Self:
        _end_killed()
        try:
            self._folder.mkdir(parents=True, mode=0o700)
        except FileExistsError:
            raise UsageError(f"{self._folder}: a run of this id uses it; choose another --run-id") from None
        except OSError as error:
            raise self._unwritable(error) from error
        forget_killed([self._folder.name])
        try:
            self._lock.acquire()
            write_atomically(self._folder / _MARK, self._id)
            write_atomically(self.kubeconfig, self._document)
        except OSError as error:
            self.__exit__(None, None, None)
            raise self._unwritable(error) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.release()
        _tidy()

    def _unwritable(self, error: OSError) -> UsageError:
        return UsageError(f"{self._folder}: can't be written: {error.strerror}; see DRA_HARNESS_STATE")

    def connect(self) -> KubeClient:
        """A client of the cluster.

        Raises:
            UsageError: the credentials in the kubeconfig can't be used.
        """
        try:
            return KubeClient.from_kubeconfig(self.kubeconfig)
        except UsageError as error:
            # The copy is nothing that the user knows of.
            raise UsageError(str(error).replace(str(self.kubeconfig), str(self._source))) from error

    def facts(self) -> Facts:
        """What the cluster says of itself.

        Raises:
            UsageError: the credentials can't be used.
            EnvironmentBlocked: it can't be reached, refuses the user, or is of no supported version.
        """
        kube = self.connect()
        with explained(kube.server):
            return look(kube)

    def missing_rights(self) -> list[Right]:
        """What a run needs and the user may not; errors as of `facts`."""
        kube = self.connect()
        with explained(kube.server):
            return missing(kube)

    def attach(self, name: str) -> Cluster:
        """The cluster; see `facts` for what keeps it from being used.

        Raises:
            EnvironmentBlocked: also if it has no ResourceClaims, or the user lacks a right that a run needs.
        """
        if name != self.cluster_name:
            raise UsageError(f"{self._source} is of cluster {self.cluster_name!r}, not {name!r}")
        facts = self.facts()
        if not facts.serves_claims:
            raise EnvironmentBlocked(f"{self.server}: resource.k8s.io/v1 is not served: nothing to check")
        if lacking := self.missing_rights():
            verbs = ", ".join(map(str, lacking))
            raise EnvironmentBlocked(f"{facts.user} may not {verbs}; `dra-harness rbac` prints what it takes")
        return self.handle(facts)

    def handle(self, facts: Facts) -> Cluster:
        """The cluster as checks see it."""
        return Cluster(
            name=self.cluster_name,
            provider=self.name,
            kubernetes=facts.kubernetes,
            profile=facts.profile,
            kubeconfig=self.kubeconfig,
            nodes=(),
            nodes_elsewhere=facts.nodes,
            directory=self._folder,
            gates=facts.gates or {},
            id=self._id,
            driver_kubeconfig=self.kubeconfig,
            simulated_nodes=facts.simulated_nodes,
        )

    def up(self, spec: ClusterSpec, progress: Progress) -> Cluster:
        """Refused: such a cluster is there or isn't."""
        raise UsageError("a cluster of a kubeconfig is not brought up")

    def down(self, name: str, *, force: bool = False) -> None:
        """Refused: the cluster is somebody else's."""
        raise UsageError("a cluster of a kubeconfig is not taken down")

    def list(self) -> Sequence[Cluster]:
        """None: the harness keeps no list of other people's clusters."""
        return ()

    def restart(
        self,
        name: str,
        component: str,
        gates: Mapping[str, bool] | None = None,
        flags: Mapping[str, str] | None = None,
    ) -> None:
        """Refused: the components are somebody else's."""
        raise EnvironmentBlocked(f"components of an {self.name} cluster can't be restarted from here")

    def status(self, name: str) -> Sequence[ComponentStatus]:
        """None: its processes are none of this machine's."""
        return ()

    def collect_logs(self, name: str) -> None:
        """Refused: the components' logs are somebody else's."""
        raise EnvironmentBlocked(f"components of an {self.name} cluster have no logs for us")

    def sweep(self) -> None:
        """Remove what killed runs left on this machine; see `sweep`."""
        sweep()


def folders() -> Path:
    """Where the folders of runs on existing clusters are."""
    return state_root() / PROVIDER


def sweep() -> None:
    """Remove what killed runs left on this machine: their copies of kubeconfigs, and checks still running.

    Nothing stays, so from now on only a run's Lease says that it is dead.
    """
    _end_killed()
    forget_killed(_marks())
    _tidy()


def _end_killed() -> None:
    """Remove what killed runs left, but for the note that they were killed, while that says something new."""
    for folder in folders().glob("*"):
        lock = filelock.FileLock(folder / "lock")
        with contextlib.suppress(filelock.Timeout, OSError), lock.acquire(blocking=False):
            mark = folder / _MARK
            if mark.exists():
                processes.kill(mark.read_text())
            elif time.time() - folder.stat().st_mtime < _BEING_MADE_SECONDS:
                continue
            _killed_runs().mkdir(mode=0o700, exist_ok=True)
            (_killed_runs() / folder.name).touch()
            shutil.rmtree(folder, ignore_errors=True)
    forget_killed(set(_marks()) - set(killed()))


def killed() -> list[str]:
    """Runs that were killed on this machine, for as long as their Leases may say that they are alive."""
    return [run for run, age in _marks().items() if age < LEASE_SECONDS]


def forget_killed(runs: Iterable[str]) -> None:
    """Forget that runs were killed: nothing of theirs is left, or they are started again."""
    for run in runs:
        with contextlib.suppress(OSError):
            (_killed_runs() / run).unlink()


def _killed_runs() -> Path:
    return state_root() / "killed-runs"


def _marks() -> dict[str, float]:
    """Run -> seconds since it was found to have been killed."""
    ages = {}
    for mark in _killed_runs().glob("*"):
        with contextlib.suppress(OSError):  # another command forgets it
            ages[mark.name] = time.time() - mark.stat().st_mtime
    return ages


def _tidy() -> None:
    for folder in (folders(), _killed_runs(), state_root()):
        with contextlib.suppress(OSError):
            folder.rmdir()
