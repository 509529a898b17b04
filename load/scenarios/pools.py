"""Pools of devices that the run publishes itself, for a driver of its own, since it changes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from harness.kube import NODES, RESOURCE_SLICES, ApiError, KubeClient, Object

_THREADS = 8


@dataclass
class Pool:
    """The pool of one node, in slices that each have a part of its devices."""

    node: str
    owner: Object
    """Owner reference to the node, so that the pool goes with it."""
    slices: list[Object]
    """As stored, in order."""
    removed: set[str] = field(default_factory=set)
    """Names of devices that are withdrawn at the moment."""

    @property
    def generation(self) -> int:
        """The newest of the slices'."""
        return max(int(slice_["spec"]["pool"]["generation"]) for slice_ in self.slices)


def device(name: str, *, epoch: int = 0) -> Object:
    """A device; `epoch` is an attribute that updates change."""
    attributes = {
        "type": {"string": "gpu"},
        "productName": {"string": "Simulated GPU"},
        "driverVersion": {"version": "1.0.0"},
        "epoch": {"int": epoch},
    }
    return {"name": name, "attributes": attributes}


def parts(count: int, slices: int) -> list[list[str]]:
    """Names of so many devices, dealt out to slices as evenly as can be; the first have the more."""
    base, more = divmod(count, slices)
    dealt = []
    first = 0
    for index in range(slices):
        size = base + (index < more)
        dealt.append([f"gpu-{number}" for number in range(first, first + size)])
        first += size
    return dealt


class Pools:
    """All pools of the run's own driver."""

    def __init__(self, kube: KubeClient, driver: str, prefix: str, labels: Mapping[str, str]) -> None:
        self._kube = kube
        self._driver = driver
        self._prefix = prefix
        self._labels = dict(labels)
        self.pools: dict[str, Pool] = {}
        self.conflicts = 0
        """Updates that were answered 409."""
        self.updates = 0

    def publish(self, nodes: Sequence[str], devices: int, *, slices: int = 1) -> None:
        """Publish a pool for each node."""
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="pools") as threads:
            made = threads.map(lambda node: self._publish(node, devices, slices), nodes)
            for pool in made:
                self.pools[pool.node] = pool

    def withdraw(self, node: str) -> None:
        """Delete a node's pool."""
        pool = self.pools.pop(node)
        for slice_ in pool.slices:
            self._kube.delete(RESOURCE_SLICES, slice_["metadata"]["name"])

    def update(self, pool: Pool, index: int) -> bool:
        """Write one slice as it stands in the pool; False for a conflict, after which it is as stored."""
        self.updates += 1
        try:
            pool.slices[index] = self._kube.replace(RESOURCE_SLICES, pool.slices[index])
        except ApiError as error:
            if error.status != 409:
                raise
            self.conflicts += 1
            stored = self._kube.get(RESOURCE_SLICES, pool.slices[index]["metadata"]["name"])
            pool.slices[index] = stored
            return False
        return True

    def clean(self) -> None:
        """Delete every pool of the run, also those of a half-way `publish`."""
        for slice_ in self._kube.list(RESOURCE_SLICES, fields=f"spec.driver={self._driver}"):
            self._kube.delete(RESOURCE_SLICES, slice_["metadata"]["name"])
        self.pools.clear()

    def _publish(self, node: str, devices: int, slices: int) -> Pool:
        stored = self._kube.get(NODES, node)
        owner = {
            "apiVersion": NODES.api_version,
            "kind": "Node",
            "name": node,
            "uid": stored["metadata"]["uid"],
            "controller": True,
        }
        pool = Pool(node, owner, [])
        for index, names in enumerate(parts(devices, slices)):
            pool.slices.append(self._kube.create(RESOURCE_SLICES, self._slice(pool, index, names, slices)))
        return pool

    def _slice(self, pool: Pool, index: int, names: Sequence[str], slices: int) -> Object:
        return {
            "apiVersion": RESOURCE_SLICES.api_version,
            "kind": "ResourceSlice",
            "metadata": {
                "name": f"{self._prefix}-{pool.node}-{index}",
                "labels": self._labels,
                "ownerReferences": [pool.owner],
            },
            "spec": {
                "driver": self._driver,
                "nodeName": pool.node,
                "pool": {"name": pool.node, "generation": 1, "resourceSliceCount": slices},
                "devices": [device(name) for name in names],
            },
        }
