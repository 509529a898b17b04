"""Makes what a load run needs on a cluster: classes, namespaces, templates, quotas, and devices in use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from clusters.local.simulated import SIMULATED
from harness.errors import EnvironmentBlocked
from harness.kube import (
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    KubeClient,
    Object,
)
from harness.waiting import NotYet, WaitTimeout, wait_until
from load import identity, objects
from load.naming import Names
from load.pools import devices_of, incomplete_pools, spread
from load.profiles.schema import PodShape, Tolerance, Via

_FILL = "fill"
_THREADS = 8
_SETTLE_SECONDS = 60.0
_SECONDS_PER_FILLER = 0.5
"""With the default limits the scheduler binds about 10 pods with claims per second."""


def namespaces(
    setup: KubeClient,
    names: Names,
    shapes: Sequence[PodShape],
    driver: str,
    quotas: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, str]:
    """Make the device classes, and the namespaces of some pods with their claim templates and quotas.

    The generator may make pods in them; `identity.wait_admitted` waits until the API server knows.

    Args:
        setup: the set-up's client.
        names: of the run.
        shapes: the pods.
        driver: whose devices they get.
        quotas: by a namespace's name in the shapes: `spec.hard` of its ResourceQuota.

    Returns:
        The full name of each namespace, by its name in the shapes.

    Raises:
        EnvironmentBlocked: a quota was not counted in time.
    """
    _device_classes(setup, names, driver)
    wanted = dict.fromkeys(namespace for shape in shapes for namespace in shape.namespaces)
    made = {}
    for short in wanted:
        full = made[short] = names.name(short)
        _namespace(setup, names, full)
        identity.admit(setup, names, full)
        for shape in shapes:
            if shape.via is Via.TEMPLATE and short in shape.namespaces:
                template = objects.claim_template(names, shape, driver)
                setup.create(RESOURCE_CLAIM_TEMPLATES, template, full)
    hard = {made[short]: limits for short, limits in (quotas or {}).items()}
    for full, limits in hard.items():
        setup.create(RESOURCE_QUOTAS, objects.quota(names, limits), full)
    wait_for_quotas(setup, hard)
    return made


def wait_for_quotas(kube: KubeClient, hard: Mapping[str, Mapping[str, str]]) -> None:
    """Wait until the quotas of some namespaces are in force: before they were counted nothing is refused.

    Args:
        kube: who may read them.
        hard: by namespace: what `status.hard` has to be.

    Raises:
        EnvironmentBlocked: they are not after a minute.
    """

    def counted() -> bool:
        for namespace, limits in hard.items():
            status = kube.get(RESOURCE_QUOTAS, "quota", namespace).get("status", {})
            if status.get("hard", {}).keys() != limits.keys() or not status.get("used"):
                raise NotYet(f"the quota of {namespace} is {status}")
        return True

    _wait(counted, _SETTLE_SECONDS, "the quotas to be in force")


def wait_for_slices(setup: KubeClient, names: Names, driver: str) -> dict[str, int]:
    """Wait until the scheduler has seen every slice; returns the devices of each simulated node.

    A watch keeps the order of writes: once a pod got a device of the slice that was written last, all
    slices have been seen. Without that, pods wait at first for nodes that are free.

    Raises:
        EnvironmentBlocked: pools are incomplete, nodes are without slices, or the pod got no device.
    """
    simulated = {node["metadata"]["name"] for node in setup.list(NODES, labels=f"{SIMULATED}=true")}
    slices: list[Object] = []

    def complete() -> bool:
        slices[:] = setup.list(RESOURCE_SLICES, fields=f"spec.driver={driver}")
        if pools := incomplete_pools(slices, driver):
            raise NotYet(f"{len(pools)} pools are incomplete, such as {pools[0]}")
        if missing := simulated - devices_of(slices, driver).keys():
            raise NotYet(f"{len(missing)} nodes are without slices, such as {min(missing)}")
        return True

    _wait(complete, _SETTLE_SECONDS, f"the slices of {driver}")
    devices = {node: count for node, count in devices_of(slices, driver).items() if node in simulated}
    last = max(
        (slice_ for slice_ in slices if slice_["spec"].get("nodeName") in devices),
        key=lambda slice_: int(slice_["metadata"]["resourceVersion"]),
        default=None,
    )
    if last is not None:
        _probe(setup, names, last["spec"]["nodeName"])
    return devices


def _probe(setup: KubeClient, names: Names, node: str) -> None:
    namespace = _fill_namespace(setup, names)
    setup.create(RESOURCE_CLAIMS, objects.claim(names, "probe", 1), namespace)
    setup.create(PODS, objects.filler(names, "probe", node, ["probe"]), namespace)
    _wait_bound(setup, namespace, _SETTLE_SECONDS)
    setup.delete(PODS, "probe", namespace, grace_seconds=0)
    setup.delete(RESOURCE_CLAIMS, "probe", namespace)
    _wait(
        lambda: setup.find(RESOURCE_CLAIMS, "probe", namespace) is None,
        _SETTLE_SECONDS,
        "the claim of the first pod to be gone",
    )


def fill(
    setup: KubeClient,
    names: Names,
    devices: Mapping[str, int],
    share: float,
    *,
    room: int = 1,
    tolerance: Tolerance = Tolerance.NONE,
) -> int:
    """Give a share of the simulated nodes' devices to pods that hold them to the end of the run.

    A pod for each node holds that node's part; the scheduler allocates it as it does any claim. With the
    default limits that is some ten nodes per second: do it under open ones.

    Args:
        setup: the set-up's client.
        names: of the run.
        devices: of each node, as `wait_for_slices` says.
        share: of all of them together, 0 to 1; rounded up.
        room: devices that the largest pod of the load needs: free ones lie so many to a node.
        tolerance: what the pods' claims say about tainted devices.

    Returns:
        How many devices the pods hold.

    Raises:
        EnvironmentBlocked: not all pods got what they ask for in time.
    """
    parts = spread(devices, share, room=room)
    if not parts:
        return 0
    namespace = _fill_namespace(setup, names)

    def create(part: tuple[str, int]) -> None:
        node, count = part
        portions = [
            min(objects.MOST_DEVICES, count - start) for start in range(0, count, objects.MOST_DEVICES)
        ]
        claims = [f"{node}-{index}" for index in range(len(portions))]
        for name, portion in zip(claims, portions, strict=True):
            setup.create(RESOURCE_CLAIMS, objects.claim(names, name, portion, tolerance), namespace)
        setup.create(PODS, objects.filler(names, node, node, claims), namespace)

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="fill") as pool:
        list(pool.map(create, parts.items()))
    _wait_bound(setup, namespace, _SETTLE_SECONDS + _SECONDS_PER_FILLER * len(parts))
    return sum(parts.values())


def _wait_bound(kube: KubeClient, namespace: str, deadline: float) -> None:
    def bound() -> bool:
        waiting = kube.list(PODS, namespace, fields="spec.nodeName=")
        if waiting:
            conditions = waiting[0]["status"].get("conditions", ())
            words = next(
                (each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), ""
            )
            raise NotYet(f"{len(waiting)} pods are not, the first says: {words or 'nothing'}")
        return True

    _wait(bound, deadline, f"the pods in {namespace} to be bound")


def _device_classes(setup: KubeClient, names: Names, driver: str) -> None:
    explicit = (names.device_class, names.extended_resource)
    for name, resource in (explicit, (names.implicit_class, "")):
        if setup.find(DEVICE_CLASSES, name) is None:
            setup.create(DEVICE_CLASSES, objects.device_class(names, name, driver, resource))


def _fill_namespace(setup: KubeClient, names: Names) -> str:
    namespace = names.name(_FILL)
    if setup.find(NAMESPACES, namespace) is None:
        _namespace(setup, names, namespace)
    return namespace


def _namespace(setup: KubeClient, names: Names, name: str) -> None:
    metadata = {"name": name, "labels": names.labels}
    setup.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


def _wait(probe: Callable[[], bool], deadline: float, describe: str) -> None:
    try:
        wait_until(probe, deadline, describe, interval=0.2)
    except WaitTimeout as error:
        raise EnvironmentBlocked(str(error)) from error
