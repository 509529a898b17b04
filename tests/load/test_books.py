from __future__ import annotations

import pytest

from load.books import ApfFlow, BookLine, balance
from load.model import Cause, Conduct, Requests
from tests.support.load_results import server_books, worker_report


def lines(**changes: object) -> dict[str, BookLine]:
    conduct = Conduct(str(changes.pop("conduct", Conduct.COUNT)))
    server = changes.pop("server", server_books())
    found = balance(worker_report(**changes), server, conduct)  # type: ignore[arg-type]
    return {line.name: line for line in found}


def rejecting(**reasons: int) -> object:
    sender = ApfFlow(
        flow_schema="sender",
        priority_level="load",
        dispatched=10,
        rejected={reason.replace("_", "-"): count for reason, count in reasons.items()},
    )
    other = ApfFlow(flow_schema="other", priority_level="other", dispatched=0, rejected={"queue-full": 99})
    return server_books(apf_flows=[sender, other])


def test_a_clean_run_balances() -> None:
    found = lines()
    assert all(line.balanced for line in found.values())
    assert {name for name, line in found.items() if line.binding} == {
        "pods that came due",
        "pods of all kinds",
        "answers 429",
        "creates answered",
        "creates answered 429",
    }


def test_every_429_was_counted_by_the_server() -> None:
    """Of creates and deletes, by any reason, of the sender's own FlowSchema."""
    found = lines(
        causes={Cause.COMPLETED: 7, Cause.APF_REJECTED: 3},
        causes_by_kind={"a": {Cause.COMPLETED: 7, Cause.APF_REJECTED: 3}},
        requests=[
            Requests(verb="create", by_code={"201": 7, "429": 3}),
            Requests(verb="delete", by_code={"200": 7, "429": 1}),
        ],
        server=rejecting(queue_full=2, concurrency_limit=1, time_out=1, cancelled=5),
    )
    assert (found["answers 429"].client, found["answers 429"].server) == (4, 4)
    assert all(line.balanced for line in found.values() if line.binding)


def test_one_429_too_few_does_not_balance() -> None:
    found = lines(server=rejecting(queue_full=1))
    assert (found["answers 429"].client, found["answers 429"].server) == (0, 1)
    assert not found["answers 429"].balanced


@pytest.mark.parametrize("server", [None, server_books(apf_flows=[]), server_books(sender_flow_schema="")])
def test_what_the_server_counted_may_be_unknown(server: object) -> None:
    line = lines(server=server)["answers 429"]
    assert (line.server, line.balanced) == (None, False)


def test_a_pod_in_no_cause_does_not_balance() -> None:
    found = lines(causes={Cause.COMPLETED: 9})
    assert not found["pods that came due"].balanced
    assert not found["pods of all kinds"].balanced


def test_dropped_pods_are_in_the_ledger_but_were_not_answered() -> None:
    counts = {Cause.COMPLETED: 8, Cause.DROPPED_BY_GENERATOR: 2}
    found = lines(
        causes=counts, causes_by_kind={"a": counts}, requests=[Requests(verb="create", by_code={"201": 8})]
    )
    assert all(found[name].balanced for name in ("pods that came due", "creates answered"))


def test_a_client_that_tries_again_has_more_answers_than_pods() -> None:
    found = lines(
        conduct="retry-after",
        requests=[Requests(verb="create", by_code={"201": 10, "429": 6})],
        server=rejecting(queue_full=6),
    )
    assert "creates answered" not in found
    assert found["answers 429"].balanced


def test_claims_and_evictions_are_shown() -> None:
    counts = {Cause.COMPLETED: 8, Cause.EVICTED: 2}
    found = lines(
        causes=counts,
        claims_seen=12,
        server=server_books(
            evictions=2, claim_creates={"kube-scheduler": {"success": 5, "failure": 2}, "kcm": {"success": 7}}
        ),
    )
    assert (found["claims"].client, found["claims"].server) == (12, 12)
    assert (found["evicted pods"].client, found["evicted pods"].server) == (2, 2)
    assert not found["claims"].binding


def test_denials_by_the_clients_and_the_servers_count_are_shown() -> None:
    denied = [Requests(verb="create", by_code={"201": 8, "403": 2})]
    found = lines(requests=denied, server=server_books(pod_creates_forbidden=3))["creates answered 403"]
    assert (found.client, found.server, found.binding) == (2, 3, False)
    books = server_books(pod_creates_forbidden=None, unread=["kube-apiserver"])
    assert lines(requests=denied, server=books)["creates answered 403"].server is None
    assert "creates answered 403" not in lines(server=server_books(pod_creates_forbidden=0))


def test_what_was_lost_with_a_worker_was_not_answered_to_anybody_who_can_tell() -> None:
    causes = {Cause.COMPLETED: 7, Cause.LOST_WITH_WORKER: 3}
    found = lines(
        intended=10,
        causes=causes,
        causes_by_kind={"a": causes},
        requests=[Requests(verb="create", by_code={"201": 7})],
    )
    assert all(line.balanced for line in found.values() if line.binding)


def test_what_components_out_of_reach_created_is_not_known() -> None:
    books = server_books().model_copy(update={"unread": ["kube-scheduler"]})

    assert lines(server=books)["claims"].server is None
    assert lines(server=server_books())["claims"].server is not None


def test_what_one_of_several_api_servers_counted_is_shown_as_not_known() -> None:
    books = server_books().model_copy(update={"unread": ["kube-apiserver"], "apf_flows": []})

    found = lines(server=books)

    assert (found["answers 429"].server, found["answers 429"].binding) == (None, False)
    assert found["claims"].server is not None, "other components counted these"
    assert lines(server=server_books())["answers 429"].binding
    assert lines(server=None)["answers 429"].binding
