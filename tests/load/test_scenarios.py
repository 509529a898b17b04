"""The arithmetic of what happens beside the churn, without a cluster."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from clusters.interface import ClusterSpec
from harness.kube import ApiError
from load.profiles.loader import find_profile
from load.profiles.plan import Plan, make_plan
from load.profiles.schema import PodShape, Via
from load.profiles.trial import Trial
from load.request import LoadRequest, Size
from load.scenarios import (
    apf,
    apf_requirements,
    burst,
    migrate,
    pools,
    quota,
    slices,
    soak,
    squeeze,
    steps,
    taint_witness,
    taints,
)
from load.scenarios.interface import Done
from load.scenarios.squeeze import Response, Victim

Object = dict[str, Any]


def plan(name: str, size: Size = Size.S, **asked: Any) -> Plan:
    request = LoadRequest(
        profile=name, run_dir=Path("none"), seed=1, spec=ClusterSpec(name="x"), size=size, **asked
    )
    return make_plan(find_profile(name), request)


def trial(*shapes: PodShape, rate: float = 10.0, hold: float = 2.0, seconds: float = 60.0) -> Trial:
    return Trial("main", shapes, rate=rate, warm_up=5.0, seconds=seconds, hold=hold, drain=60.0)


def shape(name: str, **fields: Any) -> PodShape:
    return PodShape.model_validate({"name": name, "via": Via.TEMPLATE, **fields})


class TestStepSearch:
    """Rates double until one is too much; then the middle between the last two, so many times."""

    def search(self, capacity: float, *, refine: int = 1, most: float = 320) -> list[float]:
        """The rates that are tried on a cluster that takes up to `capacity`."""
        search = steps.Search(first=5, factor=2, most=most, refine=refine)
        tried: list[tuple[float, bool]] = []
        while (rate := search.next(tried)) is not None:
            tried.append((rate, rate <= capacity))
            assert len(tried) < 30, "it has to end"
        return [rate for rate, _ in tried]

    @pytest.mark.parametrize(
        ("capacity", "refine", "rates"),
        [
            (45, 0, [5, 10, 20, 40, 80]),
            (45, 1, [5, 10, 20, 40, 80, 60]),
            (45, 3, [5, 10, 20, 40, 80, 60, 50, 45]),
            (65, 2, [5, 10, 20, 40, 80, 60, 70]),
            (7, 1, [5, 10, 7.5]),
            (3, 2, [5, 2.5, 3.75, 3.125]),
            (1.3, 0, [5, 2.5, 1.25]),
            (0.1, 1, [5, 2.5, 1.25]),
            (1000, 1, [5, 10, 20, 40, 80, 160, 320]),
        ],
    )
    def test_the_rates(self, capacity: float, refine: int, rates: list[float]) -> None:
        assert self.search(capacity, refine=refine) == rates

    def test_no_rate_beyond_the_most(self) -> None:
        assert self.search(1000, most=50) == [5, 10, 20, 40]

    def test_it_goes_on_from_a_higher_rate_that_was_fine(self) -> None:
        search = steps.Search(first=5, factor=2, most=320, refine=1)

        assert search.next([(20, True)]) == 40
        assert search.next([(20, False)]) == 10
        assert search.next([(20, False), (10, False)]) == 5
        assert search.next([(20, False), (10, False), (5, True)]) == 7.5
        assert search.next([(20, False), (10, False), (5, True), (7.5, False)]) is None


class TestQuota:
    """Four namespaces with a quarter of 16 pods/s each, held 2 s and half a second more: 10 devices each."""

    shapes = tuple(shape(name, namespaces=[name]) for name in ("a", "b", "c", "d"))

    def test_devices_that_a_namespace_needs(self) -> None:
        assert quota.need(trial(*self.shapes, rate=16), "a") == pytest.approx(10)
        assert quota.need(trial(*self.shapes, rate=16), "nowhere") == 0

    def test_weights_and_devices_count(self) -> None:
        """3 of 4 pods are `big`, 2 devices: 8/s x 3/4 x 2 x 2.5 s = 30; half of `small` is in `a`: 2.5."""
        big = shape("big", weight=3, devices=2, namespaces=["a"])
        small = shape("small", namespaces=["a", "b"])

        assert quota.need(trial(big, small, rate=8), "a") == pytest.approx(32.5)
        assert quota.need(trial(big, small, rate=8), "b") == pytest.approx(2.5)

    def test_room_is_twice_the_need_and_never_nothing(self) -> None:
        assert quota.room(trial(*self.shapes, rate=16), "a") == 20
        assert quota.room(trial(*self.shapes, rate=16), "nowhere") == 1

    @pytest.mark.parametrize(
        ("devices", "claims"), [(0, []), (1, [1]), (32, [32]), (33, [32, 1]), (70, [32, 32, 6])]
    )
    def test_portions_that_a_claim_may_ask_for(self, devices: int, claims: list[int]) -> None:
        assert quota.portions(devices) == claims


def claim(uid: str, pool: str, *, tolerates: bool = False, device: str = "gpu-0") -> Object:
    exactly: Object = {"tolerations": [{"operator": "Exists"}]} if tolerates else {}
    results = [{"driver": "d", "pool": pool, "device": device}]
    return {
        "metadata": {"uid": uid, "name": uid, "namespace": "ns"},
        "spec": {"devices": {"requests": [{"name": "device", "exactly": exactly}]}},
        "status": {"allocation": {"devices": {"results": results}}},
    }


class Silent:
    """A client of a cluster in which there is nothing and nothing happens."""

    def request(self, *_: object, **__: object) -> str:
        return '{"metadata": {"resourceVersion": "1"}, "items": []}'

    def watch(self, *_: object, **__: object) -> Iterator[Object]:
        raise ApiError("WATCH", "/", 410, "too old")


class TestTaints:
    def test_steps_fill_the_measured_time(self) -> None:
        """Six taints of 5 s with 5 s between, in 60 s after 3 s of warm-up: at 5.5 s, then every 10 s."""
        spec = taints.TaintToggles(kind="taint-toggles", shares=[0.1, 0.3, 1], on=5, off=5)
        made = taints.steps(spec, Trial("main", (), 16, 3, 60, 4, 60))

        assert [step.begin for step in made] == [5.5, 15.5, 25.5, 35.5, 45.5, 55.5]
        assert {step.end - step.begin for step in made} == {5}
        assert [(step.effect, step.share) for step in made] == [
            *(("NoSchedule", share) for share in (0.1, 0.3, 1)),
            *(("NoExecute", share) for share in (0.1, 0.3, 1)),
        ]

    def test_a_shorter_trial_has_shorter_taints(self) -> None:
        spec = taints.TaintToggles(kind="taint-toggles", shares=[1], on=5, off=5)

        (first, second) = taints.steps(spec, Trial("main", (), 16, 0, 10, 4, 60))

        assert (first.begin, first.end, second.begin, second.end) == (1.25, 3.75, 6.25, 8.75)

    def witness(self, *, begin: float, end: float = float("inf")) -> taint_witness.Witness:
        return taint_witness.Witness(tainted=[taint_witness.Tainted(frozenset({"node-1"}), begin, end)])

    def test_an_allocation_on_a_tainted_pool_is_wrong(self) -> None:
        witness = self.witness(begin=10, end=20)

        witness.claim("MODIFIED", claim("early", "node-1"), 9.9)
        witness.claim("MODIFIED", claim("during", "node-1"), 15)
        witness.claim("MODIFIED", claim("during", "node-1"), 16)
        witness.claim("MODIFIED", claim("elsewhere", "node-2"), 15)
        witness.claim("MODIFIED", claim("tolerant", "node-1", tolerates=True), 15)
        witness.claim("MODIFIED", claim("late", "node-1"), 20)

        assert len(witness.wrong) == 1
        assert "ns/during" in witness.wrong[0]

    def test_an_allocation_from_before_does_not_become_wrong(self) -> None:
        witness = self.witness(begin=10)

        witness.claim("MODIFIED", claim("old", "node-1"), 5)
        witness.claim("MODIFIED", claim("old", "node-1"), 12)

        assert not witness.wrong

    @pytest.mark.parametrize(
        ("counted", "seen", "raced", "crossed", "off"),
        [
            (56, 56, 0, 0, 0),
            (55, 56, 1, 0, 0),
            (55, 56, 0, 0, 1),
            (54, 56, 1, 0, 1),
            (57, 56, 1, 0, 1),
            (57, 56, 0, 1, 0),
            (58, 56, 0, 1, 1),
            (55, 56, 0, 1, 1),
        ],
    )
    def test_whose_delete_came_first_is_nobodys_error(
        self, counted: int, seen: int, raced: int, crossed: int, off: int
    ) -> None:
        assert taint_witness.evictions_off(counted, seen, raced, crossed) == off

    def test_a_pod_that_we_delete_just_when_it_is_to_be_evicted_may_be_counted(self) -> None:
        def pod(uid: str, node: str, template: str = "plain") -> Object:
            metadata = {
                "uid": uid,
                "name": uid,
                "namespace": "ns",
                "deletionTimestamp": "2026-11-30T01:02:03Z",
            }
            claims = [{"name": "claim-0", "resourceClaimTemplateName": template}]
            return {"metadata": metadata, "spec": {"nodeName": node, "resourceClaims": claims}, "status": {}}

        evicting = taint_witness.Tainted(frozenset({"node-1"}), begin=12, end=20, evicts=10)
        kept_off = taint_witness.Tainted(frozenset({"node-2"}), begin=12, end=20)
        witness = taint_witness.Witness(tainted=[evicting, kept_off], tolerating=frozenset({"tolerant"}))
        witness.pod("MODIFIED", pod("before", "node-1"), 9.9)
        witness.pod("MODIFIED", pod("crossed", "node-1"), 10.1)
        witness.pod("DELETED", pod("crossed", "node-1"), 10.2)
        witness.pod("DELETED", pod("tolerates", "node-1", "tolerant"), 10.2)
        witness.pod("DELETED", pod("not-evicted", "node-2"), 13)
        witness.pod("DELETED", pod("after", "node-1"), 20)

        assert witness.crossed == {"crossed"}
        assert witness.evicted == {}

    def test_evictions_are_counted_once_and_only_the_controllers(self) -> None:
        def pod(uid: str, reason: str = "", *, deleting: bool = False) -> Object:
            conditions = [{"type": "DisruptionTarget", "reason": reason}] if reason else []
            metadata: Object = {"uid": uid, "name": uid, "namespace": "ns"}
            if deleting:
                metadata["deletionTimestamp"] = "2026-11-30T01:02:03Z"
            return {"metadata": metadata, "spec": {}, "status": {"conditions": conditions}}

        witness = taint_witness.Witness()
        evicted = "DeletionByDeviceTaintManager"
        witness.pod("MODIFIED", pod("marked", evicted), 1)
        witness.pod("MODIFIED", pod("gone", evicted, deleting=True), 2)
        witness.pod("DELETED", pod("gone", evicted, deleting=True), 3)
        witness.pod("DELETED", pod("ours"), 4)
        witness.pod("MODIFIED", pod("preempted", "PreemptionByScheduler", deleting=True), 5)

        assert witness.evicted == {"gone": 2}

    def test_a_tolerating_pod_that_is_evicted_counts_though_our_delete_came_between(self) -> None:
        """The ledger doesn't know it: the delete was the generator's, and so was the end."""

        def pod(name: str, template: str) -> Object:
            condition = {"type": "DisruptionTarget", "reason": "DeletionByDeviceTaintManager"}
            return {
                "metadata": {"uid": name, "name": name, "namespace": "ns"},
                "spec": {"resourceClaims": [{"name": "claim-0", "resourceClaimTemplateName": template}]},
                "status": {"conditions": [condition]},
            }

        toggling = taints._Toggling(taints.TaintToggles(kind="taint-toggles"))
        load = trial(shape("intolerant"), shape("patient", tolerance="seconds"))
        namespaces = {"churn": "ns"}
        toggling.ground = cast(Any, SimpleNamespace(observer=Silent(), namespaces=namespaces))
        toggling.before(load)
        toggling._witness.pod("DELETED", pod("a", "patient"), 1)
        toggling._witness.pod("DELETED", pod("b", "intolerant"), 1)
        report = cast(Any, SimpleNamespace(causes_by_kind={}, raced_evictions=2))

        found = toggling.judge(Done(load, report, None, (), Path()))
        toggling.clean()

        assert found.figures["tolerating-evicted"].value == 1
        assert "pod ns/a was evicted, and tolerates" in found.notes


class Clock:
    """A trial's time that passes only while somebody waits for it, up to its end."""

    def __init__(self, *, end: float) -> None:
        self.now = 0.0
        self._end = end

    @property
    def over(self) -> bool:
        return self.now >= self._end

    def elapsed(self) -> float:
        return self.now

    def until(self, elapsed: float) -> bool:
        self.now = max(self.now, elapsed)
        return not self.over

    def pause(self, seconds: float) -> bool:
        return self.until(self.now + seconds)


