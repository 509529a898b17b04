"""What trials say about requirements, from the figures alone."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from harness.kube import KubeClient
from harness.results import Result
from load.books import ServerBooks, Workqueue
from load.histogram import LatencyHistogram, Quantile
from load.model import Cause, Lateness, Stage, Timeline, Violation, WorkerReport
from load.node import percentile
from load.profiles.schema import PodShape, Via
from load.profiles.trial import Trial
from load.scenarios import apf, beside, node_trials, reference, taints
from load.scenarios.apf_requirements import Outcomes, Witness
from load.scenarios.follow import Backlog
from load.scenarios.interface import Done, Findings
from load.scenarios.podresources import Answers
from load.scenarios.readings import bound_rate, quantile, unfinished
from load.scenarios.reference import near_full_seconds
from load.scenarios.squeeze import Response, Victim

TRIAL = Trial("arm", (PodShape(name="a", via=Via.TEMPLATE),), 10, 2, 10, 2, 60)


def report(
    *bound: float,
    causes: dict[Cause, int] | None = None,
    timelines: list[Timeline] | None = None,
    violations: list[Violation] | None = None,
    censored: int = 0,
) -> WorkerReport:
    """A report in which pods were bound so many seconds after they were due, some never after 60 s."""
    histogram = LatencyHistogram()
    for seconds in bound:
        histogram.record(seconds)
    for _ in range(censored):
        histogram.censor(60)
    counts = causes or {Cause.COMPLETED: len(bound)}
    return WorkerReport(
        intended=sum(counts.values()),
        causes=counts,
        causes_by_kind={},
        causes_by_namespace={},
        samples=[histogram.samples(Stage.BOUND, "a", "measured")],
        lateness=Lateness(histogram=LatencyHistogram().encode(), count=0),
        requests=[],
        violations=violations or [],
        gaps=[],
        timelines=timelines or [],
        claims_seen=0,
        seconds=10,
        cpu_seconds=1,
        started_at=1000,
        last_arrival_at=1010,
        drained_at=1030,
    )


def done(books: ServerBooks | None = None, **fields: object) -> Done:
    return Done(TRIAL, report(0.1, **fields), books or ServerBooks(), (), Path())  # type: ignore[arg-type]


def results(victim: Victim, trial: Done, witness: Witness, rejected: int) -> dict[str, Result]:
    outcomes = Outcomes()
    outcomes.arm(victim, trial, witness, rejected)
    return {each.requirement: each.result for each in outcomes.results()}


class TestReadings:
    def test_a_rate_without_backlog_is_over_the_arrivals(self) -> None:
        assert bound_rate(report(*[0.1] * 50)) == 5.0

    def test_with_a_backlog_it_is_over_the_drain_as_well(self) -> None:
        """60 pods that waited for 5 s were bound in 30 s."""
        assert bound_rate(report(*[5.0] * 60)) == 2.0

    def test_what_never_came_is_in_the_quantile_and_unfinished(self) -> None:
        trial = report(0.1, causes={Cause.COMPLETED: 1, Cause.NOT_BOUND: 1}, censored=1)

        p99 = quantile(trial, Stage.BOUND, 0.99)

        assert p99 is not None
        assert p99.at_least
        assert p99.seconds == pytest.approx(60, rel=1e-3)
        assert unfinished(trial) == 1
        assert quantile(trial, Stage.BOUND, 0.99, window="other") is None

    def test_the_share_near_full_seconds(self) -> None:
        assert near_full_seconds(report(0.1, 0.5, 1.05, 2.0)) == 0.5


class TestBeside:
    def test_partitions_share_four_quarters(self) -> None:
        made = beside.partitions()

        assert [each["name"] for each in made] == [
            *("whole-0", "half-0", "half-1"),
            *(f"quarter-{index}" for index in range(4)),
        ]
        used = [int(each["consumesCounters"][0]["counters"]["quarters"]["value"]) for each in made]
        assert used == [4, 2, 2, 1, 1, 1, 1]
        assert [each["attributes"]["quarters"]["int"] for each in made] == used

    @pytest.mark.parametrize(
        ("p99", "quiet", "result"),
        [
            (0.30, 0.10, Result.PASS),  # within a quarter of a second
            (0.40, 0.10, Result.FAIL),
            (2.9, 2.0, Result.PASS),  # within one and a half times
            (3.1, 2.0, Result.FAIL),
        ],
    )
    def test_as_fast_as_before(self, p99: float, quiet: float, result: Result) -> None:
        assert beside.as_fast(100, Quantile(p99), Quantile(quiet)).result is result

    def test_a_p99_that_may_be_longer_is_not_as_fast(self) -> None:
        assert beside.as_fast(100, Quantile(0.1, at_least=True), Quantile(1.0)).result is Result.FAIL

    @pytest.mark.parametrize(("attempts", "result"), [(0, Result.FAIL), (1, Result.FAIL), (2, Result.PASS)])
    def test_the_pod_is_tried_again(self, attempts: int, result: Result) -> None:
        assert beside.timed_out(attempts).result is result


class TestNode:
    @pytest.mark.parametrize(
        ("values", "share", "expected"),
        [([], 99, None), ([3.0], 50, 3.0), ([1, 2, 3, 4], 50, 2), (list(range(1, 101)), 99, 99)],
    )
    def test_percentiles(self, values: list[float], share: float, expected: float | None) -> None:
        assert percentile(values, share) == expected

    def test_metadata_may_add_less_than_ten_milliseconds(self) -> None:
        without = [0.010] * 200

        assert node_trials.added(without, [0.019] * 200).result is Result.PASS
        assert node_trials.added(without, [0.021] * 200).result is Result.FAIL

    def test_too_few_calls_have_no_p99(self) -> None:
        result = node_trials.added([0.01] * 99, [5.0] * 200)

        assert result.result is Result.SKIPPED
        assert "99 and 200 calls" in result.message

    def test_pod_resources_answer_in_time(self) -> None:
        fast = [0.010] * 999

        assert node_trials.answered(Answers(fast, []), 100).result is Result.PASS
        assert node_trials.answered(Answers([*fast, *[0.2] * 20], []), 100).result is Result.FAIL
        assert node_trials.answered(Answers(fast, ["refused"]), 100).result is Result.FAIL, "0.1 % failed"
        assert node_trials.answered(Answers([0.01] * 1000, ["refused"]), 100).result is Result.PASS
        assert node_trials.answered(None, 100).result is Result.SKIPPED


class Pauses:
    """A trial's time that has so many pauses left, of no length."""

    over = False

    def __init__(self, left: int) -> None:
        self._left = left

    def elapsed(self) -> float:
        return 0.0

    def until(self, elapsed: float) -> bool:
        return self.pause(0)

    def pause(self, seconds: float) -> bool:
        self._left -= 1
        return self._left >= 0


