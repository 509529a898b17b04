"""The arithmetic of what happens beside the churn, without a cluster."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from load.request import Size
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
)
from load.scenarios.interface import Done
from load.scenarios.squeeze import Response, Victim
from tests.support.load_trials import Object, claim, plan, shape, trial


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

    def test_few_pods_come_where_no_claim_is_made(self) -> None:
        """With more of them the server would ask clients to wait too long for any to give up."""
        sweep = cast(Any, plan("apf-starve").scenario.make())
        sweep.ground = SimpleNamespace(plan=plan("apf-starve"))

        trials = {trial.name: trial for trial in sweep.trials()}

        shut, other = trials["scheduler-shut"], trials["scheduler-reject-1"]
        assert (shut.rate, other.rate) == (0.5, 20)
        assert shut.phases[0][1] > 11 > other.phases[0][1], "eleven tries, a second apart"
        assert shut.seconds == sum(seconds for _, seconds in shut.phases)

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

    def test_a_schema_can_be_for_the_making_of_claims_alone(self) -> None:
        made = squeeze.schema("n", "n", ["u"], ["mine"], {}, requests=squeeze.MAKING_CLAIMS)

        assert made["spec"]["rules"][0]["resourceRules"] == [
            {
                "verbs": ["create"],
                "apiGroups": ["resource.k8s.io"],
                "resources": ["resourceclaims"],
                "namespaces": ["mine"],
            }
        ]

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
