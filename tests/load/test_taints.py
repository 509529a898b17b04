"""Taints beside the churn, and what the watches show of them, without a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.kube import ApiError
from load.profiles.trial import Trial
from load.scenarios import taint_witness, taints
from load.scenarios.interface import Done
from tests.support.load_trials import Object, claim, shape, trial


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
