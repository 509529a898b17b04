"""What a load run makes on a real cluster: users, limits, namespaces, devices in use; and that all goes."""

from __future__ import annotations

import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from clusters.components import BuildSource
from clusters.driver_host import BUNDLED_DRIVER
from clusters.interface import Cluster, ClusterSpec, SilentProgress
from clusters.local.provider import LocalProvider
from harness.kube import NODES, PODS, PRIORITY_LEVELS, RESOURCE_CLAIMS, ApiError, KubeClient
from harness.waiting import NotYet, wait_until
from load import cleanup, fingerprint, identity, limits, objects, prepare, server, usage
from load.identity import Identities
from load.limits import Limits
from load.naming import Names
from load.profiles.schema import PodShape, Tolerance, Via
from load.request import LimitSet

pytestmark = pytest.mark.integration

NODES_SIMULATED = 10
DEVICES = 8 * NODES_SIMULATED
SHAPES = [
    PodShape(name="plain", via=Via.TEMPLATE),
    PodShape(name="tolerant", via=Via.TEMPLATE, tolerance=Tolerance.SECONDS),
    PodShape(name="pair", via=Via.TEMPLATE, claims=2),
    PodShape(name="match", via=Via.TEMPLATE, requests=5, match="productName"),
    PodShape(name="cel", via=Via.TEMPLATE, cel='device.attributes["{driver}"].type == "gpu"'),
    PodShape(name="explicit", via=Via.EXPLICIT, devices=2),
    PodShape(name="implicit", via=Via.IMPLICIT),
    PodShape(name="none", via=Via.PLAIN),
    PodShape(name="limited", via=Via.EXPLICIT, namespaces=["limited"]),
]
CLAIMS_BY = {"kube-controller-manager": 6, "kube-scheduler": 2}
"""Claims of a pod of each shape, by who makes them."""


@dataclass(frozen=True)
class Ground:
    cluster: Cluster
    provider: LocalProvider
    admin: KubeClient
    names: Names
    users: Identities
    credentials: Path
    namespaces: dict[str, str]
    filled: int


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, LocalProvider]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRA_HARNESS_STATE", str(tmp_path_factory.mktemp("clusters")))
        provider = LocalProvider(BuildSource())
        name = f"load-{secrets.token_hex(3)}"
        spec = ClusterSpec(name=name, nodes=1, simulated_nodes=NODES_SIMULATED, ephemeral=True)
        made = provider.up(spec, SilentProgress())
        try:
            yield made, provider
        finally:
            provider.down(name)


@pytest.fixture(scope="module")
def ground(
    cluster: tuple[Cluster, LocalProvider], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ground]:
    """A run's ground, with half of the devices in use, under open limits."""
    made, provider = cluster
    names = Names(f"test-{secrets.token_hex(3)}")
    credentials = tmp_path_factory.mktemp("run") / "credentials"
    admin = KubeClient.from_kubeconfig(made.kubeconfig)
    limits.apply(provider, made, admin, LimitSet.OPEN)
    users = identity.establish(made.kubeconfig, names, credentials, token_seconds=300)
    setup = KubeClient.from_kubeconfig(users.setup.kubeconfig)
    quota = {"limited": objects.extended_quota(names.extended_resource, 1)}
    namespaces = prepare.namespaces(setup, names, SHAPES, BUNDLED_DRIVER, quota)
    identity.wait_admitted(users.sender, list(namespaces.values()))
    devices = prepare.wait_for_slices(setup, names, BUNDLED_DRIVER)
    filled = prepare.fill(setup, names, devices, 0.5, room=5)
    yield Ground(made, provider, admin, names, users, credentials, namespaces, filled)
    cleanup.clean(made, names.run_id, credentials)


def sender(ground: Ground) -> KubeClient:
    return KubeClient.from_kubeconfig(ground.users.sender.kubeconfig)


def send(ground: Ground, shape: PodShape, name: str) -> None:
    kind = objects.pod_kind(ground.names, shape)
    pod = {**kind.manifest, "metadata": {**kind.manifest["metadata"], "name": name}}
    sender(ground).create(PODS, pod, kind.namespaces[0])


def wait_bound(ground: Ground, namespace: str) -> None:
    def bound() -> bool:
        waiting = ground.admin.list(PODS, namespace, fields="spec.nodeName=")
        if waiting:
            raise NotYet([(pod["metadata"]["name"], pod["status"]) for pod in waiting])
        return True

    wait_until(bound, 30, "the pods to be bound")


