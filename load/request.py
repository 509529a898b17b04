"""What the user asks of a load run, and who is told how it goes."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from clusters.interface import ClusterSpec
from clusters.interface import Progress as BringUpProgress
from load.model import Snapshot


class Size(enum.StrEnum):
    """How much load a profile asks for."""

    S = "S"
    """For two cores."""
    M = "M"
    """For eight cores and more."""


class LimitSet(enum.StrEnum):
    """Client-side limits of kube-controller-manager and kube-scheduler, as QPS/burst."""

    DEFAULT = "default"
    """As Kubernetes ships: 20/30 and 50/100."""
    TUNED = "tuned"
    """100/200 and 200/400."""
    OPEN = "open"
    """1000/2000 for both: no limiter stands in the way."""


@dataclass(frozen=True)
class LoadRequest:
    """One load run as asked for. Nothing in it was checked against the profile or the machine yet."""

    profile: str
    """Name of a built-in profile, or path of a YAML file."""
    run_dir: Path
    """Where the run's files go; its name is the run's ID. Doesn't exist yet."""
    seed: int
    spec: ClusterSpec
    """The cluster to bring up where `cluster` is None; what is not asked for is the profile's to say."""
    size: Size = Size.S
    limits: LimitSet | None = None
    """None takes the profile's own."""
    cluster: str | None = None
    """A cluster that is up, to use instead of `spec`."""
    keep: bool = False
    """Leave the cluster up that the run made."""
    nodes: int | None = None
    """Real nodes; None takes the profile's."""
    simulated_nodes: int | None = None
    """Nodes that exist only in the API; None takes the profile's."""
    seconds: float | None = None
    """The length of the measured part; shortens or stretches the profile's shape as a whole."""
    rate: float | None = None
    """Offered pods/s instead of the profile's; its shape is scaled."""
    arms: Sequence[str] = ()
    """Only these arms of a sweep; all where empty."""
    processes: int = 1
    """Generator processes: on this machine, or the workers that come from others."""
    workers_wait: float = 300.0
    """Seconds within which workers on other machines have to be there."""
    web: int | None = None
    """Port of Locust's web UI on loopback, None for no UI."""
    command: Sequence[str] = ()
    """The command line, for the record."""


class Listener(Protocol):
    """Told how a load run goes; the runner calls it from one thread."""

    @property
    def bring_up(self) -> BringUpProgress:
        """Told how the cluster's bring-up goes."""
        ...

    def said(self, text: str) -> None:
        """Something happened that a person wants to know: a phase began, a component was restarted."""

    def progress(self, snapshot: Snapshot) -> None:
        """The generator's latest figures, about once a second while it runs."""
