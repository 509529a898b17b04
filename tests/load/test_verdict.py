from __future__ import annotations

from typing import Any

import pytest

from harness.results import Result
from load.books import ApiLatency, BookLine
from load.model import Cause, Gap, Violation
from load.profiles.loader import find_profile
from load.profiles.schema import Criterion
from load.result import Check, Figure, RequirementResult, Standing, TrialResult, Verdict
from load.verdict import Judgement, judge
from tests.support.load_results import server_books, trial

P99 = Criterion(measure="bound.p99", at_most=1.0, because="the SLO")


def judged(*trials: TrialResult, criteria: tuple[Criterion, ...] = (P99,), **more: Any) -> Judgement:
    return judge(trials or [trial()], {}, criteria, **more)


def generator(**changes: Any) -> dict[str, Any]:
    return {"generator": trial().generator.model_copy(update=changes)}


def host(cpu: float, steal: float = 0.0) -> dict[str, Any]:
    found = trial().host
    assert found
    return {"host": found.model_copy(update={"cpu": cpu, "steal": steal})}


def book(client: int | None, server: int | None, *, binding: bool = True) -> dict[str, Any]:
    line = BookLine(name="answers 429", client=client, server=server, binding=binding, source="the metric")
    return {"books": [line]}


def causes(**counts: int) -> dict[str, Any]:
    return {"causes": {Cause(name.replace("_", "-")): count for name, count in counts.items()}}


def test_a_run_with_which_nothing_is_wrong_passes() -> None:
    result = judged()
    assert (result.verdict, result.reasons, result.verdict.exit_code) == (Verdict.PASS, [], 0)
    assert all(check.ok for check in result.checks)
    assert {"send-lateness", "host-cpu", "dropped", "identity", "watch", "bound.p99"} <= {
        check.name for check in result.checks
    }


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (generator(lateness_p99=0.02), "the generator sent late: p99 20.0 ms after the due time"),
        (host(0.90), "the machine was busy: 90% of its CPU"),
        (
            host(0.50, 0.45),
            "the machine was busy: 95% of its CPU, 45% by others under its hypervisor",
        ),
        ({"host": None}, "the machine's CPU was not measured"),
        (
            causes(completed=8, dropped_by_generator=2),
            "2 pods were never sent: the generator was at its limit",
        ),
        ({"intended": 0}, "no pod came due: nothing was measured"),
        (
            generator(standing=Standing.EXEMPT),
            "the generator's requests are exempt from priority and fairness",
        ),
        (
            generator(standing=Standing.OTHER),
            "the generator's requests were not in the FlowSchema made for them",
        ),
        (
            generator(standing=Standing.UNKNOWN),
            "no answer said where priority and fairness put the generator's requests",
        ),
        (
            {"gaps": [Gap(kind="pods", at=1.0, seconds=2.5, relisted=True, reason="410 Gone")]},
            "a watch was lost and had to list again: pods at 00:00:01 for 2.5 s (410 Gone)",
        ),
        (
            {"gaps": [Gap(kind="pods", at=3661.0, seconds=0.2, relisted=False, reason="reset", late=0.26)]},
            "a watch was away, and what it missed came late: "
            "pods at 01:01:01 for 0.2 s, events up to 0.3 s late (reset)",
        ),
        (book(12, 11), "the books don't balance: answers 429: 12, but 11 by the metric"),
        (book(0, None), "the books don't balance: answers 429: 0, but not known by the metric"),
        (generator(faults=["the clock jumped"]), "the clock jumped"),
        ({"server": server_books(faults=["kube-apiserver began again"])}, "kube-apiserver began again"),
        ({"server": None}, "the servers were not read"),
    ],
)
def test_numbers_that_can_not_be_trusted_make_it_invalid(change: dict[str, Any], reason: str) -> None:
    result = judged(trial(**change))
    assert (result.verdict, result.verdict.exit_code) == (Verdict.INVALID, 3)
    assert reason in result.reasons


@pytest.mark.parametrize(
    "change",
    [
        generator(lateness_p99=0.0199),
        host(0.899),
        {"gaps": [Gap(kind="pods", at=1.0, seconds=9, relisted=False, reason="reset", late=0.25)]},
        {
            "gaps": [Gap(kind="pods", at=1.0, seconds=1, relisted=False, reason="reset", late=0.5)],
            "saturates": True,
        },
        {"gaps": [Gap(kind="slices", at=1.0, seconds=40, relisted=False, reason="nothing was missed")]},
        host(0.50, 0.39),
        book(12, 11, binding=False),
        book(12, 12),
    ],
)
def test_what_is_just_good_enough_passes(change: dict[str, Any]) -> None:
    assert judged(trial(**change)).verdict is Verdict.PASS