def test_each_user_is_where_it_belongs_and_may_do_its_own_work_only(ground: Ground) -> None:
    users = ground.users
    levels = {}
    for user in (users.sender, users.observer, users.setup):
        client = KubeClient.from_kubeconfig(user.kubeconfig)
        assert identity.placement(client) == user.flow
        levels[user.role] = ground.admin.get(PRIORITY_LEVELS, user.priority_level)["metadata"]["uid"]
        assert levels[user.role] == user.flow.priority_level_uid
        assert stat.S_IMODE(user.kubeconfig.stat().st_mode) == 0o600
    assert stat.S_IMODE(ground.credentials.stat().st_mode) == 0o700
    assert len(set(levels.values())) == 3
    assert users.observer.flow.priority_level_uid in users.exempt_uids
    assert users.observer.flow.flow_schema_uid in users.exempt_uids
    assert {users.sender.flow.flow_schema_uid, users.setup.flow.flow_schema_uid}.isdisjoint(users.exempt_uids)
    client = sender(ground)
    for forbidden in (
        lambda: client.list(NODES),
        lambda: client.create(PODS, objects.filler(ground.names, "p", "sim-1", []), "default"),
        lambda: client.list(RESOURCE_CLAIMS, ground.namespaces["churn"]),
        lambda: KubeClient.from_kubeconfig(users.observer.kubeconfig).delete(PODS, "p", "default"),
    ):
        with pytest.raises(ApiError) as raised:
            forbidden()
        assert raised.value.status == 403


def test_a_user_moves_to_another_level_and_back(ground: Ground) -> None:
    moved = identity.move(ground.admin, ground.users.sender, "global-default")
    assert moved.flow.flow_schema_uid == ground.users.sender.flow.flow_schema_uid
    assert moved.flow.priority_level_uid == ground.users.setup.flow.priority_level_uid
    assert identity.move(ground.admin, moved, "workload-low") == ground.users.sender


def test_half_of_the_devices_are_in_use(ground: Ground) -> None:
    claims = ground.admin.list(RESOURCE_CLAIMS, ground.names.name("fill"))
    pools = [
        result["pool"] for claim in claims for result in claim["status"]["allocation"]["devices"]["results"]
    ]
    assert ground.filled == len(pools) == DEVICES // 2
    # Eight nodes keep five of their eight devices free for the pods that need five.
    assert sorted(pools.count(pool) for pool in set(pools)) == [3, 3, 3, 3, 3, 3, 3, 3, 8, 8]


def test_every_shape_of_pod_is_served_and_the_servers_count_what_was_sent(ground: Ground) -> None:
    before = cleanup.census(ground.admin, ground.names)
    first = server.read(ground.cluster, ground.admin)
    with usage.Sampler(ground.cluster.id, interval=0.2) as sampler:
        served = [shape for shape in SHAPES if shape.name != "limited"]
        for shape in served:
            send(ground, shape, shape.name)
        namespace = ground.namespaces["churn"]
        wait_bound(ground, namespace)
        claims = ground.admin.list(RESOURCE_CLAIMS, namespace)
        for shape in served:
            sender(ground).delete(PODS, shape.name, namespace, grace_seconds=0)
        assert cleanup.settle(ground.admin, ground.names, before, 60) == []
    last = server.read(ground.cluster, ground.admin)
    samples = sampler.samples
    book = server.books(
        [first, last],
        sender_flow_schema=ground.users.sender.flow_schema,
        components=usage.components(samples, first.at, last.at),
    )

    assert len(claims) == sum(CLAIMS_BY.values()) == sum(shape.claims_per_pod for shape in served)
    devices = [len(claim["status"]["allocation"]["devices"]["results"]) for claim in claims]
    assert sum(devices) == sum(shape.devices_per_pod for shape in served)
    created = {name: found.get("success", 0) for name, found in book.claim_creates.items()}
    assert created == CLAIMS_BY
    assert book.claim_owners == {"Pod": sum(CLAIMS_BY.values())}
    (flow,) = [each for each in book.apf_flows if each.flow_schema == ground.users.sender.flow_schema]
    assert flow.dispatched >= 2 * len(served)
    assert flow.rejected == {}
    assert flow.priority_level == "workload-low"
    assert all(each.calls > 0 and each.mean < 0.01 for each in book.limiter)
    assert book.attempts["scheduled"] == len(served)
    assert book.attempts_per_pod is not None
    assert book.attempts_per_pod >= 1
    assert book.objects["pods"] == book.objects["resourceclaims"] == 0
    assert book.etcd_bytes is not None
    assert book.etcd_bytes > 500_000
    assert (book.faults, book.restarted) == ([], [])
    assert "resource_claim" in {queue.name for queue in book.workqueues}
    components = {each.name: each for each in book.components}
    for name in (
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kwok",
        "kubelet/node-1",
    ):
        assert components[name].rss_peak > 10_000_000
        assert components[name].restarts == 0
    assert components["kube-apiserver"].cpu_seconds > 0
    host = usage.host(samples, first.at, last.at)
    assert host is not None
    assert 0 < host.cpu <= 1