class Writes:
    """A client each of whose writes takes so long."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds

    def replace(self, _: object, obj: Object) -> Object:
        self._clock.pause(self._seconds)
        return obj


class TestSlices:
    def test_an_allocation_from_a_half_updated_pool_is_wrong_once_it_has_settled(self) -> None:
        partial = slices.Partial(settle=2)
        partial.begin("node-1", 10)

        partial.claim("MODIFIED", claim("decided-before", "node-1"), 11.9)
        partial.claim("MODIFIED", claim("wrong", "node-1", device="gpu-3"), 12.1)
        partial.claim("MODIFIED", claim("elsewhere", "node-2"), 12.1)
        partial.end("node-1")
        partial.claim("MODIFIED", claim("whole-again", "node-1"), 20)

        assert partial.wrong == ["claim ns/wrong got gpu-3 of half-updated node-1"]

    @pytest.mark.parametrize(("takes", "fault"), [(0.1, ""), (0.16, "only 37 slices were updated under")])
    def test_a_storm_that_only_the_drain_completes_was_none(self, takes: float, fault: str) -> None:
        """10 updates a second were due over 6 s of load; the generator drains for a minute more."""
        storm = slices._Storm(slices.SliceStorm(kind="slice-storm", rate=10))
        clock = Clock(end=66)
        storm._pools = pools.Pools(cast(Any, Writes(clock, takes)), "d", "p", {})
        storm.ground = cast(Any, SimpleNamespace(plan=plan("slice-storm")))
        for node in ("a", "b", "c", "d"):
            contents = [{"pool": {"generation": 1}, "devices": [{"name": f"gpu-{i}"}]} for i in range(2)]
            storm._pools.pools[node] = pools.Pool(node, {}, [{"spec": content} for content in contents])
        load = trial(rate=1, seconds=1)

        storm.act(load, clock)
        found = storm.judge(Done(load, cast(Any, None), None, (), Path()))

        assert found.figures["slice-updates"].value > 400
        assert found.figures["slice-updates.rate"].value == pytest.approx(
            10 if not fault else 37 / 6, abs=0.2
        )
        assert [each[: len(fault)] for each in found.faults] == ([fault] if fault else [])

    @pytest.mark.parametrize(
        ("count", "number", "sizes"), [(8, 2, [4, 4]), (5, 2, [3, 2]), (3, 1, [3]), (2, 2, [1, 1])]
    )
    def test_devices_are_dealt_out(self, count: int, number: int, sizes: list[int]) -> None:
        dealt = pools.parts(count, number)

        assert [len(part) for part in dealt] == sizes
        assert list(itertools.chain(*dealt)) == [f"gpu-{index}" for index in range(count)]


class TestMigration:
    nodes = tuple(f"sim-{index}" for index in range(1, 21))

    def test_half_of_the_nodes_go_over_by_tenths_and_come_back(self) -> None:
        """20 nodes, 10 with a plugin, 2 at a time: 5 flips there, 5 back, evenly over 55 s after 5 s."""
        spec = migrate.Migrate(kind="migrate", plugin=0.5, step=0.1)

        made = migrate.flips(spec, self.nodes, trial(shape("a"), seconds=55))

        assert [flip.at for flip in made] == [5 + 5 * number for number in range(1, 11)]
        assert [flip.to_plugin for flip in made] == [False] * 5 + [True] * 5
        there, back = made[:5], made[5:]
        assert list(itertools.chain(*(flip.nodes for flip in there))) == list(self.nodes[:10])
        assert [flip.nodes for flip in back] == [flip.nodes for flip in reversed(there)]

    def test_more_pods_than_devices_are_seen(self) -> None:
        def pod(uid: str, node: str = "", *, dra: bool = False, amount: int = 1) -> Object:
            status = {"extendedResourceClaimStatus": {"resourceClaimName": "x"}} if dra else {}
            requests = {"cpu": "1", "example.com/gpu": str(amount)}
            container = {"resources": {"requests": requests}}
            metadata = {"uid": uid}
            spec: Object = {"containers": [container]} | ({"nodeName": node} if node else {})
            return {"metadata": metadata, "spec": spec, "status": status}

        occupancy = migrate.Occupancy(devices=2)
        occupancy.pod("ADDED", pod("a"), 1.0)
        occupancy.pod("MODIFIED", pod("a", "n"), 1.5)
        occupancy.pod("ADDED", pod("b", "n", dra=True), 2.0)
        occupancy.pod("DELETED", pod("a", "n"), 3.0)
        occupancy.pod("ADDED", pod("c", "n"), 3.0)
        assert not occupancy.over
        occupancy.pod("ADDED", pod("d", "n"), 4.0)

        assert occupancy.over == ["3 devices of n are in use, it has 2"]
        assert occupancy.most == 3
        assert occupancy.bound == {"plugin": [0.5, 0.0, 0.0], "dra": [0.0]}
        assert occupancy.on("n") == 3

    def test_several_devices_of_one_pod_count(self) -> None:
        pod = {
            "metadata": {"uid": "a"},
            "spec": {
                "nodeName": "n",
                "containers": [{"resources": {"requests": {"example.com/gpu": "3"}}}],
            },
        }
        occupancy = migrate.Occupancy(devices=2)

        occupancy.pod("ADDED", pod, 1.0)

        assert occupancy.over


class TestSweep:
    def test_the_arms_of_size_s(self) -> None:
        """1 control, 3 victims x 2 responses x 2 shares, 2 with the aggressor, 1 kubelet, 2 shut."""
        arms = plan("apf-starve").scenario.arm_names()

        assert len(arms) == 1 + 12 + 2 + 1 + 2 == len(set(arms))
        assert arms[0] == "control"
        assert {"generator-reject-1-list", "kcm-queue-1x5-5", "scheduler-reject-1-list"} < set(arms)

    def test_the_arms_of_size_m(self) -> None:
        """As the issue has it: shares {1,2,5,20} x three responses x three victims."""
        arms = plan("apf-starve", Size.M).scenario.arm_names()

        assert len(arms) == 1 + 4 * 3 * 3 + 3 + 2

    @pytest.mark.parametrize(
        ("tried", "words"),
        [
            ([(1, True), (2, True), (5, False), (20, False)], "5 shares are enough, 2 are not"),
            ([(1, False), (5, False)], "1 shares are enough; none fewer was tried"),
            ([(1, True), (5, True)], "starved with up to 5 shares"),
            ([(1, False), (5, True)], "no clear knee: starved with 5 shares, though not with 1"),
        ],
    )
    def test_the_knee(self, tried: list[tuple[int, bool]], words: str) -> None:
        assert apf.knee(tried) == words

    def test_a_level_borrows_and_lends_nothing(self) -> None:
        reject = squeeze.level("n", 2, Response.REJECT, {})["spec"]["limited"]
        queue = squeeze.level("n", 2, Response.SHORT_QUEUE, {})["spec"]["limited"]

        assert (reject["lendablePercent"], reject["borrowingLimitPercent"]) == (0, 0)
        assert reject["nominalConcurrencyShares"] == 2
        assert reject["limitResponse"] == {"type": "Reject"}
        assert queue["limitResponse"]["queuing"] == {"queues": 1, "queueLengthLimit": 5, "handSize": 1}

    def test_a_schema_is_for_the_runs_namespaces_alone(self) -> None:
        made = squeeze.schema("n", "n", ["system:kube-scheduler"], ["mine"], {})

        (rule,) = made["spec"]["rules"]
        assert rule["resourceRules"][0]["namespaces"] == ["mine"]
        assert "clusterScope" not in rule["resourceRules"][0]
        assert made["spec"]["matchingPrecedence"] < 800, "before the components' own"

    def test_events_name_the_pods_whose_claims_were_rejected(self) -> None:
        def event(reason: str, message: str, pod: str) -> Object:
            about = {"namespace": "ns", "name": pod}
            return {"involvedObject": about, "reason": reason, "message": message}

        witness = apf_requirements.Witness()
        for reason, message, pod in (
            ("FailedScheduling", "running PreBind plugin: create claim for extended resources: 429", "a"),
            ("FailedScheduling", "0/3 nodes are available", "b"),
            ("FailedResourceClaimCreation", "PodResourceClaim x: too many requests", "c"),
        ):
            witness.event("ADDED", event(reason, message, pod), 0)

        assert (witness.special, witness.template) == ({"ns/a"}, {"ns/c"})

    def test_a_victim_is_known_by_its_users(self) -> None:
        assert squeeze.USERS[Victim.SCHEDULER] == ("system:kube-scheduler",)
        assert len(squeeze.USERS[Victim.CONTROLLER_MANAGER]) == 2


class TestBurst:
    def pod(self, uid: str, *names: str | None, special: str = "") -> Object:
        status: Object = {
            "resourceClaimStatuses": [
                {"name": f"claim-{index}", "resourceClaimName": name} for index, name in enumerate(names)
            ]
        }
        if special:
            status["extendedResourceClaimStatus"] = {"resourceClaimName": special}
        return {"metadata": {"uid": uid}, "status": status}

    def flaps(self, *states: Object) -> int:
        flaps = burst.Flaps()
        for state in states:
            flaps.handle("MODIFIED", state, 0)
        return flaps.flaps

    def test_a_status_that_comes_and_stays_is_none(self) -> None:
        assert self.flaps(self.pod("a"), self.pod("a", "x"), self.pod("a", "x")) == 0

    def test_another_claim_or_none_is_one(self) -> None:
        assert self.flaps(self.pod("a", "x"), self.pod("a", "y")) == 1
        assert self.flaps(self.pod("a", "x"), self.pod("a"), self.pod("a", "x")) == 1
        assert self.flaps(self.pod("a", special="x"), self.pod("a", special="y")) == 1

    def test_another_pods_status_is_its_own(self) -> None:
        assert self.flaps(self.pod("a", "x"), self.pod("b", "y")) == 0


def memory(minutes: range, rss: float, hourly: float = 0.0, *, pid: int = 1) -> list[soak.Memory]:
    """A process that takes so much at first, and so much more in an hour."""
    return [
        soak.Memory(60.0 * minute, rss + hourly * (minute - minutes.start) / 60, pid) for minute in minutes
    ]


class TestSoak:
    def test_growth_per_hour(self) -> None:
        """100 MiB that grow by 1 MiB every 6 minutes: 10 MiB an hour, of 100 to 200 about 150 on average."""
        # The first of ten hours is left out: 110 to 200, so 155 on average.
        assert soak.growth(memory(range(601), 100, 10)) == pytest.approx(100 * 10 / 155, rel=1e-3)

    def test_a_component_that_is_restarted_grows_in_between(self) -> None:
        """Two hours from 100 MiB and two from 100 again, 8 an hour; each's first half hour is left out."""
        samples = memory(range(121), 100, 8) + memory(range(121, 242), 100, 8, pid=2)

        # 104 to 116, so 110 on average.
        assert soak.growth(samples) == pytest.approx(100 * 8 / 110, rel=1e-3)

    def test_what_a_restart_gives_back_is_no_shrinking_and_what_it_takes_no_growth(self) -> None:
        flat = [memory(range(60 * n, 60 * n + 60), rss, pid=n) for n, rss in enumerate((100, 20, 300))]

        assert soak.growth(list(itertools.chain(*flat))) == pytest.approx(0)

    def test_a_process_that_ran_too_shortly_does_not_count(self) -> None:
        short = memory(range(9), 10, 1000)

        assert soak.growth(short + memory(range(9, 130), 50, pid=2)) == pytest.approx(0)
        assert soak.growth(short) is None

    def test_too_little_says_nothing(self) -> None:
        assert soak.growth([]) is None
        assert soak.growth(memory(range(20), 1, 1)) is None, "15 samples have settled"