def test_every_reason_is_named_and_validity_comes_first() -> None:
    bad = trial(**host(0.95), **generator(lateness_p99=0.1), **causes(completed=5, not_bound=5))
    result = judged(bad)
    assert result.verdict is Verdict.INVALID
    assert len(result.reasons) == 2  # a gate that was missed says nothing here
    assert [check.name for check in result.checks if not check.ok] == [
        "send-lateness",
        "host-cpu",
        "unfinished",
    ]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (causes(completed=7, not_bound=2, no_claim=1), "unfinished is 3, expected at most 0"),
        (causes(completed=9, server_error=1), "causes.server-error is 1, expected at most 0"),
        (causes(completed=9, apf_rejected=1), "causes.apf-rejected is 1, expected at most 0"),
        (causes(completed=9, quota_denied=1), "causes.quota-denied is 1, expected at most 0"),
        (causes(completed=9, evicted=1), "causes.evicted is 1, expected at most 0"),
        (
            {"violations": [Violation(invariant="duplicate-claim", at=1.0, object="n/p", message="two")]},
            "violations is 1, expected at most 0",
        ),
        (
            {
                "violations": [
                    Violation(invariant="duplicate-claim", at=1.0, object=name, message="two", count=count)
                    for name, count in (("n/p", 1), ("*", 17))
                ]
            },
            "violations is 18, expected at most 0",
        ),
        ({"server": server_books(restarted=["kube-scheduler"])}, "restarts is 1, expected at most 0"),
    ],
)
def test_what_must_never_happen_fails_it(change: dict[str, Any], reason: str) -> None:
    result = judged(trial(**change))
    assert (result.verdict, result.reasons, result.verdict.exit_code) == (Verdict.FAIL, [reason], 1)


@pytest.mark.parametrize(("planned", "verdict"), [(1, Verdict.PASS), (0, Verdict.FAIL)])
def test_a_soak_has_the_restarts_that_were_planned_and_no_other(planned: int, verdict: Verdict) -> None:
    stated = [criterion.measure for criterion in find_profile("soak").criteria]
    books = server_books(restarted=["kube-scheduler"], planned_restarts={"kube-scheduler": planned})

    assert judged(trial(server=books), stated=stated).verdict is verdict
    assert judged(trial(), trial("full-node", server=books), stated=stated).verdict is verdict


def test_a_missed_gate_says_what_was_expected_and_why() -> None:
    slow = judged(criteria=(Criterion(measure="bound.p99", at_most=0.05, because="the SLO"),))
    assert (slow.verdict, slow.reasons) == (
        Verdict.FAIL,
        ["bound.p99 is 0.1 s, expected at most 0.05 (the SLO)"],
    )


def test_a_lower_bound_is_not_enough_to_pass() -> None:
    stages = [
        row.model_copy(update={"p99": Figure(value=0.9, unit="s", at_least=True)}) for row in trial().stages
    ]
    result = judged(trial(stages=stages))
    assert result.reasons == ["bound.p99 is >= 0.9 s, expected at most 1 (the SLO)"]


def test_what_metrics_out_of_reach_would_say_keeps_no_run_from_a_verdict() -> None:
    counted = Criterion(measure="special-claims-off", at_most=0)
    books = server_books().model_copy(update={"unread": ["kube-scheduler"]})
    result = judged(trial(server=books), criteria=(P99, counted))
    assert result.verdict is Verdict.PASS
    unknown = [check for check in result.checks if check.unknown]
    assert [check.name for check in unknown] == ["special-claims-off", "restarts"]
    assert {(check.ok, check.limit) for check in unknown} == {(True, "at most 0")}
    slow = judged(trial(server=books), criteria=(Criterion(measure="bound.p99", at_most=0.001), counted))
    assert slow.verdict is Verdict.FAIL


def test_a_restart_that_was_seen_counts_though_others_are_out_of_reach() -> None:
    books = server_books(unread=["kube-scheduler"], restarted=["kube-controller-manager"])
    assert judged(trial(server=books)).reasons == ["restarts is 1, expected at most 0"]