def test_a_quota_is_in_force_from_the_first_pod_on(ground: Ground) -> None:
    limited = SHAPES[-1]
    before = cleanup.census(ground.admin, ground.names)
    send(ground, limited, "within")
    with pytest.raises(ApiError) as raised:
        send(ground, limited, "beyond")
    assert raised.value.status == 403
    assert "exceeded quota" in raised.value.message
    wait_bound(ground, ground.namespaces["limited"])
    sender(ground).delete(PODS, "within", ground.namespaces["limited"], grace_seconds=0)
    assert cleanup.settle(ground.admin, ground.names, before, 60) == []


def test_claims_that_stay_are_leaked(ground: Ground) -> None:
    before = cleanup.census(ground.admin, ground.names)
    namespace = ground.names.name("fill")
    ground.admin.create(RESOURCE_CLAIMS, objects.claim(ground.names, "left", 1), namespace)
    (leaked,) = cleanup.settle(ground.admin, ground.names, before, 0.5)
    assert (leaked.invariant, leaked.object) == ("leaked-claim", f"{namespace}/left")
    ground.admin.delete(RESOURCE_CLAIMS, "left", namespace)
    assert cleanup.settle(ground.admin, ground.names, before, 60) == []


def test_a_fingerprint_says_what_the_run_was_under(ground: Ground) -> None:
    taken = fingerprint.take(
        ground.cluster, ground.admin, shape={"rate": 20}, run_id=ground.names.run_id, seed=7
    )
    facts = taken.facts
    assert facts["kubernetes.kube-scheduler"] == ground.cluster.kubernetes
    assert facts["flags.kube-controller-manager.kube-api-qps"] == "1000"
    assert facts["flags.kube-scheduler.kube-api-burst"] == "2000"
    assert facts["cluster.simulated-nodes"] == NODES_SIMULATED
    assert (facts["cluster.nodes"], facts["cluster.devices"]) == (1, DEVICES + 8)
    assert facts["gates.DRADeviceTaints"] is True
    assert str(facts["apf.level.workload-low"]).startswith("shares 100, ")
    assert facts["apf.schema.exempt"] == "1 exempt by nobody"
    assert facts["load.rate"] == 20
    assert not any(ground.names.token in key for key in facts)
    places = {key: value for key, value in facts.items() if "/" in str(value) and key.startswith("flags.")}
    assert places == {}
    assert taken.notes["seed"] == "7"
    again = fingerprint.take(
        ground.cluster, ground.admin, shape={"rate": 20}, run_id=ground.names.run_id, seed=8
    )
    assert taken.differences(again) == []


def test_a_killed_run_is_swept_and_limits_come_back(
    cluster: tuple[Cluster, LocalProvider], tmp_path: Path
) -> None:
    made, provider = cluster
    names = Names(f"killed-{secrets.token_hex(3)}")
    admin = KubeClient.from_kubeconfig(made.kubeconfig)
    users = identity.establish(made.kubeconfig, names, tmp_path / "keys", token_seconds=60)
    setup = KubeClient.from_kubeconfig(users.setup.kubeconfig)
    (namespace,) = prepare.namespaces(setup, names, SHAPES[:1], BUNDLED_DRIVER).values()
    setup.create(RESOURCE_CLAIMS, objects.claim(names, "c", 1), namespace)
    setup.create(PODS, objects.filler(names, "p", "sim-1", ["c"]), namespace)

    cleanup.sweep(made, names.run_id)

    with pytest.raises(ApiError) as raised:
        setup.list(NODES)
    assert raised.value.status in (401, 403)  # the server remembers for ten seconds that the token was valid
    before = limits.observed(made, admin)
    other = LimitSet.DEFAULT if before["kube-scheduler"] == Limits(1000, 2000) else LimitSet.OPEN
    changed = limits.apply(provider, made, admin, other)
    assert changed == dict(limits.SETS[other])
    back = LimitSet.OPEN if other is LimitSet.DEFAULT else LimitSet.DEFAULT
    assert limits.apply(provider, made, admin, back) == before