class TestApf:
    stuck = Timeline(pod="ns/a", kind="a", due=0, cause=Cause.NOT_BOUND)
    books = ServerBooks(
        client_429={"kube-scheduler": 50},
        claim_creates={"kube-scheduler": {"failure": 3, "success": 20}},
        workqueues=[Workqueue(component="kube-controller-manager", name="resource_claim", adds=9, retries=4)],
    )

    def test_a_rejected_pod_is_bound_afterwards(self) -> None:
        witness = Witness(special={"ns/a"})

        assert results(Victim.SCHEDULER, done(self.books), witness, 50)["APF-01"] is Result.PASS
        lost = done(self.books, timelines=[self.stuck])
        assert results(Victim.SCHEDULER, lost, witness, 50)["APF-01"] is Result.FAIL

    def test_counters_of_both_sides(self) -> None:
        found = results(Victim.SCHEDULER, done(self.books), Witness(), 50)

        assert (found["APF-02"], found["APF-04"]) == (Result.PASS, Result.PASS)
        fewer = results(Victim.SCHEDULER, done(self.books), Witness(), 49)
        assert fewer["APF-04"] is Result.FAIL, "the scheduler got an answer that the server doesn't know of"

    def test_without_a_rejection_nothing_is_said(self) -> None:
        found = results(Victim.SCHEDULER, done(self.books), Witness(), 0)

        assert set(found.values()) == {Result.SKIPPED}

    @pytest.mark.parametrize("victim", [Victim.SCHEDULER, Victim.KUBELET])
    def test_what_was_rejected_by_one_of_several_api_servers_says_nothing(self, victim: Victim) -> None:
        outcomes = Outcomes()

        outcomes.arm(victim, done(self.books), Witness(), None)

        assert {each.result for each in outcomes.results()} == {Result.SKIPPED}
        said = [each.message for each in outcomes.results() if each.requirement != "APF-01"]
        assert set(said) == {"arm: what the API server rejected isn't known"}

    @pytest.mark.parametrize(("unread", "told"), [([], True), (["kube-apiserver"], False)])
    def test_an_arm_has_no_figure_of_what_nobody_knows(self, unread: list[str], told: bool) -> None:
        setting = apf.Setting(Victim.SCHEDULER, Response.REJECT, 1)
        sweep = apf._Sweep(
            apf.ApfSweep(kind="apf-sweep", victims=[setting.victim], responses=[setting.response], shares=[1])
        )
        findings = Findings()

        sweep._note_books(done(ServerBooks(unread=unread)), findings, "squeezed", setting)

        assert {"rejected", "queued"} & findings.figures.keys() == ({"rejected", "queued"} if told else set())
        assert "generator-429" in findings.figures

    def test_a_node_that_is_squeezed_has_recovered_once_its_pods_run(self) -> None:
        """Bound pods that don't run are what a squeezed kubelet looks like."""
        sweep = apf._Sweep(
            apf.ApfSweep(kind="apf-sweep", victims=[Victim.KUBELET], responses=[Response.REJECT], shares=[1])
        )
        sweep._backlog = backlog = Backlog(cast(KubeClient, None), ["ns"], running=True)
        metadata = {"uid": "u", "name": "a", "namespace": "ns"}
        bound: dict[str, object] = {"metadata": metadata, "spec": {"nodeName": "n"}}
        sweep._released_at = time.time()
        backlog._handle("ADDED", bound, sweep._released_at - 1)

        sweep._await_recovery(Pauses(3), Stage.RUNNING)
        assert sweep._recovered_at is None

        backlog._handle("MODIFIED", {**bound, "status": {"phase": "Running"}}, time.time())
        sweep._await_recovery(Pauses(1), Stage.RUNNING)
        assert sweep._recovered_at is not None

    def test_a_second_claim_breaks_the_third(self) -> None:
        twice = Violation(invariant="duplicate-claim", at=0, object="ns/a", message="two")

        broken = done(self.books, violations=[twice])

        assert results(Victim.SCHEDULER, broken, Witness(), 50)["APF-03"] is Result.FAIL
        assert results(Victim.SCHEDULER, done(self.books), Witness(), 50)["APF-03"] is Result.PASS

    def test_the_claim_controller_tries_again_until_all_claims_are_there(self) -> None:
        witness = Witness(template={"ns/a"})

        assert results(Victim.CONTROLLER_MANAGER, done(self.books), witness, 9)["APF-05"] is Result.PASS
        missing = done(self.books, causes={Cause.COMPLETED: 1, Cause.NO_CLAIM: 1})
        assert results(Victim.CONTROLLER_MANAGER, missing, witness, 9)["APF-05"] is Result.FAIL

    def test_what_a_controller_out_of_reach_retried_says_nothing(self) -> None:
        witness, unread = Witness(template={"ns/a"}), ServerBooks(unread=["kube-controller-manager"])

        assert results(Victim.CONTROLLER_MANAGER, done(unread), witness, 9)["APF-05"] is Result.SKIPPED

    def test_pods_on_a_squeezed_node_come_late_and_none_is_lost(self) -> None:
        assert results(Victim.KUBELET, done(), Witness(), 9)["APF-06"] is Result.PASS
        lost = done(causes={Cause.COMPLETED: 1, Cause.NOT_RUNNING: 1})
        assert results(Victim.KUBELET, lost, Witness(), 9)["APF-06"] is Result.FAIL

    def test_the_worst_arm_counts_and_silent_ones_do_not(self) -> None:
        outcomes = Outcomes()
        outcomes.arm(Victim.SCHEDULER, done(self.books), Witness(), 0)
        outcomes.arm(Victim.SCHEDULER, done(self.books), Witness(special={"ns/a"}), 50)

        found = {each.requirement: each.result for each in outcomes.results()}

        assert found["APF-01"] is Result.PASS