@pytest.mark.parametrize(
    ("measure", "component"),
    [
        ("evictions-off", "kube-controller-manager"),
        ("special-claims-off", "kube-scheduler"),
        ("limiter.kube-scheduler", "kube-scheduler"),
        ("main.limiter.kube-scheduler", "kube-scheduler"),
        ("api.single.p99", "kube-apiserver"),
        ("rejected", "kube-apiserver"),
        ("main.queued", "kube-apiserver"),
    ],
)
def test_only_what_comes_from_a_component_out_of_reach_may_be_missing(measure: str, component: str) -> None:
    criterion = (Criterion(measure=measure, at_most=1),)
    for unread in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        books = server_books(unread=[unread], limiter=[], apf_flows=[], api=[])
        missing = [] if unread == component or measure == "rejected" else [f"{measure} was not measured"]
        assert judged(trial(server=books), criteria=criterion).reasons == missing


def test_what_is_out_of_reach_in_one_trial_may_be_missing_in_that_one_only() -> None:
    criterion = (Criterion(measure="other.evictions-off", at_most=0),)
    books = server_books(unread=["kube-controller-manager"])
    assert judged(trial(), trial("other", server=books), criteria=criterion).verdict is Verdict.PASS
    assert judged(trial(server=books), trial("other"), criteria=criterion).verdict is Verdict.INVALID


@pytest.mark.parametrize(
    "measure",
    [
        *("running.p99", "kind.x.bound.p99", "main.window.after.bound.p99"),
        *("recovery", "real.prepare-errors", "real.claims-in-use", "objects-left"),
    ],
)
def test_what_no_components_metrics_say_is_not_out_of_reach(measure: str) -> None:
    books = server_books(unread=["kube-apiserver", "kube-controller-manager", "kube-scheduler"])
    result = judged(trial(server=books), criteria=(Criterion(measure=measure, at_most=1),))
    assert (result.verdict, result.reasons) == (Verdict.INVALID, [f"{measure} was not measured"])


def answers(single: float | None, listed: float | None = 0.05) -> dict[str, Any]:
    """Books of an API server that answered with these p99s; None is beyond the last bucket."""
    rows = [
        ApiLatency(verb=verb, resource="pods", scope=scope, count=100, p50=0.01, p99=p99)
        for verb, scope, p99 in (("POST", "resource", single), ("LIST", "cluster", listed))
    ]
    return {"server": server_books(api=rows)}


@pytest.mark.parametrize(
    ("change", "reasons"),
    [
        (answers(1.0, 30.0), []),
        (answers(1.25), ["api.single.p99 is 1.25 s, expected at most 1 (the API server's SLO)"]),
        (answers(None), ["api.single.p99 is >= 60 s, expected at most 1 (the API server's SLO)"]),
        (answers(0.1, 45.0), ["api.list.p99 is 45 s, expected at most 30 (the API server's SLO)"]),
        ({"server": server_books(unread=["kube-apiserver"], apf_flows=[])}, []),
    ],
)
def test_the_api_server_keeps_its_slo_where_that_is_asked(change: dict[str, Any], reasons: list[str]) -> None:
    change |= {"books": []}
    assert judged(trial(**change), api_latency=True).reasons == reasons
    assert judged(trial(**change)).reasons == []


def test_a_profile_can_have_its_own_word_on_the_api_servers_latency() -> None:
    own = (Criterion(measure="main.api.single.p99", at_most=5.0),)
    assert judged(trial(**answers(1.25)), criteria=own, api_latency=True).verdict is Verdict.PASS


def test_what_was_not_measured_is_no_pass() -> None:
    result = judged(criteria=(Criterion(measure="recovery", at_most=60),))
    assert (result.verdict, result.reasons) == (Verdict.INVALID, ["recovery was not measured"])


@pytest.mark.parametrize(
    "criterion",
    [
        Criterion(measure="causes.quota-denied", at_least=1),
        Criterion(measure="share.quota-denied", at_most=50),
    ],
)
def test_a_profile_can_allow_a_cause_by_a_criterion(criterion: Criterion) -> None:
    denied = trial(**causes(completed=6, quota_denied=4))
    assert judged(denied, criteria=(criterion,)).verdict is Verdict.PASS


