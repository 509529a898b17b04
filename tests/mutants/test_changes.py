"""What each small change does to what is asked and to what is seen, and that it leaves the rest alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from harness.kube import Object
from mutants.changes import (
    Answer,
    Ask,
    Judge,
    Mutant,
    Request,
    See,
    accept,
    drop,
    edit,
    freeze,
    hide,
    ignore,
    invent,
    metric,
    put,
    refuse,
    reword,
    rewrite,
    strip,
)


def request(verb: str, resource: str, body: Any = None, *, name: str = "") -> Request:
    kind, _, subresource = resource.partition("/")
    return Request(verb, "kube-apiserver", "/", kind, subresource, "space", name, body=body)


def claim(name: str = "one") -> Object:
    return {
        "kind": "ResourceClaim",
        "metadata": {"name": name, "uid": f"uid-{name}", "annotations": {"a.b/c": "true", "d": "e"}},
        "spec": {"devices": {"requests": [{"name": "a", "count": 1}, {"name": "b", "count": 2}]}},
    }


def seen(see: See, obj: Object, resource: str = "resourceclaims") -> Any:
    """What becomes of one object that was read; the answer itself must stay as it is."""
    before = copy.deepcopy(obj)
    answer = Mutant("m", "", (), sees=(see,)).answer(request("get", resource, name="one"), Answer(200, obj))
    assert obj == before
    return answer.body


def asked(ask: Ask, verb: str, resource: str, body: Any) -> Any:
    """What becomes of a body that is passed on."""
    sent = request(verb, resource, copy.deepcopy(body))
    assert Mutant("m", "", (), asks=(ask,)).ask(sent) is None
    return sent.body


def test_drop_removes_a_field() -> None:
    assert "annotations" not in seen(drop("resourceclaims", "metadata.annotations"), claim())["metadata"]
    assert seen(drop("resourceclaims", "spec.absent.deeper"), claim()) == claim()
    assert seen(drop("resourceclaims", "metadata.annotations"), claim(), "resourceclaimtemplates") == claim()


def test_drop_takes_a_key_with_a_dot_as_a_sequence() -> None:
    changed = seen(drop("resourceclaims", ("metadata", "annotations", "a.b/c")), claim())
    assert changed["metadata"]["annotations"] == {"d": "e"}


def test_drop_removes_every_item_and_one_by_its_place() -> None:
    every = seen(drop("resourceclaims", "spec.devices.requests.*"), claim())
    assert every["spec"]["devices"]["requests"] == []
    first = seen(drop("resourceclaims", "spec.devices.requests.0"), claim())
    assert [each["name"] for each in first["spec"]["devices"]["requests"]] == ["b"]
    assert seen(drop("resourceclaims", "spec.devices.requests.7"), claim()) == claim()
    assert seen(drop("resourceclaims", "metadata.annotations.*"), claim())["metadata"]["annotations"] == {}


def test_put_sets_a_field_and_makes_its_parents() -> None:
    counts = seen(put("resourceclaims", "spec.devices.requests.*.count", 7), claim())
    assert [each["count"] for each in counts["spec"]["devices"]["requests"]] == [7, 7]
    made = seen(put("resourceclaims", "status.allocation.node", "n1"), claim())
    assert made["status"] == {"allocation": {"node": "n1"}}
    assert seen(put("resourceclaims", "metadata.name.deeper", 1), claim()) == claim()


def test_put_gives_each_object_a_value_of_its_own() -> None:
    value: dict[str, str] = {}
    seen(put("resourceclaims", "status", value), claim())["status"]["changed"] = "later"
    assert value == {}


def test_edit_gets_the_old_value_or_none() -> None:
    twice = seen(edit("resourceclaims", "spec.devices.requests.*.count", lambda count: count * 2), claim())
    assert [each["count"] for each in twice["spec"]["devices"]["requests"]] == [2, 4]
    assert seen(edit("resourceclaims", "status", lambda old: [old]), claim())["status"] == [None]


def test_objects_are_seen_changed_also_through_their_status() -> None:
    change = put("resourceclaims", "metadata.name", "other")
    assert seen(change, claim(), "resourceclaims/status")["metadata"]["name"] == "other"
    assert seen(change, claim(), "resourceclaims/log")["metadata"]["name"] == "one"


def test_lists_are_changed_item_by_item() -> None:
    mutant = Mutant("m", "", (), sees=(put("pods", "spec.nodeName", "n1"),))
    body = {"kind": "PodList", "items": [{"spec": {}}, {}]}
    changed = mutant.answer(request("list", "pods"), Answer(200, body))
    nodes = [{"spec": {"nodeName": "n1"}}, {"spec": {"nodeName": "n1"}}]
    assert changed.body == {"kind": "PodList", "items": nodes}


def test_changes_follow_one_another() -> None:
    sees = (put("pods", "spec.a", 1), edit("pods", "spec.a", lambda old: old + 1))
    mutant = Mutant("m", "", (), sees=sees)
    assert mutant.answer(request("get", "pods"), Answer(200, {})).body == {"spec": {"a": 2}}


def test_refusals_are_not_changed_by_what_is_seen() -> None:
    refusal = Answer(404, {"kind": "Status", "spec": {}})
    assert (
        Mutant("m", "", (), sees=(drop("pods", "spec"),)).answer(request("get", "pods"), refusal) == refusal
    )


def test_hide_takes_objects_from_lists_and_answers_not_found() -> None:
    mutant = Mutant("m", "", (), sees=(hide("pods", lambda pod: pod["metadata"]["name"] == "a"),))
    pods = [{"metadata": {"name": name}} for name in "ab"]
    listed = mutant.answer(request("list", "pods"), Answer(200, {"items": pods}))
    assert listed.body["items"] == pods[1:]
    single = mutant.answer(request("get", "pods", name="a"), Answer(200, pods[0]))
    assert (single.status, single.body["reason"]) == (404, "NotFound")
    assert single.body["message"] == 'pods "a" not found'


def test_watch_events_are_changed_and_hidden() -> None:
    sees = (hide("pods", lambda pod: pod["metadata"]["name"] == "a"), put("pods", "spec", 1))
    mutant = Mutant("m", "", (), sees=sees)
    watch = request("watch", "pods")
    assert mutant.event(watch, {"type": "ADDED", "object": {"metadata": {"name": "a"}}}) is None
    shown = mutant.event(watch, {"type": "MODIFIED", "object": {"metadata": {"name": "b"}}})
    assert shown == {"type": "MODIFIED", "object": {"metadata": {"name": "b"}, "spec": 1}}
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}
    assert mutant.event(watch, bookmark) is bookmark


def test_freeze_keeps_an_object_as_it_first_met_a_condition() -> None:
    see = freeze("pods", lambda pod: pod["status"] == "refused")
    states = ["new", "refused", "running"]
    pods: list[Object] = [{"metadata": {"uid": "1"}, "status": status} for status in states]
    assert [see(request("get", "pods"), pod) for pod in pods] == [pods[0], pods[1], pods[1]]
    other = {"metadata": {"uid": "2"}, "status": "running"}
    assert see(request("get", "pods"), other) == other
    assert see(request("get", "pods/log"), pods[2]) == pods[2]


def test_strip_takes_a_field_from_what_is_written() -> None:
    change = strip("resourceclaims", "spec.devices.requests.*.count")
    for verb in ("create", "update", "patch"):
        written = asked(change, verb, "resourceclaims", claim())
        assert written["spec"]["devices"]["requests"] == [{"name": "a"}, {"name": "b"}]
    assert asked(change, "create", "resourceclaims/status", claim()) == claim()
    assert asked(change, "create", "pods", claim()) == claim()
    assert asked(change, "delete", "resourceclaims", claim()) == claim()


def test_rewrite_changes_what_is_written_to_a_subresource() -> None:
    change = rewrite("pods/status", lambda body: body.update(status="other"))
    assert asked(change, "update", "pods/status", {"status": "this"}) == {"status": "other"}
    assert asked(change, "update", "pods", {"status": "this"}) == {"status": "this"}


@pytest.mark.parametrize(
    ("verb", "body", "status", "answer"),
    [
        ("create", {"kind": "Pod"}, 201, {"kind": "Pod"}),
        ("update", {"kind": "Pod"}, 200, {"kind": "Pod"}),
        ("delete", None, 200, {"kind": "Status", "status": "Success"}),
    ],
)
def test_ignore_answers_as_if_it_were_done(verb: str, body: Any, status: int, answer: Object) -> None:
    assert ignore(verb, "pods")(request(verb, "pods", body)) == Answer(status, answer)


def test_ignore_passes_everything_else_on() -> None:
    change = ignore("create", "pods", lambda request: request.namespace == "other")
    assert change(request("create", "pods", {})) is None
    assert ignore("create", "pods")(request("create", "pods/binding", {})) is None
    assert ignore("create", "pods")(request("update", "pods", {})) is None


def test_refuse_answers_instead_of_the_server() -> None:
    refusal = refuse("create", "pods", 403, "Forbidden", "not today")(request("create", "pods", {}))
    assert refusal is not None
    assert refusal.status == refusal.body["code"] == 403
    assert (refusal.body["reason"], refusal.body["message"]) == ("Forbidden", "not today")
    assert refuse("create", "pods", 403, "", "")(request("update", "pods", {})) is None
    assert refuse("create", "pods", 403, "", "", lambda _: False)(request("create", "pods", {})) is None


def test_the_first_answer_wins() -> None:
    asks = (refuse("create", "pods", 403, "Forbidden", "first"), ignore("create", "pods"))
    answer = Mutant("m", "", (), asks=asks).ask(request("create", "pods", {}))
    assert answer is not None
    assert answer.body["message"] == "first"


def judged(judge: Judge, sent: Request, answer: Answer) -> Answer:
    return Mutant("m", "", (), judges=(judge,)).answer(sent, answer)


def test_accept_answers_a_refusal_with_what_was_sent() -> None:
    refusal = Answer(422, {"kind": "Status"})
    assert judged(accept("create", "pods"), request("create", "pods", {"a": 1}), refusal) == Answer(
        201, {"a": 1}
    )
    assert judged(accept("update", "pods"), request("update", "pods", {"a": 1}), refusal) == Answer(
        200, {"a": 1}
    )


def test_accept_leaves_other_answers_alone() -> None:
    sent = request("create", "pods", {"a": 1})
    for answer in (Answer(201, {"b": 2}), Answer(404, {}), Answer(500, {})):
        assert judged(accept("create", "pods"), sent, answer) == answer
    refusal = Answer(403, {"kind": "Status"})
    assert judged(accept("create", "pods", 422), sent, refusal) == refusal
    assert judged(accept("create", "nodes"), sent, refusal) == refusal
    assert judged(accept("patch", "pods"), sent, refusal) == refusal


def test_reword_changes_the_words_of_a_refusal_only() -> None:
    refusal = Answer(403, {"reason": "Forbidden", "message": "exceeded quota"})
    changed = judged(reword("pods", "no"), request("create", "pods", {}), refusal)
    assert changed == Answer(403, {"reason": "Forbidden", "message": "no"})
    assert judged(reword("nodes", "no"), request("create", "pods", {}), refusal) == refusal
    fine = Answer(201, {"message": "created"})
    assert judged(reword("pods", "no"), request("create", "pods", {}), fine) == fine


def test_invent_adds_to_lists() -> None:
    judge = invent("resourceclaims", claim("more"))
    listed = Answer(200, {"kind": "List", "items": [claim()]})
    sent = request("list", "resourceclaims")
    assert judged(judge, sent, listed).body == {"kind": "List", "items": [claim(), claim("more")]}
    assert len(listed.body["items"]) == 1
    assert judged(judge, request("list", "pods"), listed) == listed
    assert judged(judge, request("get", "resourceclaims"), Answer(200, claim())) == Answer(200, claim())
    assert judged(judge, sent, Answer(403, {})) == Answer(403, {})


METRICS = """# TYPE claims_total counter
claims_total{status="failure"} 3
claims_total{status="success"} 1.5e+02
claims_total_seconds 2
up 1
"""


def read(name: str, component: str, path: str, from_: str) -> str:
    mutant = Mutant("m", "", (), reads=(metric(name, 0, component),))
    return mutant.answer_text(Request("GET", from_, path), METRICS)


def test_metric_sets_every_sample_of_a_name() -> None:
    zeros = METRICS.replace("} 3", "} 0").replace("} 1.5e+02", "} 0")
    assert read("claims_total", "", "/metrics", "kube-scheduler") == zeros
    assert read("up", "", "/metrics", "kube-scheduler") == METRICS.replace("up 1", "up 0")
    assert read("up", "", "/api/v1/nodes/n1/proxy/metrics", "kube-apiserver") != METRICS


def test_metric_leaves_others_alone() -> None:
    assert read("claims", "", "/metrics", "kube-scheduler") == METRICS
    assert read("up", "kube-scheduler", "/metrics", "kube-apiserver") == METRICS
    assert read("up", "kube-scheduler", "/metrics", "kube-scheduler") != METRICS
    assert read("up", "", "/api/v1/namespaces/space/pods/one/log", "kube-apiserver") == METRICS
