"""A cluster as a file in a run's folder: how checks, in processes of their own, find the cluster."""

from __future__ import annotations

from pathlib import Path

import pydantic

from clusters.interface import Cluster

_ADAPTER: pydantic.TypeAdapter[Cluster] = pydantic.TypeAdapter(Cluster)


def write_cluster(run_dir: Path, cluster: Cluster) -> Path:
    """Record a cluster that a run is against, and return the file."""
    path = run_dir / f"cluster-{cluster.name}.json"
    path.write_bytes(_ADAPTER.dump_json(cluster, indent=1))
    return path


def read_cluster(path: Path) -> Cluster:
    """The cluster that checks are against."""
    return _ADAPTER.validate_json(path.read_bytes())