def test_what_the_profile_states_elsewhere_is_not_asked_here() -> None:
    """Under other limits, say: then nothing at all is asked of it here."""
    unfinished = trial(**causes(completed=6, not_bound=4))
    assert judged(unfinished, stated=["unfinished"]).verdict is Verdict.PASS
    assert judged(unfinished).verdict is Verdict.FAIL


def test_only_the_main_trial_may_not_be_starved_but_all_keep_invariants() -> None:
    starved = trial("starved", **causes(completed=2, not_bound=8))
    assert judged(trial("control"), starved).verdict is Verdict.PASS

    broken = starved.model_copy(
        update={"violations": [Violation(invariant="leaked-claim", at=1.0, object="n/c", message="left")]}
    )
    stated = (P99, Criterion(measure="violations", at_most=0))
    result = judged(trial("control"), broken, criteria=stated)
    assert result.reasons == ["starved: violations is 1, expected at most 0"]


def over_quota(number: int) -> dict[str, Any]:
    return {
        "violations": [Violation(invariant="over-quota", at=1.0, object="n/c", message="one more")] * number
    }


KNOWN = Criterion(
    measure="violations.over-quota", at_most=0, known="https://example.org/issues/1", known_until=2
)


def test_a_known_issue_is_told_and_does_not_fail_it() -> None:
    result = judged(trial(**over_quota(2)), criteria=(KNOWN,))

    assert (result.verdict, result.reasons) == (Verdict.PASS, [])
    (told,) = [check for check in result.checks if check.known]
    assert not told.ok
    assert told.known == "https://example.org/issues/1"
    assert told.message == "violations.over-quota is 2, expected at most 0"


def test_a_known_issue_explains_no_more_than_it_does() -> None:
    assert judged(trial(**over_quota(3)), criteria=(KNOWN,)).reasons == [
        "violations.over-quota is 3, expected at most 0"
    ]
    assert not [check for check in judged(trial(), criteria=(KNOWN,)).checks if check.known or not check.ok]


def test_a_known_issue_explains_no_other_violation() -> None:
    leak = Violation(invariant="leaked-claim", at=1.0, object="n/c", message="left")
    both = [*over_quota(1)["violations"], leak]

    result = judged(trial(violations=both), criteria=(KNOWN,))

    assert (result.verdict, result.reasons) == (Verdict.FAIL, ["violations is 1, expected at most 0"])


@pytest.mark.parametrize(
    ("limit", "explained", "not_explained"),
    [({"at_most": 0.0}, 2.0, 2.1), ({"at_least": 5.0}, 2.0, 1.9)],
)
def test_what_an_issue_explains(limit: dict[str, float], explained: float, not_explained: float) -> None:
    criterion = Criterion.model_validate(
        {"measure": "restarts", "known": "https://example.org/1", "known_until": 2, **limit}
    )
    assert criterion.explained(explained)
    assert not criterion.explained(not_explained)
    assert not Criterion.model_validate({"measure": "restarts", **limit}).explained(explained)


@pytest.mark.parametrize("half", [{"known": "https://example.org/1"}, {"known_until": 1}])
def test_a_known_issue_has_a_bound(half: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="known and known_until together"):
        Criterion.model_validate({"measure": "restarts", "at_most": 0, **half})


def test_every_trial_has_to_be_valid() -> None:
    result = judged(trial("control"), trial("starved", **book(5, 4)))
    assert result.verdict is Verdict.INVALID
    assert result.reasons[0].startswith("starved: the books don't balance")


def test_requirements_count() -> None:
    found = [
        RequirementResult(requirement="APF-01", result=Result.PASS),
        RequirementResult(requirement="APF-03", result=Result.FAIL, message="two claims of one pod"),
    ]
    result = judged(requirements=found)
    assert (result.verdict, result.reasons) == (Verdict.FAIL, ["APF-03: two claims of one pod"])
    error = [RequirementResult(requirement="APF-04", result=Result.ERROR, message="not read")]
    assert judged(requirements=error).verdict is Verdict.INVALID
    blocked = [RequirementResult(requirement="APF-04", result=Result.BLOCKED, message="no gate")]
    assert judged(requirements=blocked).verdict is Verdict.PASS


def test_an_interrupted_run_is_invalid() -> None:
    result = judged(faults=["the run was interrupted"])
    assert result.reasons == ["the run was interrupted"]
    assert isinstance(result.checks[0], Check)
