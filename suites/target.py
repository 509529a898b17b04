"""`cluster.json` in a run's folder: how the checks, in processes of their own, find the cluster."""

from __future__ import annotations

from pathlib import Path

import pydantic

from clusters.interface import Cluster

_ADAPTER: pydantic.TypeAdapter[Cluster] = pydantic.TypeAdapter(Cluster)
_FILE = "cluster.json"


def write_cluster(run_dir: Path, cluster: Cluster) -> None:
    """Record the cluster that a run is against."""
    (run_dir / _FILE).write_bytes(_ADAPTER.dump_json(cluster, indent=1))


def read_cluster(run_dir: Path) -> Cluster:
    """The cluster that a run is against."""
    return _ADAPTER.validate_json((run_dir / _FILE).read_bytes())
