"""Whole runs of the generator's process against the stand-in."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from harness.waiting import wait_until
from load.histogram import LatencyHistogram
from load.model import Burst, Conduct, PodKind, Segment, Stage
from load.profiles.schema import RateStage
from load.profiles.trial import Trial
from tests.load.generator.apiserver import LEVEL, SENDER_FLOW, ApiServer, Refusal, serving
from tests.load.generator.running import ALL_COMPLETED, POD, counts, orders, requests, start

pytestmark = pytest.mark.process

LONG = [Segment(seconds=600, start=20, end=20)]


def url(server: ApiServer) -> str:
    return f"http://127.0.0.1:{server.port}"


def too_many(times: int, *, method: str = "POST", after: str = "1") -> Refusal:
    return Refusal(method, 429, times, headers={"Retry-After": after})


def test_every_pod_of_an_ordinary_run_completes_and_both_sides_count_the_same(tmp_path: Path) -> None:
    with serving() as server:
        run = start(tmp_path, orders(tmp_path, url(server)))
        code = run.wait()
        report = run.report()

    assert code == 0
    assert report.faults == []
    assert counts(report) == ALL_COMPLETED
    assert len(set(server.created)) == 40
    assert requests(report, "create") == {"201": server.requests["POST", 201]} == {"201": 40}
    assert requests(report, "delete") == {"200": server.requests["DELETE", 200]} == {"200": 40}
    assert requests(report, "probe") == {"201": server.requests["DRYRUN", 201]} == {"201": 1}
    assert requests(report, "watch") == {"200": server.requests["WATCH", 200]} == {"200": 2}
    assert report.gaps == []
    assert report.violations == []
    assert report.claims_seen == 40
    assert report.flow is not None
    assert (report.flow.flow_schema_uid, report.flow.priority_level_uid) == (SENDER_FLOW, LEVEL)
    samples = {s.stage: s for s in report.samples}
    assert {stage: samples[stage].count for stage in samples} == dict.fromkeys(
        [s for s in Stage if s is not Stage.RUNNING], 40
    )
    bound = LatencyHistogram.of(samples[Stage.BOUND]).quantile(0.5)
    assert bound is not None
    assert 0.02 <= bound.seconds < 2  # the stand-in takes two steps of 10 ms
    last = run.progress()[-1]
    assert (last.intended, last.accepted, last.bound) == (40, 40, 40)
    assert report.cpu_seconds > 0


def test_a_device_that_a_claim_outside_the_churn_has_is_not_to_be_given_again(tmp_path: Path) -> None:
    """Pods that fill the nodes are in a namespace of their own, and hold most of the devices."""
    with serving() as server:
        server.hold("run-fill", "uid-test-run-w0-template-3")
        server.hold("of-others", "uid-test-run-w0-template-4")
        kinds = [PodKind(name="template", weight=1, manifest=POD, claims=1, namespaces=["run-churn"])]
        run = start(tmp_path, orders(tmp_path, url(server), kinds=kinds, namespace_prefix="run-"))
        code = run.wait()
        report = run.report()

    assert code == 0
    assert "test-run-w0-template-3" in server.created
    assert [(each.invariant, each.object) for each in report.violations] == [
        ("double-allocation", "gpu.example/node/uid-test-run-w0-template-3")
    ]
    assert "run-fill/filler" in report.violations[0].message
    assert counts(report) == ALL_COMPLETED
    assert report.claims_seen == 40
    assert report.faults == []


def test_an_apf_refusal_is_a_result_and_is_not_tried_again(tmp_path: Path) -> None:
    with serving() as server:
        server.refusals.append(too_many(5))
        run = start(tmp_path, orders(tmp_path, url(server)))
        assert run.wait() == 0
        report = run.report()

    assert counts(report) == {"apf-rejected": 5, "completed": 35}
    assert requests(report, "create") == {"429": 5, "201": 35}
    assert report.retry_after == {"1": 5}


def test_a_429_of_a_handler_is_not_laid_on_apf(tmp_path: Path) -> None:
    status = '{"kind":"Status","reason":"TooManyRequests","message":"disruption budget"}'
    refusal = Refusal("POST", 429, 2, body=status, content_type="application/json")
    with serving() as server:
        server.refusals.append(refusal)
        run = start(tmp_path, orders(tmp_path, url(server)))
        assert run.wait() == 0

    assert counts(run.report()) == {"refused": 2, "completed": 38}


def test_a_well_behaved_client_waits_as_told_and_tries_again(tmp_path: Path) -> None:
    with serving() as server:
        server.refusals.append(too_many(5))
        run = start(tmp_path, orders(tmp_path, url(server), conduct=Conduct.RETRY_AFTER))
        assert run.wait() == 0
        report = run.report()

    assert counts(report) == ALL_COMPLETED
    assert requests(report, "create") == {"429": 5, "201": 40}
    accepted = LatencyHistogram.of(next(s for s in report.samples if s.stage is Stage.ACCEPTED))
    slowest = accepted.maximum()
    assert slowest is not None
    assert slowest.seconds >= 1.0  # the wait counts: the pod was due before it


def test_a_well_behaved_client_gives_up_after_ten_refusals(tmp_path: Path) -> None:
    with serving() as server:
        server.refusals.append(too_many(1000, after="0"))
        one = orders(
            tmp_path,
            url(server),
            conduct=Conduct.RETRY_AFTER,
            segments=[],
            bursts=[Burst(at=0.1, pods=1)],
        )
        run = start(tmp_path, one)
        assert run.wait() == 0
        report = run.report()

    assert counts(report) == {"apf-rejected": 1}
    assert requests(report, "create") == {"429": 10}


def test_who_still_waits_at_the_end_of_the_drain_was_turned_away(tmp_path: Path) -> None:
    with serving() as server:
        server.refusals.append(too_many(1000, after="30"))
        one = orders(
            tmp_path,
            url(server),
            conduct=Conduct.RETRY_AFTER,
            segments=[],
            bursts=[Burst(at=0.1, pods=1)],
            drain_seconds=1,
        )
        run = start(tmp_path, one)
        assert run.wait() == 0

    assert counts(run.report()) == {"apf-rejected": 1}
    assert requests(run.report(), "create") == {"429": 1}


@pytest.mark.parametrize(("uid", "word"), [("uid-of-exempt", "exempt"), ("another", "not in its own")])
def test_a_sender_of_the_wrong_flow_measures_nothing(tmp_path: Path, uid: str, word: str) -> None:
    with serving() as server:
        server.flow = uid
        run = start(tmp_path, orders(tmp_path, url(server)))
        assert run.wait() == 3

    assert server.created == []
    assert run.report().intended == 0
    assert word in run.report().faults[0]


def test_a_delete_is_never_sent_twice_by_the_client_library(tmp_path: Path) -> None:
    """A connection that breaks under a delete is an answer of code 0, and the next try is one of ours."""
    with serving() as server:
        server.refusals.append(Refusal("DELETE", 0, 3))
        run = start(tmp_path, orders(tmp_path, url(server)))
        assert run.wait() == 0
        report = run.report()

    assert counts(report) == ALL_COMPLETED
    assert requests(report, "delete") == {"0": 3, "200": 40}
    assert server.requests["DELETE", 0] == 3


def test_arrivals_beyond_the_cap_are_dropped_and_counted(tmp_path: Path) -> None:
    with serving() as server:
        server.delay = 0.5
        limited = orders(tmp_path, url(server), segments=[], bursts=[Burst(at=0.1, pods=10)], max_in_flight=3)
        run = start(tmp_path, limited)
        assert run.wait() == 0

    assert counts(run.report()) == {"dropped-by-generator": 7, "completed": 3}
    assert len(server.created) == 3


def test_the_cap_is_of_all_processes_together(tmp_path: Path) -> None:
    with serving() as server:
        server.delay = 0.5
        limited = orders(tmp_path, url(server), segments=[], bursts=[Burst(at=0.1, pods=10)], max_in_flight=4)
        run = start(tmp_path, limited, ["--processes", "2"])
        assert run.wait() == 0

    assert counts(run.report()) == {"dropped-by-generator": 6, "completed": 4}


def test_a_cut_watch_is_resumed_and_the_gap_is_in_the_report(tmp_path: Path) -> None:
    with serving() as server:
        run = start(tmp_path, orders(tmp_path, url(server), segments=LONG))
        run.wait_until_intended(10)
        server.cut_watches()
        wait_until(lambda: server.requests["WATCH", 200] == 4, 60, "both watches to be back")
        assert run.interrupt() == 3
        report = run.report()

    assert report.faults == ["SIGINT in the middle of the run"]
    assert counts(report) == {"completed": report.intended}
    assert sorted(gap.kind for gap in report.gaps) == ["claims", "pods"]
    assert not any(gap.relisted for gap in report.gaps)
    assert all(0 < gap.seconds < 30 for gap in report.gaps)
    assert requests(report, "list") == {"200": 2}


def test_what_a_silent_watch_missed_is_late_since_its_last_word(tmp_path: Path) -> None:
    """It is noticed only when it breaks; the watch on slices, which had nothing to say, missed nothing."""
    with serving() as server:
        run = start(tmp_path, orders(tmp_path, url(server), removed_devices=True))
        run.wait_until_intended(5)
        server.mute_watches()
        run.wait_until_intended(30)
        server.cut_watches()
        assert run.wait() == 0
        report = run.report()

    assert counts(report) == ALL_COMPLETED
    gaps = {gap.kind: gap for gap in report.gaps}
    assert gaps.keys() == {"pods", "claims", "slices"}
    for kind in ("pods", "claims"):
        assert 0.5 < gaps[kind].seconds <= gaps[kind].late < 30
        assert gaps[kind].at < gaps["slices"].at - 0.5
    assert gaps["slices"].late == 0


def test_a_watch_that_can_not_be_resumed_lists_again(tmp_path: Path) -> None:
    with serving() as server:
        run = start(tmp_path, orders(tmp_path, url(server), segments=LONG))
        run.wait_until_intended(10)
        server.cut_watches(forget=True)
        wait_until(lambda: server.requests["WATCH", 200] == 6, 60, "both watches, tried in vain, to be back")
        assert run.interrupt() == 3
        report = run.report()

    assert report.faults == ["SIGINT in the middle of the run"]
    assert counts(report) == {"completed": report.intended}
    assert [gap.relisted for gap in report.gaps] == [True, True]
    assert requests(report, "list") == {"200": 4}


def test_a_server_that_goes_away_for_a_while_does_not_end_the_run(tmp_path: Path) -> None:
    with serving() as server:
        run = start(tmp_path, orders(tmp_path, url(server), segments=LONG))
        run.wait_until_intended(20)
        server.stop()
        before = len(run.progress())
        run.wait_until_intended(run.progress()[-1].intended + 20)
        server.start()
        run.wait_until_intended(run.progress()[-1].intended + 20)
        assert run.interrupt() == 3
        report = run.report()

    assert len(run.progress()) > before
    assert report.causes["unreachable"] >= 10  # type: ignore[index]
    assert sum(report.causes.values()) == report.intended
    assert counts(report).keys() == {"unreachable", "completed"}
    assert {gap.kind for gap in report.gaps} == {"pods", "claims"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_load_and_leaves_the_report(tmp_path: Path, number: signal.Signals) -> None:
    with serving() as server:
        run = start(tmp_path, orders(tmp_path, url(server), segments=LONG))
        run.wait_until_intended(20)
        run.process.send_signal(number)
        code = run.wait(timeout=60)
        report = run.report()

    assert code == 3
    assert number.name in report.faults[0]
    assert 20 <= report.intended < 2000
    assert counts(report) == {"completed": report.intended}


def test_a_ramp_sends_as_its_rate_says(tmp_path: Path) -> None:
    """From 0 to 40 pods/s in 3 s: 40/6 t^2 pods are due by t, a quarter of the 60 in half the time."""
    with serving() as server:
        stage = RateStage(seconds=3, start=0, rate=40)
        trial = Trial("main", (), rate=40, warm_up=0, seconds=3, hold=0.1, drain=10, stages=(stage,))
        run = start(tmp_path, orders(tmp_path, url(server), segments=trial.segments()))
        assert run.wait() == 0
        report = run.report()
        sent = [at - report.started_at for at in server.created_at]

    assert report.faults == []
    assert counts(report) == {"completed": 60}
    late = [at - (6 * n / 40) ** 0.5 for n, at in enumerate(sorted(sent), start=1)]
    assert min(late) > -0.02, "nothing is sent before it is due"
    assert max(late) < 30, "nor much later, even on a busy machine"
    rates = [each.offered_rate for each in run.progress() if each.elapsed < 3]
    assert rates == sorted(rates)
    assert rates[0] < rates[-1] <= 40


def test_two_processes_share_one_schedule(tmp_path: Path) -> None:
    kind = PodKind(name="template", weight=1, manifest=POD, claims=1, namespaces=["one", "two"])
    with serving() as server:
        run = start(tmp_path, orders(tmp_path, url(server), kinds=[kind]), ["--processes", "2"])
        code = run.wait()
        report = run.report()

    assert code == 0
    assert report.workers == 2
    assert report.faults == []
    assert counts(report) == ALL_COMPLETED
    assert len(set(server.created)) == 40
    assert {name.split("-w")[1][0] for name in server.created} == {"0", "1"}
    assert requests(report, "watch") == {"200": 4}
    assert run.progress()[-1].intended == 40


def test_pods_that_never_get_a_claim_are_in_the_result(tmp_path: Path) -> None:
    with serving() as server:
        server.schedules = False
        run = start(tmp_path, orders(tmp_path, url(server), drain_seconds=1))
        assert run.wait() == 0
        report = run.report()

    assert counts(report) == {"no-claim": 40}
    bound = next(s for s in report.samples if s.stage is Stage.BOUND)
    assert (bound.count, bound.censored) == (40, 40)


def test_the_cpu_of_the_drain_is_not_the_loads(tmp_path: Path) -> None:
    """The machine is measured while there are arrivals, and the share is of that."""
    with serving() as server:
        server.schedules = False
        few = orders(
            tmp_path,
            url(server),
            segments=[],
            bursts=[Burst(at=0.1, pods=2)],
            drain_seconds=4,
            hold_seconds=9,
        )
        run = start(tmp_path, few)
        wait_until(lambda: any(each.phase == "drain" for each in run.progress()), 60, "the drain")
        server.chatter(5000)
        assert run.wait() == 0
        report = run.report()

    assert counts(report) == {"no-claim": 2}
    assert report.cpu_seconds < 0.05


def test_a_server_that_is_not_there_is_a_clear_end(tmp_path: Path) -> None:
    with serving() as server:
        port = server.port
    run = start(tmp_path, orders(tmp_path, f"http://127.0.0.1:{port}"))

    assert run.wait() == 3
    assert "can't be reached" in run.report().faults[0]


def test_wrong_orders_are_one_line_and_exit_code_2(tmp_path: Path) -> None:
    wrong = orders(tmp_path, "http://127.0.0.1:1", segments=[], bursts=[])
    run = start(tmp_path, wrong)
    out, _ = run.process.communicate(timeout=60)

    assert run.process.returncode == 2
    assert "segments: expected at least one segment or burst" in out
    assert len(out.splitlines()) == 1