class TestReference:
    @pytest.mark.parametrize(("unread", "result"), [([], Result.PASS), (["kube-apiserver"], Result.BLOCKED)])
    def test_without_the_api_servers_count_nothing_is_said_of_rejections(
        self, unread: list[str], result: Result
    ) -> None:
        comparing = reference._Comparing(reference.Reference(kind="reference", trial="plugin"))
        dra, plugin = (
            replace(done(ServerBooks(unread=unread)), trial=replace(TRIAL, name=name))
            for name in ("main", "plugin")
        )

        found = comparing.conclude([dra, plugin])

        assert [(each.requirement, each.result) for each in found.requirements] == [("APF-07", result)]
        assert found.figures["dra-to-plugin"].value == 1


class TestEvictions:
    @pytest.mark.parametrize(("unread", "faults"), [(["kube-controller-manager"], 0), ([], 1)])
    def test_a_counter_out_of_reach_is_no_fault_and_no_requirement_fails_by_it(
        self, unread: list[str], faults: int
    ) -> None:
        toggling = taints._Toggling(taints.TaintToggles(kind="taint-toggles", evict=1))
        toggling._mass_at, toggling._witness.evicted = 1000.0, {"uid": 1000.5}
        books = ServerBooks(unread=unread)

        found = toggling.judge(replace(done(books), trial=replace(TRIAL, name="mass-eviction")))

        assert len(found.faults) == faults
        assert "evictions-off" not in found.figures
        assert [(each.requirement, each.result) for each in found.requirements] == [
            ("TNT-16", Result.BLOCKED)
        ]
