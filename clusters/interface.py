"""The seam between a run and where it happens: providers make clusters, checks use them."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from harness.errors import EnvironmentBlocked


class Progress(Protocol):
    """Told how a bring-up goes."""

    def components(self, phase: str, done: int, total: int, text: str) -> None:
        """A step of getting the programs; see `clusters.components.Progress`."""

    def reached(self, phase: str, seconds: float) -> None:
        """A phase of the bring-up was reached, so many seconds after its start."""

    def warn(self, message: str) -> None:
        """Something is amiss that doesn't keep the cluster from being made."""


class SilentProgress:
    """Nobody is told."""

    def components(self, phase: str, done: int, total: int, text: str) -> None:
        """Say nothing."""

    def reached(self, phase: str, seconds: float) -> None:
        """Say nothing."""

    def warn(self, message: str) -> None:
        """Say nothing."""


class Profile(enum.StrEnum):
    """Which gates and API versions a cluster has."""

    GA = "ga"
    """The release's defaults."""
    ALPHA = "alpha"
    """Every DRA gate and API version that the release knows, on."""


@dataclass(frozen=True)
class ClusterSpec:
    """What to bring up."""

    name: str
    kubernetes: str = "v1.37.2"
    profile: Profile = Profile.GA
    gates: Mapping[str, bool] = field(default_factory=dict)
    """Feature gates on top of the profile's, for every component."""
    nodes: int = 2
    """Real nodes: a kubelet and a containerd each."""
    simulated_nodes: int = 0
    """Nodes that exist only in the API, kept alive by kwok."""
    port: int = 0
    """The API server's port on loopback; 0 takes a free one."""
    inventory: Path | None = None
    """Inventory profile of the bundled driver; None takes its default."""
    ephemeral: bool = False
    """Made for one run: if that is killed, the next `up` or `down --all` removes it."""


@dataclass(frozen=True)
class Node:
    """A real node, as the harness sees it from outside."""

    name: str
    kubelet_dir: Path
    """The kubelet's directory on this machine: plugins/, plugins_registry/, device-plugins/."""
    kubelet_dir_in_node: str
    """The same directory as the kubelet and the runtime see it."""
    cdi_dir: Path
    """Where the node's runtime looks for CDI specs; the same path inside and outside."""
    here: bool = True
    """Whether these directories are on this machine; else they are those that the node itself sees."""

    def require_here(self) -> None:
        """Ask for the directories to be on this machine.

        Raises:
            EnvironmentBlocked: they are not.
        """
        if not self.here:
            raise EnvironmentBlocked(f"needs the directories of {self.name}'s kubelet on this machine")


@dataclass(frozen=True)
class Cluster:
    """A cluster that is up, whoever made it."""

    name: str
    provider: str
    kubernetes: str
    profile: Profile
    kubeconfig: Path
    """Admin credentials; the file is 0600."""
    nodes: tuple[Node, ...]
    directory: Path
    """Where the provider keeps the cluster's files."""
    gates: Mapping[str, bool]
    """Feature gates that were set on top of the profile's; of a cluster that somebody else made, all that its
    API server reports."""
    id: str
    """The mark that every process started for the cluster carries."""
    driver_kubeconfig: Path
    """Credentials with the rights of a hosted driver."""
    endpoints: Mapping[str, str] = field(default_factory=dict)
    """Where components but the API server serve metrics to the admin, by component, if known; kubelets that
    are not here are asked through the API server."""
    simulated_nodes: int = 0
    """How many nodes there are besides `nodes` that exist only in the API."""
    origin: str = ""
    """Where Kubernetes' programs came from: build, download or directory; empty if that isn't known."""
    nodes_elsewhere: tuple[str, ...] = ()
    """Names of further real nodes that are Ready, whose directories are not on this machine."""
    driver_image: str = ""
    """The bundled driver's image, with its tag, for drivers in the cluster's own pods; without one they are
    processes of this machine."""
    seconds: float = 0.0
    """What the bring-up took."""
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds from the start at which each phase was reached."""


@dataclass(frozen=True)
class Finding:
    """One thing about the machine that `doctor` looked at."""

    subject: str
    ok: bool
    message: str
    """What was found, or what is missing and how to get it."""


@dataclass(frozen=True)
class ComponentStatus:
    """Whether one of a cluster's processes is there."""

    component: str
    pid: int | None
    log: Path


@runtime_checkable
class LoadsImages(Protocol):
    """A provider that can bring an image to its nodes without a registry."""

    def load_image(self, name: str, archive: Path) -> None:
        """Bring the images of an OCI archive into the runtime of each node that takes pods.

        Raises:
            UsageError: there is no such cluster.
            EnvironmentBlocked: a runtime refuses the archive.
        """
        ...


class ClusterProvider(Protocol):
    """Makes, finds and removes clusters of one kind."""

    name: str

    def up(self, spec: ClusterSpec, progress: Progress) -> Cluster:
        """Bring a cluster up and return it when its nodes are Ready.

        Raises:
            UsageError: the spec can't be met; nothing was started.
            EnvironmentBlocked: a component did not come up; what was started has been taken down.
        """
        ...

    def attach(self, name: str) -> Cluster:
        """Find a cluster that is up.

        Raises:
            UsageError: there is no such cluster, naming those that are.
        """
        ...

    def down(self, name: str, *, force: bool = False) -> None:
        """Remove the cluster and everything of it, also after a crash.

        Raises:
            UsageError: there is no such cluster, or another process is using it and `force` isn't given.
        """
        ...

    def list(self) -> Sequence[Cluster]:
        """The clusters that are up or were left half-way."""
        ...

    def restart(
        self,
        name: str,
        component: str,
        gates: Mapping[str, bool] | None = None,
        flags: Mapping[str, str] | None = None,
    ) -> None:
        """Restart one component, with gates and flags on top of its own; workloads stay as they are.

        Args:
            name: the cluster.
            component: as `status` names it, such as kube-scheduler or kubelet/node-1.
            gates: what differs from the cluster's own gates until the next restart.
            flags: flags of its command line, such as `kube-api-qps`, until the next restart.

        Raises:
            EnvironmentBlocked: the component did not come back, or is not the provider's to restart.
        """
        ...

    def status(self, name: str) -> Sequence[ComponentStatus]:
        """The cluster's processes."""
        ...

    def collect_logs(self, name: str) -> None:
        """Bring the logs of its components to where `status` says they are, if they are elsewhere.

        Raises:
            EnvironmentBlocked: none could be had.
        """
        ...

    def sweep(self) -> None:
        """Remove what killed runs left: clusters that were not to be kept and whose maker is gone."""
        ...
